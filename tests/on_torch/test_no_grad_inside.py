"""What a body computes under `torch.no_grad()` is a constant to every gradient of a gradient, as in the plain loop."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import dynloop
from tests.closeness import assert_close

DOUBLE = torch.float64
STEPS = 4


def scaled(y: Tensor, w: Tensor) -> Tensor:
    with torch.no_grad():
        scale = (y * w).cos()
    return torch.sin(y * w) * scale


def clamped(y: Tensor, w: Tensor) -> Tensor:
    z = torch.sin(y * w) * w
    with torch.no_grad():
        z.mul_(1.25)
    return z * y


def with_a_loop_in_it(y: Tensor, w: Tensor) -> Tensor:
    with torch.no_grad():
        scale = dynloop.fori_loop(0, 2, lambda i, z: torch.cos(z * w), y, checkpoints=2)
    return dynloop.fori_loop(0, 2, lambda i, z: torch.sin(z * w) * scale, y, checkpoints=2)


def plain_with_a_loop_in_it(y: Tensor, w: Tensor) -> Tensor:
    with torch.no_grad():
        scale = torch.cos(torch.cos(y * w) * w)
    return torch.sin(torch.sin(y * w) * scale * w) * scale


def looped(body: Any, checkpoints: Any) -> Callable[..., Tensor]:
    return lambda x, w: dynloop.fori_loop(0, STEPS, lambda i, y: body(y, w), x, checkpoints=checkpoints).sum()


def unrolled(body: Any) -> Callable[..., Tensor]:
    def run(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(STEPS):
            x = body(x, w)
        return x.sum()

    return run


def derivatives(f: Callable[..., Tensor], order: int) -> list[Tensor]:
    """Gradients of sums of squares of gradients, so often."""
    inputs = [torch.tensor(v, dtype=DOUBLE, requires_grad=True) for v in ([0.7, 1.2], [1.3, 0.8])]
    value, found = f(*inputs), list[Tensor]()
    for _ in range(order):
        slopes = torch.autograd.grad(value, inputs, create_graph=True)
        found += [g.detach() for g in slopes]
        value = torch.stack([(g * g).sum() for g in slopes]).sum()
    return found


@pytest.mark.parametrize(("body", "plain"), [(scaled, scaled), (clamped, clamped)])
@pytest.mark.parametrize("checkpoints", [1, "auto"])
def test_second_derivatives_are_those_of_the_unrolled_loop(body: Any, plain: Any, checkpoints: Any):
    assert_close(derivatives(looped(body, checkpoints), 2), derivatives(unrolled(plain), 2))


def test_and_third_ones():
    assert_close(derivatives(looped(scaled, 2), 3), derivatives(unrolled(scaled), 3))


def test_a_loop_under_no_grad_is_a_constant_too():
    assert_close(derivatives(looped(with_a_loop_in_it, 2), 2), derivatives(unrolled(plain_with_a_loop_in_it), 2))


MODES = {
    "hessian": torch.func.hessian,
    "reverse over reverse": lambda f: torch.func.jacrev(torch.func.jacrev(f)),
    "forward over forward": lambda f: torch.func.jacfwd(torch.func.jacfwd(f)),
}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_transformations_take_it_as_in_the_unrolled_loop(mode: Any):
    x, w = torch.tensor([0.7, 1.2], dtype=DOUBLE), torch.tensor([1.3, 0.8], dtype=DOUBLE)
    assert_close(mode(lambda x: looped(scaled, 2)(x, w))(x), mode(lambda x: unrolled(scaled)(x, w))(x))


def test_a_third_derivative_that_could_not_be_told_is_refused():
    with pytest.raises(dynloop.DerivativeError, match="meets what a step computes under"):
        derivatives(looped(clamped, 2), 3)
