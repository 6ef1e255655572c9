"""Forward mode inside of torch.compile: tangents of loops are those of eager PyTorch, and have gradients again."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import dynloop
from tests.on_torch import compiled as c

CHECKPOINTS: Any = 2


def of_while(x: Tensor, w: Tensor) -> Tensor:
    """The condition reads what moves; a flag that has no tangent is carried beside."""
    cond = lambda k: (k["x"].square().sum() < 3) & (k["n"] < 9)
    body = lambda k: {"n": k["n"] + 1, "x": 1.1 * k["x"] + torch.tanh(w @ k["x"]), "even": ~k["even"]}
    start = {"n": torch.tensor(0), "x": x, "even": torch.tensor(True)}
    end = dynloop.while_loop(cond, body, start, checkpoints=CHECKPOINTS, max_steps=20)
    return end["x"] * end["n"]


def of_scan(x: Tensor, w: Tensor) -> Tensor:
    """Rows with a tangent, ys of two dtypes."""
    step = lambda k, row: (torch.sin(w @ k) + row, (k * row, k > 0))
    last, (ys, is_positive) = dynloop.scan(step, x, w * x, checkpoints=CHECKPOINTS)
    return last + (ys * is_positive).sum(0)


def of_fori(x: Tensor, w: Tensor) -> Tensor:
    """A loop in a loop."""
    inner = lambda i, y: dynloop.fori_loop(0, i, lambda j, z: torch.tanh(w @ z) + 0.1 * j * y, y)
    return dynloop.fori_loop(1, 4, inner, x, checkpoints=CHECKPOINTS)


@pytest.mark.parametrize("f", [of_while, of_scan, of_fori])
def test_tangents_and_their_gradients_equal_those_of_eager_pytorch(f: Callable[..., Tensor]) -> None:
    x, w, v = c.start(3), c.weights(3, 3), c.start(3).detach().cos()

    def pushed(x: Tensor, w: Tensor) -> Tensor:
        return torch.cat(torch.func.jvp(f, (x, w), (v, 0.3 * w)))

    found, expected = c.compiled(pushed)(x, w), pushed(x, w)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weight = torch.arange(6.0)
    c.assert_close(c.gradients(found * weight, x, w), c.gradients(expected * weight, x, w))


def test_tangents_of_tangents_equal_those_of_eager_pytorch() -> None:
    x, v = c.start(3).detach(), c.start(3).detach().cos()

    def f(x: Tensor) -> Tensor:
        w, body = torch.outer(x, x), lambda k: (k[0] + 1, torch.tanh(torch.outer(x, x) @ k[1]) + k[1])
        return w @ dynloop.while_loop(lambda k: k[0] < 5, body, (0, x), checkpoints=CHECKPOINTS)[1]

    twice = lambda x: torch.func.jvp(lambda x: torch.func.jvp(f, (x,), (v,))[1], (x,), (v,))[1]
    torch.testing.assert_close(c.compiled(twice)(x), twice(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("transformed", [torch.func.grad, torch.func.jacrev])
def test_reverse_mode_of_torch_func_says_what_to_do_instead(transformed: Any) -> None:
    x, w = c.start(3).detach(), c.weights(3, 3).detach()
    with pytest.raises(Exception, match=r"torch.func.grad.*inside torch.compile.*outside of torch.compile"):
        c.compiled(transformed(lambda x: of_fori(x, w).sum()))(x)
