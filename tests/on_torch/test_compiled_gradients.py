"""Gradients of compiled loops: equal to those of the unrolled loop, with the evaluations that the schedule says."""

from typing import Any

import pytest
import torch
from torch import Tensor

import adjoint
import dynloop
from tests.on_torch import compiled as c

STEPS = (0, 1, 2, 3, 5, 13, 200)


@pytest.mark.parametrize("checkpoints", [1, 2, 3, 16, adjoint.Online(2, leaf=4), "auto", "all"], ids=str)
def test_gradient_and_evaluations_are_those_of_the_schedule(checkpoints: Any) -> None:
    x, w = c.start(4), c.weights(4, 4)
    most = STEPS[-1] if checkpoints == "all" else None
    f = c.compiled(lambda n: c.loop(x, w, n, checkpoints, most))
    for n in STEPS:
        if n == STEPS[-1] and checkpoints == 1:
            continue  # A quadratic number of steps shows nothing more.
        c.RUNS[0] = 0
        found = c.gradients(f(torch.tensor(n)), x, w)
        runs = c.RUNS[0]
        c.assert_close(found, c.gradients(c.unrolled(x, w, n), x, w))
        schedule: Any = {"auto": adjoint.StoreAll(), "all": adjoint.StoreAll()}.get(str(checkpoints), checkpoints)
        schedule = adjoint.Online(schedule) if isinstance(schedule, int) else schedule
        assert runs == schedule.cost(n).evaluations, (checkpoints, n)


def test_a_known_number_of_steps_takes_the_least_evaluations() -> None:
    x, w = c.start(4), c.weights(4, 4)
    f = c.compiled(lambda n: dynloop.fori_loop(0, n, lambda i, x: c.step(x, w) + i * 0.01, x, checkpoints=3))
    for n in (0, 1, 4, 20, 100):
        y = x
        for i in range(n):
            y = c.step(y, w) + torch.tensor(i) * 0.01
        expected = c.gradients(y, x, w)
        c.RUNS[0] = 0
        found = c.gradients(f(torch.tensor(n)), x, w)
        assert c.RUNS[0] == adjoint.Binomial(3).cost(n).evaluations, n
        c.assert_close(found, expected)


@pytest.mark.parametrize("reverse", [False, True])
def test_gradient_of_a_scan_equals_unrolled(reverse: bool) -> None:
    x, w, rows = c.start(4), c.weights(4, 4), c.start(9, 4)

    def scan(bound: Tensor) -> Tensor:
        def one(k: Any, row: Any) -> Any:
            return (k[0] + 1, c.step(k[1], w) * row), {"y": k[1] * row}

        until = lambda k: k[0] >= bound
        (_, y), ys = dynloop.scan(one, (0, x), rows, until=until, checkpoints=2, reverse=reverse)
        return torch.cat([y[None], ys["y"]])

    f = c.compiled(scan)
    for n in (0, 3, 9):
        y, ys = x, [torch.zeros(4, dtype=torch.float64)] * 9
        for i in range(n):
            row = 8 - i if reverse else i
            ys[row] = y * rows[row]
            y = c.step(y, w) * rows[row]
        found = c.gradients(f(torch.tensor(n)), x, w, rows)
        c.assert_close(found, c.gradients(torch.stack([y, *ys]), x, w, rows))


def test_every_kind_of_carry_and_closure_has_its_gradient() -> None:
    """Swapped, doubled, unchanged, transposed, 0-d, complex and bfloat16 leaves; parameters and derived tensors."""
    x, w, layer = c.start(4), c.weights(4, 4), torch.nn.Linear(4, 4, dtype=torch.float64)

    def run(n: Tensor, while_loop: Any) -> Tensor:
        derived = (w * 2).sin()

        def body(k: Any) -> Any:
            low = (k["low"] * 0.5).to(torch.bfloat16)
            z = k["z"] * (0.5 + 1j) + k["a"]
            grid = torch.sin(k["grid"] @ derived).t().contiguous().t() + k["same"][0]
            a, b = k["b"], torch.tanh(layer(k["a"])) + x
            return k | {"i": k["i"] + 1, "a": a, "b": b, "low": low, "z": z, "grid": grid, "s": k["s"] * b[0]}

        init = {
            "i": torch.zeros((), dtype=torch.int32),
            "a": x,
            "b": x,
            "same": x,
            "flag": torch.tensor(True),
            "low": x.to(torch.bfloat16),
            "z": torch.complex(x, 2 * x),
            "grid": torch.outer(x, x).t(),
            "s": x[1],
        }
        k = while_loop(lambda k: (k["i"] < n) & k["flag"], body, init)
        real = [k["a"], k["b"], k["same"], k["low"].double(), k["z"].real, k["z"].imag, k["grid"].reshape(-1)]
        return torch.cat([*real, k["s"][None]])

    def python(cond: Any, body: Any, k: Any) -> Any:
        while cond(k):
            k = body(k)
        return k

    f = c.compiled(lambda n: run(n, lambda cond, body, init: dynloop.while_loop(cond, body, init, checkpoints=2)))
    for n in (0, 1, 7):
        given = (x, w, *layer.parameters())
        c.assert_close(c.gradients(f(torch.tensor(n)), *given), c.gradients(run(torch.tensor(n), python), *given))


def test_gradient_of_a_loop_in_a_loop_equals_unrolled() -> None:
    x, w = c.start(4), c.weights(4, 4)

    def nested(n: Tensor) -> Tensor:
        def body(k: Any) -> Any:
            i, h = k
            inner = lambda d: (d[0] + 1, torch.sin(w @ d[1]) + 0.1 * h)
            return i + 1, dynloop.while_loop(lambda d: d[0] < 2 + i % 3, inner, (0, h), checkpoints=2)[1]

        return dynloop.while_loop(lambda k: k[0] < n, body, (0, x), checkpoints=2)[1]

    f = c.compiled(nested)
    for n in (0, 1, 5):
        h = x
        for i in range(n):
            outer = h
            for _ in range(2 + i % 3):
                h = torch.sin(w @ h) + 0.1 * outer
        c.assert_close(c.gradients(f(torch.tensor(n)), x, w), c.gradients(h, x, w))


def test_cond_has_the_gradient_of_the_branch_taken() -> None:
    x, w = c.start(4), c.weights(4, 4)
    f = c.compiled(lambda p: dynloop.cond(p, lambda y: {"y": torch.tanh(w @ y)}, lambda y: {"y": y}, x)["y"])
    for p, expected in ((True, torch.tanh(w @ x)), (False, x * 1)):
        c.assert_close(c.gradients(f(torch.tensor(p)), x, w), c.gradients(expected, x, w))


@pytest.mark.parametrize("checkpoints", ["auto", 2])
def test_a_program_that_runs_op_by_op_has_the_same_gradient(checkpoints: Any) -> None:
    x, w, n = c.start(4), c.weights(4, 4), torch.tensor(7)
    f = c.compiled(lambda: c.loop(x, w, n, checkpoints), "eager")
    y, expected = f(), c.unrolled(x, w, 7)
    torch.testing.assert_close(y, expected)
    c.assert_close(c.gradients(y, x, w), c.gradients(expected, x, w))


def test_a_branch_may_read_a_tensor_that_is_carried_and_closed_over() -> None:
    x = c.start(3)

    def f(loop: Any, choose: Any) -> Tensor:
        body = lambda k: (k[0] + 1, choose(k[1].sum() > 0, lambda: k[1] * x, lambda: k[1] + x))
        return loop(lambda k: k[0] < 4, body, (torch.tensor(0), x))[1]

    def by_python(cond: Any, body: Any, carry: Any) -> Any:
        while cond(carry):
            carry = body(carry)
        return carry

    y = f(by_python, lambda pred, true, false: true() if pred else false())
    c.assert_close(c.gradients(c.compiled(lambda: f(dynloop.while_loop, dynloop.cond))(), x), c.gradients(y, x))
