"""A body may take a gradient by its own carry, such as the forces of an energy, and so may a gradient of the loop."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import dynloop
from tests.closeness import assert_close

DOUBLE = torch.float64
STEPS = 5
X, W = torch.tensor([0.3, 0.4, -0.2], dtype=DOUBLE), torch.tensor([1.3, 0.8, 0.5], dtype=DOUBLE)


def energy(q: Tensor, w: Tensor) -> Tensor:
    return (torch.sin(q * w) * q.roll(1)).sum()


def by_autograd(q: Tensor, w: Tensor) -> Tensor:
    return -torch.autograd.grad(energy(q, w), q, create_graph=True)[0]


def by_func(q: Tensor, w: Tensor) -> Tensor:
    return -torch.func.grad(energy)(q, w)


def looped(x: Tensor, w: Tensor, checkpoints: Any = 2, rows: Any = None) -> Tensor:
    """Velocity Verlet, with forces from the energy."""

    def step(state: Any, _: Any) -> Any:
        q, v = state
        half = v + 0.05 * by_autograd(q, w)
        q = q + 0.1 * half
        return (q, half + 0.05 * by_autograd(q, w)), energy(q, w)

    (q, v), energies = dynloop.scan(step, (x, 0.1 * x), length=STEPS, checkpoints=checkpoints)
    return (q * v).sum() + energies.sum()


def unrolled(x: Tensor, w: Tensor) -> Tensor:
    q, v, total = x, 0.1 * x, torch.zeros((), dtype=DOUBLE)
    for _ in range(STEPS):
        half = v + 0.05 * by_func(q, w)
        q = q + 0.1 * half
        v = half + 0.05 * by_func(q, w)
        total = total + energy(q, w)
    return (q * v).sum() + total


def slopes(f: Callable[..., Tensor], order: int) -> list[Tensor]:
    inputs = [X.clone().requires_grad_(), W.clone().requires_grad_()]
    value, found = f(*inputs), list[Tensor]()
    for _ in range(order):
        first = torch.autograd.grad(value, inputs, create_graph=order > 1)
        found += [g.detach() for g in first]
        value = torch.stack([(g * g).sum() for g in first]).sum()
    return found


@pytest.mark.parametrize("checkpoints", [1, 2, "auto", "all"])
def test_gradient_equals_unrolled(checkpoints: Any):
    assert_close(slopes(lambda x, w: looped(x, w, checkpoints), 1), slopes(unrolled, 1))


def test_gradients_of_gradients_equal_unrolled():
    assert_close(slopes(looped, 3), slopes(unrolled, 3))


MODES = {
    "grad": torch.func.grad,
    "jacfwd": torch.func.jacfwd,
    "hessian": torch.func.hessian,
    "reverse over reverse": lambda f: torch.func.jacrev(torch.func.jacrev(f)),
    "lanes of gradients": lambda f: lambda x: torch.vmap(torch.func.grad(f))(torch.stack([x, 2 * x])),
    "gradients of lanes": lambda f: torch.func.grad(lambda x: torch.vmap(f)(torch.stack([x, 2 * x])).sum()),
    "lanes": lambda f: lambda x: torch.vmap(f)(torch.stack([x, 2 * x])),
    "forward over forward": lambda f: torch.func.jacfwd(torch.func.jacfwd(f)),
}


@pytest.mark.parametrize("mode", MODES)
def test_transformations_equal_unrolled(mode: str):
    found, wanted = (MODES[mode](lambda x, f=f: f(x, W))(X) for f in (looped, unrolled))
    assert_close(found, wanted)


@pytest.mark.parametrize("mode", ["grad", "lanes of gradients", "gradients of lanes", "hessian"])
def test_and_what_it_computes_under_no_grad_is_a_constant(mode: str):
    def run(x: Tensor, forces: Any, checkpoints: Any) -> Tensor:
        def body(q: Tensor) -> Tensor:
            force = forces(q, W)
            with torch.no_grad():
                scale = 1 / (1 + force.square().sum())
            return q + scale * force

        if checkpoints is None:
            for _ in range(3):
                x = body(x)
            return x.sum()
        return dynloop.fori_loop(0, 3, lambda i, q: body(q), x, checkpoints=checkpoints).sum()

    found = MODES[mode](lambda x: run(x, by_autograd, 1))(X)
    assert_close(found, MODES[mode](lambda x: run(x, by_func, None))(X))


def test_a_later_step_may_be_the_first_to_ask():
    seen = list[int]()

    def run(x: Tensor) -> Tensor:
        def body(i: Tensor, q: Tensor) -> Tensor:
            q = q * (1 + torch.rand((), dtype=DOUBLE))
            return q + by_autograd(q, W) if int(i) == 2 else q

        watch = dynloop.on_step(lambda i, q: seen.append(int(i)))
        return dynloop.fori_loop(0, 4, body, x, checkpoints=1, observe=watch)

    x = X.clone().requires_grad_()
    torch.manual_seed(3)
    y = run(x)
    torch.manual_seed(3)
    q = x
    for i in range(4):
        q = q * (1 + torch.rand((), dtype=DOUBLE))
        q = q + by_func(q, W) if i == 2 else q
    assert torch.equal(y, q)
    assert seen == [0, 1, 2, 3]
    assert_close(torch.autograd.grad(y.sum(), x)[0], torch.autograd.grad(q.sum(), x)[0])


def test_a_gradient_by_a_row_of_xs():
    def run(w: Tensor, rows: Tensor, f: Any) -> Tensor:
        return dynloop.scan(lambda c, x: (c + f(x, w).sum(), None), torch.zeros((), dtype=DOUBLE), rows)[0]

    rows = torch.stack([X, 2 * X])
    found, wanted = [], []
    for out, f in ((found, by_autograd), (wanted, by_func)):
        w = W.clone().requires_grad_()
        out += torch.autograd.grad(run(w, rows, f), w)
    assert_close(found, wanted)


def test_what_has_no_gradient_fails_as_in_the_plain_loop():
    x = X.clone().requires_grad_()
    body = lambda q: q - torch.autograd.grad(torch.ones((), dtype=DOUBLE), q)[0]
    with pytest.raises(RuntimeError, match="does not require grad"):
        dynloop.while_loop(lambda q: q.sum() < 9, body, x)
