"""Claims from public reports of loops in PyTorch that came out wrong; what every library shares is in tests/dynloop."""

from typing import Any

import pytest
import torch
from torch import nn

import dynloop
from dynloop import ArgumentTypeError, CarryError
from tests.closeness import assert_close

each_checkpoints = pytest.mark.parametrize("checkpoints", [1, 2, 3, "auto", "all"])


def loop(cond: Any, body: Any, init: Any, checkpoints: Any) -> Any:
    return dynloop.while_loop(cond, body, init, checkpoints=checkpoints, max_steps=64)


@each_checkpoints
@pytest.mark.parametrize("requires_grad", [False, True])
def test_an_accumulator_passes_its_gradient_whatever_its_start_requires(checkpoints: Any, requires_grad: bool):
    # pytorch/pytorch#160483, locuslab/torchdeq#8: dropped for a start that requires none.
    x = torch.tensor(3.0, requires_grad=True)
    first = torch.zeros((), requires_grad=requires_grad)
    body = lambda c: (c[0] + 1, c[1] + c[2], 2 * c[2])
    total = loop(lambda c: c[0] < 4, body, (torch.tensor(0), first, x), checkpoints)[1]
    assert float(torch.autograd.grad(total, x)[0]) == 15


@each_checkpoints
def test_only_the_parameters_of_a_module_require_a_gradient(checkpoints: Any):
    # locuslab/torchdeq#8, pytorch/pytorch#69027.
    lin = nn.Linear(2, 2).double()
    x = torch.ones(2, dtype=torch.float64)
    body = lambda c: (c[0] + 1, torch.tanh(lin(c[1])))
    out = loop(lambda c: c[0] < 3, body, (0, x), checkpoints)[1]
    found = torch.autograd.grad(out.sum(), list(lin.parameters()))
    y = x
    for _ in range(3):
        y = torch.tanh(lin(y))
    assert_close(list(found), list(torch.autograd.grad(y.sum(), list(lin.parameters()))))
    assert torch.equal(out, y)


def test_a_body_that_returns_bfloat16_for_float32_names_the_leaf():
    # pytorch/pytorch#141896.
    lin = nn.Linear(2, 2)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(CarryError) as caught:
        dynloop.while_loop(lambda c: c["v"].sum() < 9, lambda c: {"v": lin(c["v"])}, {"v": torch.zeros(1, 2)})
    assert "carry['v'] is float32[1, 2] before a step and bfloat16[1, 2] after it" in str(caught.value)
    assert ".to(torch.float32)" in str(caught.value)


@each_checkpoints
def test_one_tensor_carried_twice_captured_and_returned_unchanged(checkpoints: Any):
    # pytorch/pytorch#191686, #191582, #196005.
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    body = lambda c: (c[0] + 1, c[1] + x, c[2])
    _, v, same = loop(lambda c: c[0] < 2, body, (0, x, x), checkpoints)
    assert torch.autograd.grad((v + 2 * same).sum(), x)[0].tolist() == [5, 5]
    assert same.tolist() == x.tolist()
    assert same.data_ptr() != x.data_ptr()


def test_a_condition_of_one_entry_is_an_error_of_one_line():
    # pytorch/pytorch#145451.
    with pytest.raises(ArgumentTypeError, match=r"cond must return a boolean scalar; got bool\[1\]"):
        dynloop.while_loop(lambda v: v[:1] < 3, lambda v: v + 1, torch.zeros(2))


def test_a_loop_that_runs_no_step_returns_a_copy():
    # pytorch/pytorch#195970.
    x = torch.tensor([1.0, 2.0])
    for requires_grad in (False, True):
        out = dynloop.while_loop(lambda v: torch.tensor(False), lambda v: v, x.requires_grad_(requires_grad))
        assert out.data_ptr() != x.data_ptr()
        assert torch.equal(out, x)


@each_checkpoints
def test_a_buffer_written_at_an_index_of_the_carry(checkpoints: Any):
    # jax-ml/jax#17640 on PyTorch: a cell written by a copy.
    def body(c: Any) -> Any:
        i, cells, y = c
        cells = cells.clone()
        cells[i] = y
        return i + 1, cells, 2 * y

    x = torch.tensor(1.0, requires_grad=True)
    cells = loop(lambda c: c[0] < 4, body, (torch.tensor(0), torch.zeros(4), x), checkpoints)[1]
    assert cells.tolist() == [1, 2, 4, 8]
    assert float(torch.autograd.grad(cells.sum(), x)[0]) == 15
