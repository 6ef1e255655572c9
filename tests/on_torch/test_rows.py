"""Claims about what a scan reads and stacks, row by row, and about the step that tells the shapes where none runs."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dynloop

DOUBLE = torch.float64
ONE = torch.tensor(1.0, dtype=DOUBLE)


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_step_that_stacks_nothing_runs_no_more_often_than_it_should(is_recorded: bool):
    seen: list[Tensor] = []

    def step(carry: Tensor, row: None) -> tuple[Tensor, None]:
        seen.append(carry)
        return carry + float(carry.detach().numpy()), None

    with torch.set_grad_enabled(is_recorded):
        assert float(dynloop.scan(step, ONE, None, length=3)[0].detach()) == 8.0
    assert len(seen) == 3


def test_a_scan_of_no_steps_moves_nothing():
    norm, count = nn.BatchNorm1d(1).double(), torch.tensor(0)
    torch.manual_seed(0)

    def step(carry: Tensor, row: None) -> tuple[Tensor, Tensor]:
        count.add_(1)
        norm.mean = carry.mean()
        return norm(carry), carry * torch.rand(())

    norm.mean = ONE
    dynloop.scan(step, torch.ones(4, 1, dtype=DOUBLE), None, length=0)
    assert (int(count), int(norm.num_batches_tracked or 0), norm.mean is ONE) == (0, 0, True)
    drawn = torch.rand(())
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(()))


def test_a_row_changed_in_place_is_refused():
    with pytest.raises(dynloop.CarryError, match="step changed x, a row of xs, in place"):
        dynloop.scan(lambda c, x: (c + x.mul_(2), None), ONE, torch.ones(3, dtype=DOUBLE))


@pytest.mark.parametrize("later", [torch.zeros(()), torch.zeros(2, dtype=DOUBLE)], ids=["dtype", "shape"])
def test_what_is_stacked_stays_the_same(later: Tensor):
    def step(carry: Tensor, row: Tensor) -> tuple[Tensor, Any]:
        return carry + 1, {"a": carry if carry < 2 else later}

    with pytest.raises(TypeError, match=r"y\['a'\] was float64\[\] and is"):
        dynloop.scan(step, ONE, torch.ones(3))


def test_numbers_that_take_another_dtype_draw_and_move_once():
    generator, count = torch.Generator().manual_seed(0), torch.tensor(0.0)

    def body(c: Any) -> Any:
        count.add_(1)
        return c[0] + 1, c[1] + torch.rand((), generator=generator, dtype=DOUBLE)

    total = dynloop.while_loop(lambda c: c[0] < 3, body, (0, 0.0), backend="torch")[1]
    other = torch.Generator().manual_seed(0)
    expected = sum(torch.rand((), generator=other, dtype=DOUBLE) for _ in range(3))
    torch.testing.assert_close(total, torch.as_tensor(expected))
    assert float(count) == 3
