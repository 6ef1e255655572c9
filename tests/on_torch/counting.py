"""A loop that records each evaluation of its body while a gradient runs."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

START = 0.7


class Evaluation(NamedTuple):
    """One run of the body: the step's index, and whether it was taped for its adjoint."""

    step: int
    is_taped: bool


def expected_gradient(steps: int) -> float:
    """The product of the derivatives of y -> sin(y) / 2 + 0.1 along the way."""
    y, product = START, 1.0
    for _ in range(steps):
        y, product = 0.5 * math.sin(y) + 0.1, product * 0.5 * math.cos(y)
    return product


def counted_gradient(run: Callable[[Any, Tensor], Tensor]) -> list[Evaluation]:
    """What the gradient of a loop evaluates, in order; run: takes the step, a function of (i, y), and the start."""
    seen: list[Evaluation] = []

    def step(i: Any, y: Tensor) -> Tensor:
        seen.append(Evaluation(int(i), y.requires_grad))
        return 0.5 * torch.sin(y) + 0.1

    x = torch.tensor(START, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(run(step, x), x)
    steps = 1 + max((e.step for e in seen), default=-1)
    assert math.isclose(float(slope), expected_gradient(steps), rel_tol=1e-12)
    return seen
