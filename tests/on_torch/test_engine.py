"""Claims about PyTorch itself: what this backend asks of its automatic differentiation is there, and means the same."""

import sys
from typing import Any

import pytest
import torch

from dynloop import BackendError
from dynloop.on_torch import engine
from tests.user_process import run_python


def test_numbers_of_nodes_grow():
    w = torch.ones(2, requires_grad=True)
    before = engine.next_sequence_number()
    y = w * 2
    z = y + 1
    numbers = [engine.sequence_number(x.grad_fn) for x in (y, z)]
    assert before == numbers[0] < numbers[1] < engine.next_sequence_number()


def test_a_node_of_a_leaf_tells_the_leaf():
    w = torch.ones(2, requires_grad=True)
    y = (w * 2).grad_fn
    assert y is not None
    node = y.next_functions[0][0]
    assert engine.sequence_number(node) == engine.OF_LEAVES
    assert engine.variable_of(node) is w
    assert engine.variable_of(y) is None


def test_a_backward_pass_tells_whether_its_graph_is_kept():
    seen = []

    class Ask(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            seen.append(engine.is_graph_kept())
            return cotangents[0]

    y = Ask.apply(torch.ones((), requires_grad=True))
    torch.autograd.grad(y, [y.grad_fn.next_functions[0][0].variable], retain_graph=True)
    y.backward()
    assert seen == [True, False]


def test_transformations_are_seen():
    depths = []

    def f(x: torch.Tensor) -> torch.Tensor:
        depths.append((engine.is_transforming(), engine.depth(), engine.is_wrapped(x), engine.is_at_hand(x)))
        return x.sum()

    f(torch.ones(2))
    torch.vmap(torch.func.grad(f))(torch.ones(2, 2))
    assert depths == [(False, 0, False, True), (True, 2, True, False)]


def test_a_change_in_place_can_be_kept_quiet():
    x = torch.ones(2)
    before = x._version
    with engine.keeping_version(x):
        x.add_(1)
    assert x._version == before


def test_forward_mode_warns_of_nothing():
    code = "import torch, dynloop; x = torch.ones(2, requires_grad=True)\n"
    code += "y = dynloop.fori_loop(0, 3, lambda i, y: y * y, x).sum()\n"
    code += "(g,) = torch.autograd.grad(y, x, create_graph=True); print(torch.autograd.grad(g.sum(), x)[0].tolist())"
    assert run_python("-c", code).strip() == "[56.0, 56.0]"


def test_another_torch_is_told_at_import(monkeypatch: pytest.MonkeyPatch):
    source = engine.__spec__
    assert source is not None
    assert source.loader is not None
    monkeypatch.delattr("torch._C._functorch.unwrap_if_dead")
    monkeypatch.delitem(sys.modules, "dynloop.on_torch.engine")
    fresh = type(sys)("dynloop.on_torch.engine")
    with pytest.raises(BackendError, match=r"unwrap_if_dead.*works with torch 2\.13"):
        source.loader.exec_module(fresh)
