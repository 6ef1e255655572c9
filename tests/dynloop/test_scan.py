"""Claims about `scan`: values, stacked ys and gradients of the Python loop over the rows, with and without `until`."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import adjoint
import dynloop
from dynloop import ArgumentError, ArgumentTypeError, BackendError, CarryError, StoppedBecause
from tests.closeness import assert_close
from tests.dynloop.backends import (
    CHECKPOINTS,
    JAX_EAGER,
    Backend,
    taking_turns,
    with_checkpoints,
    with_checkpoints_swapped,
)
from tests.dynloop.problems import W, X
from tests.oracles import scanned

ROWS = np.random.default_rng(5).normal(size=(6, 3))
LIMITS = (0.1, 1.2, 3.0, 99.0)
"""Stops before the first step, in between, and never."""


def filtered(run: Callable[..., Any], backend: Backend) -> Callable[..., Any]:
    """A recursion over the rows, all of its ys and its last state, as a function of (x, w, rows, limit)."""
    xp = backend.xp

    def f(x: Any, w: Any, rows: Any, limit: Any) -> Any:
        def step(c: Any, row: Any) -> Any:
            h, total = c
            h = xp.tanh(w @ h + row)
            return (h, total + xp.sum(h**2)), xp.sum(xp.sin(h) * row)

        (h, total), ys = run(step, (x, 0.5), rows, lambda c: c[1] >= limit)
        return xp.sum(h * backend.asarray([1, 2, 3])) + total**2 + xp.sum(xp.cos(ys) * ys) * ys[2]

    return f


def ours(backend: Backend, **options: Any) -> Callable[..., Any]:
    return filtered(lambda step, init, rows, until: backend.scan(step, init, rows, until=until, **options), backend)


def without_until(backend: Backend, **options: Any) -> Callable[..., Any]:
    return filtered(lambda step, init, rows, until: backend.scan(step, init, rows, **options), backend)


def oracle(backend: Backend, *, reverse: bool = False) -> Callable[..., Any]:
    def run(step: Any, init: Any, rows: Any, until: Any) -> Any:
        carry, ys = scanned(step, init, list(rows), until, reverse=reverse)
        return carry, backend.xp.stack([backend.asarray(0.0) if y is None else y for y in ys])

    return filtered(run, backend)


@cache
def expected(limit: float, reverse: bool = False) -> Any:
    arguments = [JAX_EAGER.asarray(a) for a in (X, W, ROWS)]
    return JAX_EAGER.grad(oracle(JAX_EAGER, reverse=reverse), (0, 1, 2))(*arguments, limit)


# ---- gradients


@taking_turns("checkpoints,reverse", [*zip(CHECKPOINTS, [False, True] * 3, strict=False), (adjoint.Online(2, 2), True)])
def test_gradient_equals_unrolled(backend: Backend, checkpoints: Any, reverse: bool):
    limits = LIMITS if backend.name != "jax-eager" else LIMITS[1:2]
    gradient = backend.grad(ours(backend, checkpoints=checkpoints, reverse=reverse), (0, 1, 2))
    arguments = [backend.asarray(a) for a in (X, W, ROWS)]
    found = [gradient(*arguments, backend.asarray(limit)) for limit in limits]
    assert_close(found, [expected(limit, reverse) for limit in limits])


@taking_turns("checkpoints", [1, 2, "auto", adjoint.Binomial(2), "all"])
def test_gradient_of_a_scan_of_all_rows_equals_unrolled(backend: Backend, checkpoints: Any):
    gradient = backend.grad(without_until(backend, checkpoints=checkpoints), (0, 1, 2))
    found = gradient(*(backend.asarray(a) for a in (X, W, ROWS)), backend.asarray(0.0))
    assert_close(found, expected(np.inf))


@pytest.mark.parametrize("reverse", [False, True])
def test_value_and_tangent_equal_unrolled(backend: Backend, reverse: bool):
    primals = tuple(backend.asarray(a) for a in (X, W, ROWS))
    f, g = ours(backend, reverse=reverse), oracle(JAX_EAGER, reverse=reverse)
    found = backend.jvp(lambda *args: f(*args, 1.2), primals, primals)
    given = tuple(JAX_EAGER.asarray(a) for a in (X, W, ROWS))
    assert_close(found, JAX_EAGER.jvp(lambda *args: g(*args, 1.2), given, given))


@taking_turns("order", ["forward over reverse", "reverse over reverse"])
def test_second_derivative_equals_unrolled(backend: Backend, order: str):
    def hessian_vector(b: Backend, f: Callable[..., Any]) -> Any:
        x, w, rows = (b.asarray(a) for a in (X, W, ROWS))
        slope = b.eager.grad(lambda rows: f(x, w, rows, 1.2))
        if order == "forward over reverse":
            return b.jvp(slope, (rows,), (rows,))[1]
        return b.grad(lambda a: b.xp.sum(slope(a) * rows))(rows)

    assert_close(hessian_vector(backend, ours(backend, checkpoints=2)), hessian_vector(JAX_EAGER, oracle(JAX_EAGER)))


# ---- stopping early


def running_sum(total: Any, x: Any) -> Any:
    return total + x, total + x


def at_least_ten(total: Any) -> Any:
    return total >= 10


@with_checkpoints_swapped
def test_a_running_sum_that_stops_early(backend: Backend, checkpoints: Any):
    # jax-ml/jax#13062, #2139, #18664; pytorch/pytorch#188349.
    def f(xs: Any) -> Any:
        return backend.scan(
            running_sum, backend.asarray(0.0), xs, until=at_least_ten, checkpoints=checkpoints, full_output=True
        )

    xs = backend.asarray(range(1, 9))
    result = backend.value(f, xs)
    assert (float(result.carry), result.ys.tolist()) == (10.0, [1.0, 3.0, 6.0, 10.0, 0.0, 0.0, 0.0, 0.0])
    assert (int(result.steps), result.stopped_because) == (4, StoppedBecause.CONDITION)
    assert backend.grad(lambda xs: f(xs).carry)(xs).tolist() == [1.0] * 4 + [0.0] * 4
    assert backend.grad(lambda xs: backend.xp.sum(f(xs).ys))(xs).tolist() == [4.0, 3.0, 2.0, 1.0] + [0.0] * 4


@taking_turns("reverse", [False, True])
def test_rows_past_the_stop_are_never_seen(backend: Backend, reverse: bool):
    """A root whose slope would be infinite, and a row that is not a number, lie behind the stop."""

    def f(x: Any, rows: Any) -> Any:
        step = lambda c, r: (c - r, backend.xp.sqrt(c) * r)
        carry, ys = backend.scan(step, x, rows, until=lambda c: c <= 0, reverse=reverse, checkpoints=2)
        return carry + backend.xp.sum(ys)

    rows = [3.0, 1.0, np.nan, -np.inf]
    # sqrt(4) 3 + sqrt(1) 1, and 4 - 3 - 1.
    for_x, for_rows = backend.grad(f, (0, 1))(backend.asarray(4.0), backend.asarray(rows[::-1] if reverse else rows))
    slopes = np.asarray([2 - 1 - 0.5, 1 - 1.0, 0.0, 0.0])
    assert_close((for_x, for_rows), (1 + 3 / 4 + 1 / 2, slopes[::-1] if reverse else slopes))


@with_checkpoints
def test_true_at_the_start_is_no_step(backend: Backend, checkpoints: Any):
    def f(x: Any, rows: Any) -> Any:
        carry, ys = backend.scan(lambda c, r: (c * r, c / r), x, rows, until=lambda c: c > 10, checkpoints=checkpoints)
        return carry + 3 * backend.xp.sum(ys)

    x, rows = backend.asarray(20.0), backend.asarray([0.0, np.nan])
    assert float(backend.value(f, x, rows)) == 20.0
    assert_close(backend.grad(f, (0, 1))(x, rows), (1.0, np.zeros(2)))


@pytest.mark.parametrize("stops", [True, False])
def test_an_until_that_is_constant(backend: Backend, stops: bool):
    # pytorch/pytorch#195970.
    def f(x: Any, rows: Any) -> Any:
        return backend.scan(lambda c, r: (c * r, c), x, rows, until=lambda c: stops, checkpoints=1)

    x, rows = backend.asarray(5.0), backend.asarray([2.0, 3.0])
    carry, ys = backend.value(f, x, rows)
    assert (float(carry), ys.tolist()) == ((5.0, [0.0, 0.0]) if stops else (30.0, [5.0, 10.0]))
    assert float(backend.grad(lambda x: f(x, rows)[0])(x)) == (1.0 if stops else 6.0)


def test_never_true_uses_every_row(backend: Backend):
    def f(rows: Any, **options: Any) -> Any:
        return backend.scan(running_sum, backend.asarray(0.0), rows, full_output=True, **options)

    rows = backend.asarray([1.0, 2.0, 4.0])
    results = [backend.value(f, rows), backend.value(lambda r: f(r, until=lambda c: c < 0), rows)]
    assert [(r.ys.tolist(), int(r.steps), r.stopped_because) for r in results] == [
        ([1.0, 3.0, 7.0], 3, StoppedBecause.CONDITION)
    ] * 2


# ---- trees, rows and lengths


def test_trees_of_rows_and_ys(backend: Backend):
    """Numbers, booleans, integers, None, and a y that is the row itself."""

    def f(xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            a, (b, nothing) = x["a"], x["b"]
            assert nothing is None
            ys = {"sum": c["t"] + a[0], "none": None, "flag": b > 2, "one": 1, "row": x, "pair": (c["n"], a)}
            return {"t": c["t"] + a[1] * b, "n": c["n"] + 1}, ys

        return backend.scan(step, {"t": backend.asarray(0.5), "n": backend.asarray(0, "int32")}, xs)

    xs = {"a": backend.asarray([[1, 2], [3, 4], [5, 6]]), "b": (backend.asarray([1, 2, 3], "int32"), None)}
    carry, ys = backend.value(f, xs)
    assert (float(carry["t"]), int(carry["n"])) == (0.5 + 2 + 8 + 18, 3)
    assert (ys["sum"].tolist(), ys["none"], ys["one"].tolist()) == ([1.5, 5.5, 15.5], None, [1, 1, 1])
    assert (ys["flag"].tolist(), backend.dtype(ys["flag"])) == ([False, False, True], "bool")
    assert (ys["pair"][0].tolist(), backend.dtype(ys["pair"][0])) == ([0, 1, 2], "int32")
    assert_close((ys["row"]["a"], ys["row"]["b"][0], ys["pair"][1]), (xs["a"], xs["b"][0], xs["a"]))
    assert ys["row"]["b"][1] is None


def test_a_length_is_enough(backend: Backend):
    def f(x: Any) -> Any:
        def step(c: Any, nothing: Any) -> Any:
            assert nothing is None
            return c * x, c

        return backend.scan(step, backend.asarray(1.0), length=4, checkpoints=2)

    x = backend.asarray(3.0)
    carry, ys = backend.value(f, x)
    assert (float(carry), ys.tolist()) == (81.0, [1.0, 3.0, 9.0, 27.0])
    assert_close(backend.grad(lambda x: f(x)[0] + backend.xp.sum(f(x)[1]))(x), 108 + 1 + 6 + 27.0)


@pytest.mark.parametrize("stops", [False, True])
def test_no_rows_are_no_steps(backend: Backend, stops: bool):
    def f(x: Any, rows: Any) -> Any:
        until = (lambda c: c > 10) if stops else None
        return backend.scan(lambda c, r: (c * r[0], {"y": c, "n": 1}), x, rows, until=until, full_output=True)

    x, rows = backend.asarray(5.0), backend.asarray(np.zeros((0, 2)))
    result = backend.value(f, x, rows)
    assert (float(result.carry), int(result.steps), result.stopped_because) == (5.0, 0, StoppedBecause.CONDITION)
    assert (result.ys["y"].shape, result.ys["n"].shape, backend.dtype(result.ys["y"])) == ((0,), (0,), "float64")
    for_x, for_rows = backend.grad(lambda x, r: f(x, r).carry ** 2, (0, 1))(x, rows)
    assert (float(for_x), for_rows.shape) == (10.0, (0, 2))


def test_numbers_take_the_dtype_that_the_step_gives_them(backend: Backend):
    carry, ys = backend.value(lambda xs: backend.scan(running_sum, 0, xs), backend.asarray([0.5, 1.0]))
    assert (float(carry), ys.tolist(), backend.dtype(carry)) == (1.5, [0.5, 1.5], "float64")


def test_rows_decide_the_library_and_numpy_is_converted(backend: Backend):
    carry, ys = backend.scan(running_sum, np.float64(1.0), np.ones(3))
    assert (float(carry), ys.tolist()) == (4.0, [2.0, 3.0, 4.0])


# ---- the bound


def summed(backend: Backend, **options: Any) -> Any:
    return lambda xs: backend.scan(running_sum, backend.asarray(0.0), xs, full_output=True, **options)


def test_fewer_steps_allowed_than_rows_raise(backend: Backend):
    f, xs = summed(backend, max_steps=3), backend.asarray(range(1, 9))
    with pytest.raises(Exception, match="scan: max_steps=3 was reached"):
        float(backend.value(f, xs).carry)
    with pytest.raises(Exception, match="scan: max_steps=3 was reached"):
        backend.grad(lambda xs: f(xs).carry)(xs).tolist()
    with pytest.raises(Exception, match="scan: max_steps=3 was reached"):
        backend.value(lambda xs: f(xs).ys, xs).tolist()


@pytest.mark.parametrize("bound", [4, 8, 100])
def test_a_bound_that_is_not_needed_changes_nothing(backend: Backend, bound: int):
    xs = backend.asarray(range(1, 9))
    result = backend.value(summed(backend, max_steps=bound, until=at_least_ten), xs)
    assert (float(result.carry), int(result.steps), result.stopped_because) == (10.0, 4, StoppedBecause.CONDITION)


@taking_turns("option", ["stop", "nan"])
def test_the_bound_cuts_off(backend: Backend, option: str):
    f = summed(backend, max_steps=3, on_max_steps=option, until=at_least_ten, checkpoints=2)
    xs = backend.asarray(range(1, 9))
    result, slope = backend.value(f, xs), backend.grad(lambda xs: f(xs).carry)(xs)
    assert (int(result.steps), result.stopped_because) == (3, StoppedBecause.BOUND)
    if option == "stop":
        assert (float(result.carry), result.ys.tolist()) == (6.0, [1.0, 3.0, 6.0] + [0.0] * 5)
        assert slope.tolist() == [1.0] * 3 + [0.0] * 5
    else:
        assert np.isnan(float(result.carry))
        assert np.isnan(np.asarray(result.ys)).all()
        assert np.isnan(np.asarray(slope)[:3]).all()


def test_a_nan_that_until_reads_is_reported(backend: Backend):
    result = backend.value(summed(backend, until=lambda t: t != t), backend.asarray([1.0, np.nan, 2.0]))
    assert (int(result.steps), result.stopped_because) == (2, StoppedBecause.NONFINITE)


# ---- bad input

BAD_INPUT: list[tuple[type[Exception], str, dict[str, Any]]] = [
    (ArgumentError, "xs has 3 rows, length=4", {"length": 4}),
    (ArgumentError, "xs['a'] has 3 rows, xs['b'] has 2 rows", {"xs": {"a": np.ones(3), "b": np.ones((2, 5))}}),
    (ArgumentError, "xs['b'] is a scalar; every leaf of xs needs a first axis", {"xs": {"a": np.ones(3), "b": 2.0}}),
    (ArgumentError, "nothing tells the number of steps at most; give xs, or length=", {"xs": None}),
    (ArgumentError, "length must be between 0 and 2**31 - 1; got -1", {"xs": None, "length": -1}),
    (ArgumentTypeError, "length must be a Python int, since it sizes what is stacked; got 2.5", {"length": 2.5}),
    (ArgumentTypeError, "length must be a Python int, since it sizes what is stacked; got True", {"length": True}),
    (ArgumentTypeError, "step must return a pair, the carry and what is stacked", {"step": lambda c, x: c + x}),
    (ArgumentTypeError, "step must be a function of the carry and a row of xs", {"step": None}),
    (ArgumentTypeError, "until must be a function of the carry", {"until": True}),
    (ArgumentTypeError, "until must return a boolean scalar; got float64[]", {"until": lambda c: c}),
    (ArgumentError, "Binomial", {"until": lambda c: c > 2, "checkpoints": adjoint.Binomial(2)}),
    (CarryError, "y['k'] in what step returned is str ('text')", {"step": lambda c, x: (c, {"k": "text"})}),
    (CarryError, "xs[0] in xs is str ('text')", {"xs": ["text"]}),
    (CarryError, "step must return a carry of the same structure as init", {"step": lambda c, x: ((c, x), x)}),
    (CarryError, "carry is float64[] before a step and float64[2] after it", {"xs": np.ones((3, 2))}),
]


@pytest.mark.parametrize(("error", "part", "change"), BAD_INPUT, ids=[part for _, part, _ in BAD_INPUT])
def test_bad_input_is_refused(backend: Backend, error: type[Exception], part: str, change: dict[str, Any]):
    given = {"step": running_sum, "init": backend.asarray(0.0), "xs": np.ones(3)} | change
    with pytest.raises(error) as caught:
        backend.value(lambda: backend.scan(**given))
    assert str(caught.value).startswith("scan: ")
    assert part in str(caught.value)


def test_no_array_that_tells_the_library():
    with pytest.raises(BackendError, match="scan: no array in init or xs tells which library runs it"):
        dynloop.scan(running_sum, 0.0, np.ones(3))
