"""Inductor's C++ programs, which copy nothing of a loop without a step: results and gradients are right there too."""

from typing import Any

import torch
from torch import Tensor

import dynloop
from tests.on_torch import compiled as c

CPP: Any = {"options": {"cpp_wrapper": True}}


def test_the_result_of_a_loop_without_a_step_is_not_written_over() -> None:
    def f(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        loop = lambda y: dynloop.while_loop(lambda k: k[0] < n, lambda k: (k[0] + 1, k[1].sin()), (0, y))[1]
        # What follows a loop may use the memory of what went into it, which is what comes out of it without a step.
        return loop(2 * x), torch.mm(torch.mm(x + 1, x), x).sum(), loop(x)

    x = torch.rand(4, 4)
    with torch.no_grad():
        compiled = c.compiled(f, "inductor", **CPP)
        for n in (0, 2):
            found = compiled(x, torch.tensor(n))
            for one, other in zip(found, f(x, torch.tensor(n)), strict=True):
                torch.testing.assert_close(one, other)
        (*_, unchanged) = compiled(x, torch.tensor(0))
        before = unchanged.clone()
        x.zero_()
    # The caller's tensor is not what the program returns.
    assert torch.equal(unchanged, before)


def test_gradients_through_runs_without_a_step_equal_unrolled() -> None:
    x, w = c.start(4), c.weights(4, 4)
    step = lambda x: torch.tanh(w @ x) + 0.1 * x

    def loop(n: Tensor) -> Tensor:
        return dynloop.while_loop(lambda k: k[0] < n, lambda k: (k[0] + 1, step(k[1])), (0, x), checkpoints=2)[1]

    f = c.compiled(loop, "inductor", **CPP)
    for n in (0, 1, 5, 17):
        y = x
        for _ in range(n):
            y = step(y)
        c.assert_close(c.gradients(f(torch.tensor(n)), x, w), c.gradients(y, x, w))
