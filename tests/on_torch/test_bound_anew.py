"""Claims about names that are bound anew around a loop: its gradient is that of what ran, as of the unrolled loop."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dynloop

DOUBLE = torch.float64
LOOPS = [1, 2, "auto"]


def unrolled(cond: Any, body: Any, init: Any, **options: Any) -> Any:
    while cond(init):
        init = body(init)
    return init


def both(run: Callable[..., list[Tensor]], checkpoints: Any) -> None:
    """run: takes a loop and gives values and gradients, which must be those of the unrolled one."""
    torch.manual_seed(0)
    expected = run(unrolled)
    torch.manual_seed(0)
    found = run(lambda *args: dynloop.while_loop(*args, checkpoints=checkpoints))
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-12, atol=0)


def start() -> Tensor:
    return torch.tensor(0.7, dtype=DOUBLE, requires_grad=True)


def four(loop: Any, body: Any, x: Any) -> Any:
    return loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, body(c[1])), (torch.tensor(0), x))[1]


@pytest.mark.parametrize("checkpoints", LOOPS)
def test_a_loop_variable_is_what_it_was(checkpoints: Any):
    def run(loop: Any) -> list[Tensor]:
        weights = [torch.tensor(w, dtype=DOUBLE, requires_grad=True) for w in (1.1, 1.2)]
        k = 0
        body = lambda y: y * weights[k]
        first = loop(lambda y: y < 4, body, start())
        k = 1
        second = loop(lambda y: y < 4, body, start())
        return [*torch.autograd.grad(first + second, weights)]

    both(run, checkpoints)


@pytest.mark.parametrize("checkpoints", LOOPS)
@pytest.mark.parametrize("is_twice", [False, True])
def test_attributes_are_what_they_were_at_any_depth(checkpoints: Any, is_twice: bool):
    class Held:
        inner: Any
        scale: float

    def run(loop: Any) -> list[Tensor]:
        held = Held()
        held.inner = Held()
        held.inner.scale = 2.0
        x = start()
        y = four(loop, lambda y: torch.sin(y) * held.inner.scale, x)
        held.inner.scale = 3.0
        (slope,) = torch.autograd.grad(y, x, create_graph=is_twice)
        assert held.inner.scale == 3.0
        return [slope.detach()]

    both(run, checkpoints)


@pytest.mark.parametrize("checkpoints", LOOPS)
def test_parameters_and_modes_of_modules_are_what_they_were(checkpoints: Any):
    def run(loop: Any) -> list[Tensor]:
        norm = nn.BatchNorm1d(1).double()
        old = norm.weight
        x = torch.randn(4, 1, dtype=DOUBLE, requires_grad=True)
        y = four(loop, lambda y: norm(y) + y, x)
        norm.eval()
        norm.weight = nn.Parameter(old.detach() * 2)
        return [*torch.autograd.grad(y.sum() + y[0, 0] ** 2, (x, old)), torch.as_tensor(norm.running_mean)]

    both(run, checkpoints)


class Average(nn.Module):
    """It binds its buffer anew at every step, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.tensor(0.0, dtype=DOUBLE))
        self.calls = 0

    def forward(self, y: Tensor) -> Tensor:
        self.mean = self.mean * 0.9 + y.detach() * 0.1
        self.calls += 1
        return y * self.mean + self.calls * torch.sin(y)


@pytest.mark.parametrize("checkpoints", LOOPS)
def test_what_a_step_binds_itself_is_part_of_its_state(checkpoints: Any):
    def run(loop: Any) -> list[Tensor]:
        module, x = Average(), start()
        y = four(loop, module, x)
        (slope,) = torch.autograd.grad(y, x)
        assert module.calls == 4
        return [y.detach(), slope, module.mean]

    both(run, checkpoints)


def test_a_tensor_kept_from_step_to_step_with_its_graph_is_refused():
    class Kept:
        last: Any = None

    kept, x = Kept(), start()
    kept.last = torch.tensor(1.0, dtype=DOUBLE)
    w = torch.tensor(1.5, dtype=DOUBLE, requires_grad=True)

    def body(y: Tensor) -> Tensor:
        kept.last = kept.last * w
        return y * kept.last

    with pytest.raises(dynloop.DerivativeError, match="put it into the carry"):
        four(dynloop.while_loop, body, x).backward()


def test_what_moves_after_the_first_step_only_is_refused():
    class Late:
        scale = 1.0

    late, x = Late(), start()
    late.scale = 1.0

    def body(c: Any) -> Any:
        if c[0] >= 1:
            late.scale = 1.1 * late.scale
        return c[0] + 1, torch.sin(c[1]) * late.scale

    y = dynloop.while_loop(lambda c: c[0] < 4, body, (torch.tensor(0), x))[1]
    with pytest.raises(dynloop.DerivativeError, match=r"late\.scale, though not in the first step"):
        y.backward()


def test_a_pull_back_refuses_tensors_changed_since():
    k = torch.tensor(2.0, dtype=DOUBLE)
    pull = torch.func.vjp(lambda x: dynloop.while_loop(lambda y: y < 10, lambda y: y * k, x), start().detach())[1]
    k.mul_(2)
    with pytest.raises(RuntimeError, match="k was changed in place"):
        pull(torch.tensor(1.0, dtype=DOUBLE))


@pytest.mark.parametrize("checkpoints", LOOPS)
@pytest.mark.parametrize("is_twice", [False, True])
def test_a_condition_that_draws_draws_again(checkpoints: Any, is_twice: bool):
    def run(loop: Any) -> list[Tensor]:
        x = start()
        y = loop(lambda y: torch.rand(()) < 0.8, lambda y: y * (1 + torch.rand((), dtype=DOUBLE)), x)
        (slope,) = torch.autograd.grad(y, x, create_graph=is_twice)
        return [slope.detach(), torch.rand(3)]

    both(run, checkpoints)


def test_transformed_steps_run_in_the_grad_mode_of_the_call():
    body = lambda y: torch.sin(y) * (1.5 if torch.is_grad_enabled() else 1.0)
    slopes = [torch.func.grad(lambda x, loop=loop: four(loop, body, x)) for loop in (unrolled, dynloop.while_loop)]
    expected, found = (slope(start().detach()) for slope in slopes)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("checkpoints", LOOPS)
def test_steps_run_again_in_the_grad_mode_of_the_run(checkpoints: Any):
    def run(loop: Any) -> list[Tensor]:
        x = start()
        y = four(loop, lambda y: torch.sin(y) * (1.5 if torch.is_grad_enabled() else 1.0), x)
        return [*torch.autograd.grad(y, x)]

    both(run, checkpoints)


@pytest.mark.parametrize("is_twice", [False, True])
def test_an_inner_loop_starts_from_what_an_outer_body_closes_over(is_twice: bool):
    def run(loop: Any) -> list[Tensor]:
        x, w = start(), torch.tensor(1.3, dtype=DOUBLE, requires_grad=True)
        h = w * 2
        y = four(loop, lambda y: y * four(loop, torch.sin, h), x)
        found = torch.autograd.grad(y, (x, w), create_graph=is_twice)
        return [*torch.autograd.grad(found[0] ** 2 + found[1] ** 2, (x, w))] if is_twice else [*found]

    both(run, "auto")
