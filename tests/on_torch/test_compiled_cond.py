"""`dynloop.cond` under PyTorch's own compiler, where what the gradient has saved may be given up for other results."""

import pytest
import torch
from torch import Tensor

import dynloop
from tests.on_torch.compiled import assert_close, compiled, gradients, start


def around(x: Tensor, limit: Tensor) -> Tensor:
    """What both branches close over, take, return as they got it, and use twice is used after them too."""
    h = torch.exp(x) * x
    y, same = dynloop.cond(
        h.sum() > limit, lambda x, h: (torch.sin(h) * x, h), lambda x, g: (h * x * g, torch.cos(g)), x, h
    )
    return y * same * h + torch.tanh(y)


@pytest.mark.parametrize("limit", [-100.0, 100.0], ids=["true", "false"])
def test_a_gradient_through_cond_equals_that_of_eager(limit: float) -> None:
    x, bound = start(6), torch.tensor(limit, dtype=torch.float64)
    assert_close(gradients(compiled(around, "inductor")(x, bound), x), gradients(around(x, bound), x))
