"""What a compiled step draws at random, it draws again; and what cannot be had inside of torch.compile is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor

import dynloop
from tests.on_torch import compiled as c


def test_dropout_and_noise_repeat_in_recomputation() -> None:
    """The loop is linear in its start, so its value is the product of the start and the gradient."""
    x = c.start(6)

    def body(k: Any) -> Any:
        noise = torch.rand(6, dtype=torch.float64) + torch.randn_like(k[1]).abs()
        return k[0] + 1, torch.nn.functional.dropout(k[1], 0.3) * noise + k[1]

    f = c.compiled(lambda: dynloop.while_loop(lambda k: k[0] < 9, body, (0, x), checkpoints=1)[1].sum())
    first, second = f(), f()
    assert first != second
    for y in (first, second):
        (slope,) = torch.autograd.grad(y, x)
        torch.testing.assert_close(slope @ x, y, rtol=1e-12, atol=0)


@pytest.mark.parametrize("change", ["carry", "closure"])
def test_a_step_that_changes_something_in_place_is_refused(change: str) -> None:
    total = torch.zeros(4, dtype=torch.float64)

    def body(k: Any) -> Any:
        (k[1] if change == "carry" else total).add_(1)
        return k[0] + 1, k[1] * 2

    f = c.compiled(lambda x: dynloop.while_loop(lambda k: k[0] < 5, body, (0, x * 1))[1])
    with pytest.raises(Exception, match="in place, and a gradient may run it again"):
        f(c.start(4))


@pytest.mark.parametrize("transformation", ["grad", "vmap"])
def test_a_transformation_inside_of_the_compiled_function_is_refused(transformation: str) -> None:
    def loop(x: Tensor) -> Tensor:
        return dynloop.while_loop(lambda k: k[0] < 5, lambda k: (k[0] + 1, k[1].sin()), (0, x))[1].sum()

    f = c.compiled(getattr(torch.func, transformation)(loop))
    with pytest.raises(Exception, match=r"inside torch\.compile is not supported"):
        f(torch.ones(3, 2))
