"""Claims about what a loop closes over: it is found wherever it is kept, and gets the gradient of the plain loop."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import adjoint
import dynloop
from dynloop import DerivativeError
from dynloop.on_torch.searching import search
from tests.closeness import assert_close

GLOBAL = torch.tensor([1.2, 0.7], dtype=torch.float64, requires_grad=True)


def below(y: Tensor) -> Tensor:
    return y.sum() < 30


def start() -> Tensor:
    return torch.tensor([1.0, 2.0], dtype=torch.float64)


def plain(cond: Callable[..., Any], body: Callable[..., Any], carry: Any) -> Any:
    while cond(carry):
        carry = body(carry)
    return carry


def factor() -> Tensor:
    return torch.tensor([1.3, 0.9], dtype=torch.float64, requires_grad=True)


def by_global(w: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda y: y * GLOBAL * w


def by_default(w: Tensor) -> Callable[[Tensor], Tensor]:
    def body(y: Tensor, w: Tensor = w) -> Tensor:
        return y * w * 1.3

    return body


def by_partial(w: Tensor) -> Callable[[Tensor], Tensor]:
    return functools.partial(lambda w, y: y * w * 1.3, w)


def by_method(w: Tensor) -> Callable[[Tensor], Tensor]:
    class Model:
        def __init__(self) -> None:
            self.factors = [w]

        def step(self, y: Tensor) -> Tensor:
            return y * self.factors[0] * 1.3

    return Model().step


def by_call(w: Tensor) -> Callable[[Tensor], Tensor]:
    @dataclass
    class Model:
        parts: dict[str, Tensor] = field(default_factory=lambda: {"w": w})

        def __call__(self, y: Tensor) -> Tensor:
            return y * self.parts["w"] * 1.3

    return Model()


def by_module(w: Tensor) -> Callable[[Tensor], Tensor]:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(w.detach())

        def forward(self, y: Tensor) -> Tensor:
            return y * self.w * 1.3

    return Model()


def by_nested(w: Tensor) -> Callable[[Tensor], Tensor]:
    def inner(y: Tensor) -> Tensor:
        return y * w * 1.3

    def outer(y: Tensor) -> Tensor:
        return inner(y)

    return outer


@dataclass
class Holder:
    """An object, in which a search looks no further than at its tensors."""

    held: Any


KEPT = [by_global, by_default, by_partial, by_method, by_call, by_nested]


@pytest.mark.parametrize("make", KEPT)
@pytest.mark.parametrize("first", [1.0, 50.0], ids=["steps", "no step"])
def test_a_closed_over_tensor_is_found(make: Any, first: float):
    w = factor()
    body = make(w)
    x = start() * first
    found = torch.autograd.grad(dynloop.while_loop(below, body, x, checkpoints=2).sum(), w)
    wanted = torch.autograd.grad(plain(below, body, x).sum() + 0 * w.sum(), w)
    assert_close(found, wanted)


def test_the_parameters_of_a_module_get_zeros_where_no_step_runs():
    # pytorch/pytorch#195970, #108269: None there leaves a rank without its share.
    model = by_module(factor())
    dynloop.while_loop(below, model, start() * 50).sum().backward()
    assert isinstance(model, nn.Module)
    assert [p.grad.tolist() for p in model.parameters() if p.grad is not None] == [[0.0, 0.0]]


def test_a_parameter_that_no_step_has_touched_gets_zeros():
    used, unused = factor(), factor()

    def body(y: Tensor) -> Tensor:
        return y * used if y.sum() < 1e6 else y * unused

    dynloop.while_loop(below, body, start()).sum().backward()
    assert unused.grad is not None
    assert unused.grad.tolist() == [0, 0]


@pytest.mark.parametrize("checkpoints", [1, 2, 3, "auto", "all"])
def test_a_tensor_used_on_later_steps_only_is_found(checkpoints: Any):
    w = factor()
    hidden = Holder(Holder(w))

    def body(c: Any) -> Any:
        i, y = c
        return i + 1, y * hidden.held.held if int(i) == 3 else y * 1.1

    def run(loop: Any) -> Any:
        return torch.autograd.grad(loop(lambda c: c[0] < 5, body, (torch.tensor(0), start()))[1].sum(), w)[0]

    ours = functools.partial(dynloop.while_loop, checkpoints=checkpoints, max_steps=9)
    assert_close(run(ours), run(plain))
    # The same where a transformation is at work, which needs it as an argument.
    x = start()
    loop = lambda run, x: run(lambda c: c[0] < 5, body, (torch.tensor(0), x))[1].sum()
    slopes = [torch.func.grad(lambda x, run=run: loop(run, x))(x).detach() for run in (ours, plain)]
    assert_close(*slopes)


@pytest.mark.parametrize("checkpoints", [1, 2, 3, "auto", "all"])
def test_tensors_computed_before_the_loop_pass_their_gradient_on_once(checkpoints: Any):
    """One of them is computed from another one, which the body reads as well."""
    w = factor()

    def run(loop: Any) -> Any:
        v = w * 1.5
        u = v.exp() * w
        return torch.autograd.grad(loop(below, lambda y: y * v + u * w, start()).sum(), w)[0]

    ours = functools.partial(dynloop.while_loop, checkpoints=checkpoints, max_steps=64)
    assert_close(run(ours), run(plain))


def test_a_search_stays_with_what_the_functions_name():
    """Neither an attribute of the same name as a global, nor the library's own functions."""
    body = lambda c: nn.functional.dropout(c.GLOBAL, 0.0) + nn.functional.relu(c.GLOBAL)
    found = search((body, functools.partial(dynloop.while_loop)))
    assert found.tensors == []
    assert [name for name, _ in search((lambda c: c * GLOBAL,)).tensors] == ["GLOBAL"]


def test_a_tensor_computed_before_the_loop_is_found_where_it_is_hidden():
    w = factor()
    holder = Holder(Holder(w * 1.5))
    found = torch.autograd.grad(dynloop.while_loop(below, lambda y: y * holder.held.held, start()).sum(), w)
    holder.held.held = w * 1.5
    assert_close(found, torch.autograd.grad(plain(below, lambda y: y * holder.held.held, start()).sum(), w))


@pytest.mark.parametrize("is_computed", [False, True])
def test_a_hook_sees_the_gradient_once(is_computed: bool):
    w = factor()
    seen: list[Tensor] = []
    v = w * 1.5 if is_computed else w
    if is_computed:
        v.retain_grad()

    def halved(g: Tensor) -> Tensor:
        seen.append(g)
        return g / 2

    v.register_hook(halved)
    body = lambda y: y * v * 1.1
    dynloop.while_loop(below, body, start(), checkpoints=2).sum().backward()
    u = v.detach().requires_grad_()
    wanted = torch.autograd.grad(plain(below, lambda y: y * u * 1.1, start()).sum(), u)[0]
    assert len(seen) == 1
    assert_close(seen[0], wanted)
    assert v.grad is not None
    assert_close(v.grad, wanted / 2)


class Times(torch.autograd.Function):
    """A product whose inputs no torch function mode sees."""

    @staticmethod
    def forward(x: Tensor, w: Tensor) -> Tensor:
        return x * w

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        x, w = ctx.saved_tensors
        return cotangents[0] * w, cotangents[0] * x


def test_a_custom_function_in_the_body_gets_its_gradient():
    w = factor()
    body = lambda y: Times.apply(y, w) * 1.3
    found = torch.autograd.grad(dynloop.while_loop(below, body, start(), checkpoints=2).sum(), w)
    assert_close(found, torch.autograd.grad(plain(below, body, start()).sum(), w))


def test_what_a_second_derivative_cannot_follow_is_an_error():
    w, x = factor(), start().requires_grad_()
    out = dynloop.while_loop(below, lambda y: Times.apply(y, w) * 1.3, x)
    with pytest.raises(DerivativeError, match=r"straight to a custom autograd\.Function"):
        torch.autograd.grad(out.sum(), x, create_graph=True)


@pytest.mark.parametrize("checkpoints", [1, 3, "auto", adjoint.Online(2, leaf=3)])
def test_a_loop_in_the_body_of_a_loop(checkpoints: Any):
    w = factor()
    few = {"checkpoints": checkpoints}

    def run(loop: Any, x: Tensor) -> Any:
        def body(y: Tensor) -> Tensor:
            return y + loop(lambda z: z.sum() < 5, lambda z: z * w + 1, y * 0.1)

        return loop(below, body, x).square().sum()

    ours = functools.partial(dynloop.while_loop, **few)
    derivatives = []
    for loop in (ours, plain):
        x = start().requires_grad_()
        slopes = torch.autograd.grad(run(loop, x), [x, w], create_graph=True)
        again = torch.autograd.grad(slopes[0].square().sum() + slopes[1].sum(), [x, w])
        hessian = torch.func.hessian(lambda x, loop=loop: run(loop, x))(start())
        derivatives.append([*(g.detach() for g in (*slopes, *again)), hessian.detach()])
    assert_close(derivatives[0], derivatives[1])
