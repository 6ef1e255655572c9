"""Claims about values: those of the Python loop around the same step."""

from typing import Any

import numpy as np
import pytest

from tests.dynloop.backends import Backend
from tests.dynloop.problems import W, X
from tests.oracles import unrolled


def newton(backend: Backend) -> tuple[Any, Any, Any]:
    """The square root of 2."""
    return lambda y: backend.xp.abs(y * y - 2) > 1e-12, lambda y: 0.5 * (y + 2 / y), backend.asarray(1)


def logistic(backend: Backend) -> tuple[Any, Any, Any]:
    """A chaotic map: one wrong bit early is another number at the end."""
    return lambda c: c[0] < 200, lambda c: (c[0] + 1, 3.99 * c[1] * (1 - c[1])), (0, backend.asarray(0.3))


def contraction(backend: Backend) -> tuple[Any, Any, Any]:
    """A vector that shrinks until it is small."""
    xp, w = backend.xp, backend.asarray(W)
    return lambda h: xp.sum(h**2) > 1e-6, lambda h: 0.8 * xp.sin(w @ h) + 0.3 * h, backend.asarray(X)


def collatz(backend: Backend) -> tuple[Any, Any, Any]:
    """Integers: 27 reaches 1 after 111 steps."""
    xp = backend.xp
    start = (backend.asarray(27, "int32"), backend.asarray(0, "int32"))
    return lambda c: c[0] != 1, lambda c: (xp.where(c[0] % 2 == 0, c[0] // 2, 3 * c[0] + 1), c[1] + 1), start


@pytest.mark.parametrize("make", [newton, logistic, contraction, collatz])
def test_value_is_that_of_the_python_loop_bit_for_bit(backend: Backend, make: Any):
    cond, body, init = make(backend)
    found = backend.value(lambda c: backend.while_loop(cond, body, c), init)
    expected = unrolled(cond, backend.step(body), init)
    pairs = zip(found, expected, strict=True) if isinstance(init, tuple) else [(found, expected)]
    assert all(np.array_equal(a, b) for a, b in pairs)


def test_known_values(backend: Backend):
    cond, body, init = newton(backend)
    assert abs(float(backend.value(lambda y: backend.while_loop(cond, body, y), init)) - 2**0.5) < 1e-12
    cond, body, init = collatz(backend)
    assert int(backend.value(lambda c: backend.while_loop(cond, body, c), init)[1]) == 111


@pytest.mark.parametrize("checkpoints", [None, 0, 1, "auto", "all"])
def test_checkpoints_change_no_value(backend: Backend, checkpoints: Any):
    def f(x: Any) -> Any:
        return backend.while_loop(lambda y: y < 10, lambda y: 2 * y, x, checkpoints=checkpoints)

    assert float(backend.value(f, backend.asarray(1.5))) == 12.0


def test_no_step_is_the_identity(backend: Backend):
    init = (backend.asarray([1.5, -0.0]), backend.asarray(3, "int32"), backend.asarray(True, "bool"))
    out = backend.value(lambda c: backend.while_loop(lambda c: c[1] < 0, lambda c: c, c), init)
    assert [np.asarray(x).tobytes() for x in out] == [np.asarray(x).tobytes() for x in init]
    assert [backend.dtype(x) for x in out] == [backend.dtype(x) for x in init]


def test_a_numpy_start_is_converted(backend: Backend):
    out = backend.while_loop(
        lambda c: c["i"] < 3, lambda c: {"i": c["i"] + 1, "x": c["x"] * 2}, {"i": 0, "x": np.ones(2)}
    )
    assert np.asarray(out["x"]).tolist() == [8, 8]
    assert int(out["i"]) == 3


@pytest.mark.parametrize("checkpoints", ["auto", 3])
def test_a_loop_inside_a_loop(backend: Backend, checkpoints: Any):
    """Sum of i * j for j < i < 6, both counted by loops."""

    def f() -> Any:
        def outer(c: Any) -> Any:
            i, total = c
            inner = backend.while_loop(
                lambda d: d[0] < i, lambda d: (d[0] + 1, d[1] + i * d[0]), (0, total), checkpoints=checkpoints
            )
            return i + 1, inner[1]

        start = (backend.asarray(0, "int64"), backend.asarray(0, "int64"))
        return backend.while_loop(lambda c: c[0] < 6, outer, start, checkpoints=checkpoints)[1]

    assert int(backend.value(f)) == sum(i * j for i in range(6) for j in range(i))


def test_a_loop_called_again_reads_what_its_functions_read_by_then(backend: Backend):
    limit = 10

    def f(x: Any) -> Any:
        return backend.while_loop(lambda y: y < limit, lambda y: y * factor, x)

    factor = backend.asarray(2.0)
    assert float(f(backend.asarray(1.0))) == 16.0
    factor, limit = backend.asarray(3.0), 100
    assert float(f(backend.asarray(1.0))) == 243.0
