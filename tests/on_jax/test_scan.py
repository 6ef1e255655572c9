"""Claims about `scan` on JAX: a transformation gives what it gives on `lax.scan`, or on a Python loop that stops."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import dynloop
from tests.closeness import assert_close
from tests.on_jax.programs import equations, operations, stablehlo
from tests.oracles import scanned

Scan = Callable[..., Any]
_RANDOM = np.random.default_rng(11)
W, X = jnp.asarray(_RANDOM.normal(size=(3, 3)) * 0.4), jnp.asarray([0.2, -0.4, 0.7])
ROWS = jnp.asarray(_RANDOM.normal(size=(5, 3)))
EVERYTHING = (0, 1, 2)


def by_dynloop(step: Any, init: Any, xs: Any, **options: Any) -> Any:
    return dynloop.scan(step, init, xs, checkpoints=2, **options)


def by_lax(step: Any, init: Any, xs: Any, **options: Any) -> Any:
    return lax.scan(step, init, xs, **options)


def recursion(scan: Scan, **options: Any) -> Callable[[Any, Any, Any], Any]:
    """A state, a counter that the step reads, and two ys that read the row."""

    def f(w: Any, x: Any, rows: Any) -> Any:
        def step(c: Any, row: Any) -> Any:
            h, i = c
            h = jnp.tanh(w @ h + row + 0.1 * i)
            return (h, i + 1), {"h": h * 2, "dot": jnp.sum(h * row)}

        (h, _), ys = scan(step, (x, 0), rows, **options)
        return jnp.sum(h) + jnp.sum(jnp.sin(ys["h"])) * ys["dot"][2] + ys["dot"][-1]

    return f


def slope(f: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient by the rows, times the rows."""
    return lambda w, x, rows: jnp.vdot(jax.grad(f, 2)(w, x, rows), rows)


def pushed(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: jax.jvp(f, args, args)[1]


MODES: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "value and gradient": lambda f: jax.value_and_grad(f, EVERYTHING),
    "jvp": lambda f: lambda *args: jax.jvp(f, args, args),
    "hessian": lambda f: jax.hessian(f, (1, 2)),
    "reverse over reverse": lambda f: jax.grad(slope(f), EVERYTHING),
    "reverse over forward": lambda f: jax.grad(pushed(f), EVERYTHING),
    "reverse over reverse over reverse": lambda f: jax.grad(slope(slope(f)), 1),
    "grad of checkpoint": lambda f: jax.grad(jax.checkpoint(f), EVERYTHING),
}


@pytest.mark.parametrize("name", MODES)
def test_every_mode_equals_that_of_lax(name: str):
    found = jax.jit(MODES[name](recursion(by_dynloop)))(W, X, ROWS)
    assert_close(found, jax.jit(MODES[name](recursion(by_lax)))(W, X, ROWS))


def test_a_scan_from_the_last_row_equals_that_of_lax():
    mode = MODES["value and gradient"]
    found = jax.jit(mode(recursion(by_dynloop, reverse=True)))(W, X, ROWS)
    assert_close(found, jax.jit(mode(recursion(by_lax, reverse=True)))(W, X, ROWS))


# ---- batches of scans that take all rows

XS, BATCH = jnp.stack([X, 2 * X, -X]), jnp.stack([ROWS, 2 * ROWS, -ROWS])
BATCHES: dict[str, tuple[Any, Any, Any]] = {"rows": (W, X, BATCH), "starts": (W, XS, ROWS), "both": (W, XS, BATCH)}


def vmapped(f: Callable[..., Any], given: Sequence[Any]) -> Callable[..., Any]:
    return jax.vmap(f, tuple(0 if x is XS or x is BATCH else None for x in given))


@pytest.mark.parametrize("name", ["rows", "both", pytest.param("starts", marks=pytest.mark.full)])
def test_the_gradient_of_each_lane_equals_that_of_lax(name: str):
    given = BATCHES[name]
    found, wanted = (vmapped(jax.grad(recursion(scan), EVERYTHING), given) for scan in (by_dynloop, by_lax))
    assert_close(jax.jit(found)(*given), jax.jit(wanted)(*given))


def test_the_gradient_of_a_batch_equals_that_of_lax():
    given = BATCHES["rows"]

    def gradient(scan: Scan) -> Any:
        return jax.grad(lambda *args: jnp.sum(vmapped(recursion(scan), given)(*args)), EVERYTHING)

    assert_close(jax.jit(gradient(by_dynloop))(*given), jax.jit(gradient(by_lax))(*given))


# ---- batches whose lanes stop by themselves

LIMITS = jnp.asarray([5.0, 6.0, 5.2, 9.0])
STARTS, SCALES = jnp.asarray([0.3, 9.0, 4.9, -3.0]), jnp.linspace(0.5, 1, 4)
ROW = jnp.asarray([1, 2, 3, 1.5, 0.7, 2])
# The second lane takes no step, and its rows have no logarithm.
LANE_ROWS = jnp.stack([ROW, -ROW, ROW * 1.2, ROW[::-1]])


def climbing(scan: Scan) -> Callable[..., Any]:
    """Past its limit the root of a step is not a number."""

    def f(start: Any, scale: Any, rows: Any, limit: Any) -> Any:
        step = lambda t, x: (t + jnp.log(x) + 1.5, jnp.sqrt(limit - t) * x * scale)
        t, ys = scan(step, start, rows, until=lambda t: t >= limit)
        return t**2 + jnp.sum(jnp.sin(ys)) * ys[2]

    return f


def in_python(step: Any, init: Any, rows: Any, until: Any) -> Any:
    carry, ys = scanned(step, init, list(rows), until)
    return carry, jnp.stack([jnp.zeros(()) if y is None else y for y in ys])


LANE_AXES = {"all per lane": (0, 0, 0, 0), "rows shared": (0, None, None, 0), "start shared": (None, 0, None, 0)}
LANE_MODES: dict[str, Callable[[Any], Any]] = {
    "gradient": lambda f: jax.value_and_grad(f, (0, 1, 2, 3)),
    "reverse over reverse": lambda f: jax.grad(lambda *args: sum(jax.grad(f, (0, 1))(*args)), (0, 1, 2)),
}


def lanes(axes: Sequence[Any]) -> list[Any]:
    each = (STARTS, SCALES, LANE_ROWS, LIMITS)
    shared = (jnp.asarray(0.3), jnp.asarray(0.7), ROW, jnp.asarray(5.0))
    return [s if axis is None else e for axis, e, s in zip(axes, each, shared, strict=True)]


@cache
def one_by_one(name: str, shared: str) -> Any:
    f, axes = LANE_MODES[name](climbing(in_python)), LANE_AXES[shared]
    alone = [f(*[a if axis is None else a[i] for a, axis in zip(lanes(axes), axes, strict=True)]) for i in range(4)]
    return jax.tree.map(lambda *xs: jnp.stack(xs), *alone)


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("gradient", "rows shared"),
        pytest.param("gradient", "start shared", marks=pytest.mark.full),
        ("reverse over reverse", "all per lane"),
    ],
)
def test_each_lane_that_stops_gives_what_it_gives_alone(name: str, axes: str):
    mode, axis = LANE_MODES[name], LANE_AXES[axes]
    assert_close(jax.jit(jax.vmap(mode(climbing(by_dynloop)), axis))(*lanes(axis)), one_by_one(name, axes))


def test_the_gradient_of_a_batch_that_stops_is_the_sum_over_its_lanes():
    axes = LANE_AXES["rows shared"]
    total = jax.grad(lambda *args: jnp.sum(jax.vmap(climbing(by_dynloop), axes)(*args)), (0, 1, 2, 3))
    alone = one_by_one("gradient", "rows shared")[1]
    expected = [jnp.sum(g, 0) if axis is None else g for g, axis in zip(alone, axes, strict=True)]
    assert_close(jax.jit(total)(*lanes(axes)), expected)


def test_lanes_report_their_own_steps():
    run = lambda start, limit: dynloop.scan(
        lambda t, x: (t + x, x), start, ROW, until=lambda t: t >= limit, full_output=True
    )
    result = jax.jit(jax.vmap(run))(STARTS, LIMITS)
    assert result.steps.tolist() == [3, 0, 1, 6]
    assert result.ys.shape == (4, 6)
    assert [int(jnp.sum(ys != 0)) for ys in result.ys] == [3, 0, 1, 6]


# ---- loops in loops, and rules of the user's own


def test_a_scan_in_a_scan_equals_that_of_lax():
    def nested(scan: Scan) -> Any:
        def f(w: Any, x: Any, rows: Any) -> Any:
            def outer(h: Any, row: Any) -> Any:
                h, ys = scan(lambda c, r: (jnp.sin(w @ c) * r + row, jnp.sum(c)), h, rows[:3])
                return h, jnp.sum(ys)

            h, ys = scan(outer, x, rows)
            return jnp.sum(h) + jnp.sum(ys**2)

        return jax.grad(f, EVERYTHING)

    assert_close(jax.jit(nested(by_dynloop))(W, X, ROWS), jax.jit(nested(by_lax))(W, X, ROWS))


def test_a_scan_in_a_while_loop_equals_that_of_lax_unrolled():
    def body(scan: Scan, w: Any, rows: Any) -> Any:
        return lambda h: scan(lambda c, r: (0.5 * jnp.sin(w @ c) + 0.1 * r, None), h, rows)[0]

    def looped(w: Any, x: Any, rows: Any) -> Any:
        step = body(by_dynloop, w, rows)
        run = dynloop.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, step(c[1])), (0, x), checkpoints=2)
        return jnp.sum(run[1] ** 2)

    def plain(w: Any, x: Any, rows: Any) -> Any:
        for _ in range(3):
            x = body(by_lax, w, rows)(x)
        return jnp.sum(x**2)

    found = jax.jit(jax.grad(looped, EVERYTHING))(W, X, ROWS)
    assert_close(found, jax.jit(jax.grad(plain, EVERYTHING))(W, X, ROWS))


@jax.custom_vjp
def _odd(x: jax.Array) -> jax.Array:
    return jnp.sin(x)


# Not the true derivative, so that only who uses the rule gets its value.
_odd.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (2 * jnp.cos(x) * g,))


@pytest.mark.parametrize("name", ["value and gradient", pytest.param("reverse over reverse", marks=pytest.mark.full)])
def test_a_custom_rule_in_the_step_equals_that_of_lax(name: str):
    def f(scan: Scan) -> Any:
        def run(w: Any, x: Any, rows: Any) -> Any:
            h, ys = scan(lambda c, r: (_odd(w @ c) + r, _odd(r) * c), x, rows)
            return jnp.sum(h) + jnp.sum(ys**2)

        return MODES[name](run)

    assert_close(jax.jit(f(by_dynloop))(W, X, ROWS), jax.jit(f(by_lax))(W, X, ROWS))


# ---- kinds of rows and ys


def test_typed_keys_are_rows_carries_and_ys():
    def f(scan: Scan) -> Any:
        def run(x: Any, key: Any, keys: Any) -> Any:
            def step(c: Any, k: Any) -> Any:
                key, y = c
                following, drawn = jax.random.split(key)
                y = y * jnp.cos(jax.random.normal(drawn) + jax.random.normal(k))
                return (following, y), (drawn, k, y)

            (key, y), (drawn, ks, ys) = scan(step, (key, x), keys)
            return y + jnp.sum(ys), [jax.random.key_data(k) for k in (key, drawn, ks)]

        return jax.value_and_grad(run, has_aux=True)

    given = (jnp.asarray(0.7), jax.random.key(0), jax.random.split(jax.random.key(1), 5))
    (value, data), gradient = jax.jit(f(by_dynloop))(*given)
    (wanted, wanted_data), wanted_gradient = jax.jit(f(by_lax))(*given)
    assert_close((value, gradient), (wanted, wanted_gradient))
    assert all(np.array_equal(a, b) for a, b in zip(data, wanted_data, strict=True))


def test_keys_stacked_by_a_scan_that_stops_are_zero_past_it():
    keys = jax.random.split(jax.random.key(2), 4)
    step = lambda i, key: (i + 1, {"key": key, "i": i})
    i, ys = dynloop.scan(step, jnp.int32(0), keys, until=lambda i: i >= 2)
    assert (int(i), ys["i"].tolist()) == (2, [0, 1, 0, 0])
    data = jax.random.key_data(ys["key"])
    assert np.array_equal(data[:2], jax.random.key_data(keys)[:2])
    assert not data[2:].any()


@pytest.mark.parametrize("dtype", ["complex128", "bfloat16", "float16"])
def test_other_dtypes_equal_those_of_lax(dtype: str):
    def f(scan: Scan) -> Any:
        def run(x: Any, rows: Any) -> Any:
            c, ys = scan(lambda c, r: (c * r, c + r), x, rows)
            return jnp.real(c * jnp.sum(ys))

        return jax.grad(run, (0, 1))

    rows = jnp.asarray([1 + 0.5j, 2, -1j] if dtype == "complex128" else [1.5, 2, -0.5], dtype)
    x = jnp.asarray(0.5, dtype)
    found, wanted = jax.jit(f(by_dynloop))(x, rows), jax.jit(f(by_lax))(x, rows)
    assert [g.dtype for g in found] == [dtype, dtype]
    tolerance = 1e-12 if dtype == "complex128" else 2e-2
    assert_close([np.asarray(g, complex) for g in found], [np.asarray(g, complex) for g in wanted], tolerance)


def test_integer_rows_get_no_gradient():
    f = lambda x, rows: dynloop.scan(lambda c, r: (c * r, None), x, rows, checkpoints=2)[0]
    for_x, for_rows = jax.grad(f, (0, 1), allow_int=True)(jnp.asarray(2.0), jnp.asarray([2, 3]))
    assert (float(for_x), for_rows.dtype) == (6.0, jax.dtypes.float0)


# ---- programs


def bounded(bound: int) -> Callable[..., Any]:
    def f(x: Any, rows: Any, limit: Any) -> Any:
        until = lambda c: c > limit
        return dynloop.scan(
            lambda c, r: (c * r, c), x, rows, until=until, max_steps=bound, checkpoints=2, on_max_steps="stop"
        )[0]

    return jax.grad(f, (0, 1))


def test_the_program_does_not_grow_with_the_rows_or_the_bound():
    given = [(jnp.asarray(1.0), jnp.ones(n), jnp.asarray(2.0)) for n in (2000, 5000)]
    programs = [(bounded(bound), g) for bound, g in ((1000, given[0]), (4000, given[1]))]
    assert len({equations(jax.make_jaxpr(f)(*g)) for f, g in programs}) == 1
    assert len({tuple(operations(stablehlo(f, *g))) for f, g in programs}) == 1


def test_nothing_is_traced_again_when_values_change():
    traces = []

    def f(x: Any, lower: Any, upper: Any, rows: Any, limit: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            traces.append("body")
            return y * x

        def step(c: Any, r: Any) -> Any:
            traces.append("step")
            return c + r * x, c

        y = dynloop.fori_loop(lower, upper, body, x, checkpoints=2)
        return dynloop.scan(step, y, rows, until=lambda c: c > limit, checkpoints=2)[0]

    gradient = jax.jit(jax.grad(f))
    cases = [(2.0, 0, 3, 10.0), (0.5, -2, 5, 1.0), (1.5, 4, 4, 99.0)]
    found = [gradient(jnp.asarray(x), jnp.int32(a), jnp.int32(b), jnp.ones(4), jnp.asarray(t)) for x, a, b, t in cases]
    assert traces == ["body", "step"]
    # x**4 + k x for as many steps k as the limit allows: 16 is past 10; x**8 + 2 x; x + 4 x.
    assert_close(found, [4 * 2.0**3, 8 * 0.5**7 + 2, 5.0])
