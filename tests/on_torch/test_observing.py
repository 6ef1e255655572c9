"""Claims about observers: each real step is told once, and what a gradient runs again is checked, not told."""

import itertools
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

import dynloop
from dynloop import NonFiniteError


def test_each_real_step_is_told_once_with_numpy_arrays():
    told: list[Any] = []
    watch = dynloop.on_step(lambda i, c: told.append((i, type(c["y"]).__name__, float(c["y"]), str(c["b"].dtype))))
    x = torch.tensor(1.5, requires_grad=True)
    body = lambda c: {"y": c["y"] * c["y"], "b": c["b"]}
    init = {"y": x, "b": torch.zeros(2, dtype=torch.bfloat16)}
    out = dynloop.while_loop(lambda c: c["y"] < 10, body, init, checkpoints=1, observe=watch)
    out["y"].backward()
    assert told == [(i, "ndarray", 1.5 ** (2 ** (i + 1)), "float32") for i in range(3)]


@pytest.mark.parametrize("is_debugging", [False, True])
def test_the_first_nan_is_an_error_that_names_step_and_leaf(is_debugging: bool):
    def run() -> Any:
        body = lambda c: {"n": c["n"] - 1, "x": torch.sqrt(c["n"])}
        init = {"n": torch.tensor(1.0), "x": torch.tensor(0.0)}
        return dynloop.while_loop(lambda c: c["n"] > -5, body, init, observe=dynloop.watch_nan())

    with dynloop.debug() if is_debugging else nullcontext(), pytest.raises(NonFiniteError) as caught:
        run()
    assert "step 2 made carry['x'] NaN" in str(caught.value)


@pytest.mark.parametrize("checkpoints", [1, 3, "auto"])
def test_verify_reports_no_drift_where_steps_repeat(checkpoints: Any):
    reports: list[float] = []
    x = torch.tensor(0.3, requires_grad=True)
    observe = dynloop.verify(reports.append)
    body = lambda c: (c[0] + 1, torch.sin(c[1]) * 1.1)
    dynloop.while_loop(lambda c: c[0] < 9, body, (0, x), checkpoints=checkpoints, observe=observe)[1].backward()
    assert reports == [0.0]


@pytest.mark.parametrize("take", [torch.func.grad, torch.func.hessian])
def test_verify_reports_once_for_each_reversal(take: Any):
    reports: list[float] = []
    observe = dynloop.verify(reports.append)
    body = lambda c: (c[0] + 1, torch.sin(c[1]) * 1.1)
    f = lambda x: dynloop.while_loop(lambda c: c[0] < 9, body, (0, x), checkpoints=2, observe=observe)[1]
    take(f)(torch.tensor(0.3))
    assert reports == [0.0]


class Unsteady:
    """A body that is no function of its carry: what it does depends on how often it has run, as an iterator counts."""

    def __init__(self, changes_integers: bool) -> None:
        self.numbers = itertools.count(1)
        self.changes_integers = changes_integers

    def __call__(self, c: Any) -> Any:
        calls = next(self.numbers)
        return c[0] + 1, c[1] * (1 + 0.1 * calls), c[2] + (calls if self.changes_integers else 1)


def unsteady(changes_integers: bool, report: Any) -> Tensor:
    start = (0, torch.tensor(1.0, requires_grad=True), torch.tensor(0))
    observe = dynloop.verify(report)
    return dynloop.while_loop(lambda c: c[0] < 6, Unsteady(changes_integers), start, checkpoints=1, observe=observe)[1]


def test_verify_finds_a_body_that_does_not_repeat():
    reports: list[float] = []
    unsteady(False, reports.append).backward()
    assert reports[0] > 0.1
    with pytest.raises(RuntimeError, match="an integer or boolean leaf of a state that the reverse sweep used differs"):
        unsteady(True, reports.append).backward()
