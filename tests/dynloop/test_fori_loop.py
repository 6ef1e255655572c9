"""Claims about `fori_loop`: the values and gradients of `for i in range(lower, upper)`, whatever tells the bounds."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import adjoint
import dynloop
from dynloop import ArgumentError, ArgumentTypeError, StoppedBecause
from tests.closeness import assert_close
from tests.dynloop.backends import CHECKPOINTS, JAX_EAGER, Backend, taking_turns
from tests.dynloop.problems import W_DOT, X_DOT, W, X
from tests.oracles import indexed

SCHEDULES: list[Any] = [*CHECKPOINTS, adjoint.Binomial(2), adjoint.Online(2, leaf=3)]
RANGES = ((0, 7), (2, 2), (3, 1), (-3, 4), (-9, -4), (0, 1), (-1, 1), (5, 25))


def rolled(loop: Callable[..., Any], backend: Backend) -> Callable[..., Any]:
    """A state that reads the index, and a sum of what it goes through, as a function of (x, w, lower, upper)."""

    def f(x: Any, w: Any, lower: Any, upper: Any) -> Any:
        xp = backend.xp

        def body(i: Any, c: Any) -> Any:
            h, total = c
            h = xp.tanh(w @ h + 0.1 * i)
            return h, total + xp.sum(h**2) * i

        h, total = loop(lower, upper, body, (x, 0.5))
        return xp.sum(h * backend.asarray([1, 2, 3])) + xp.sin(total)

    return f


def ours(backend: Backend, **options: Any) -> Callable[..., Any]:
    return rolled(lambda *args: backend.fori_loop(*args, **options), backend)


def oracle(backend: Backend) -> Callable[..., Any]:
    return rolled(indexed, backend)


@cache
def expected(lower: int, upper: int) -> Any:
    return JAX_EAGER.grad(oracle(JAX_EAGER), (0, 1))(JAX_EAGER.asarray(X), JAX_EAGER.asarray(W), lower, upper)


# ---- gradients


@taking_turns("checkpoints", SCHEDULES)
def test_gradient_equals_unrolled_for_bounds_known_while_running(backend: Backend, checkpoints: Any):
    # One compiled gradient serves every pair of bounds, which are arguments of it.
    ranges = RANGES if backend.name != "jax-eager" else RANGES[:2]
    gradient = backend.grad(ours(backend, checkpoints=checkpoints), (0, 1))
    x, w = backend.asarray(X), backend.asarray(W)
    found = [gradient(x, w, *(backend.asarray(n, "int32") for n in bounds)) for bounds in ranges]
    assert_close(found, [expected(*bounds) for bounds in ranges])


@taking_turns("bounds,checkpoints", [((-3, 4), 2), ((0, 9), adjoint.Binomial(3)), ((4, 2), 1), ((0, 20), "auto")])
def test_gradient_equals_unrolled_for_bounds_that_are_numbers(
    backend: Backend, bounds: tuple[int, int], checkpoints: Any
):
    f = ours(backend, checkpoints=checkpoints)
    found = backend.grad(lambda x, w: f(x, w, *bounds), (0, 1))(backend.asarray(X), backend.asarray(W))
    assert_close(found, expected(*bounds))


def test_forward_mode_equals_unrolled(backend: Backend):
    primals, tangents = (backend.asarray(X), backend.asarray(W)), (backend.asarray(X_DOT), backend.asarray(W_DOT))
    found, wanted = (
        backend.jvp(lambda x, w, f=f: f(x, w, -2, 6), primals, tangents) for f in (ours(backend), oracle(backend))
    )
    assert_close(found, wanted)


@taking_turns("order", ["forward over reverse", "reverse over reverse"])
def test_second_derivative_equals_unrolled(backend: Backend, order: str):
    x, w, v = backend.asarray(X), backend.asarray(W), backend.asarray(X_DOT)
    lower, upper = backend.asarray(-1, "int32"), backend.asarray(6, "int32")

    def hessian_vector(f: Callable[..., Any]) -> Any:
        slope = backend.eager.grad(f)
        if order == "forward over reverse":
            return backend.jvp(slope, (x,), (v,))[1]
        return backend.grad(lambda x: backend.xp.sum(slope(x) * v))(x)

    f, g = ours(backend, checkpoints=2), oracle(backend)
    assert_close(hessian_vector(lambda x: f(x, w, lower, upper)), hessian_vector(lambda x: g(x, w, -1, 6)))


def test_bounds_get_no_gradient(backend: Backend):
    """They may depend on what is differentiated: a step function of it, whose slope is zero."""

    def f(x: Any) -> Any:
        n = backend.cast(x * 2, "int32")
        return backend.fori_loop(0, n, lambda i, y: y * x, backend.asarray(1.0), checkpoints=2)

    assert_close(backend.grad(f)(backend.asarray(2.1)), 4 * 2.1**3)


# ---- values, and the index


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64"])
def test_the_index_has_the_dtype_of_the_bounds(backend: Backend, dtype: str):
    lower, upper = (backend.asarray(n, dtype) for n in (3, 8))

    def f(lower: Any, upper: Any) -> Any:
        body = lambda i, c: (c[0] + backend.cast(i, "float64"), i)
        return backend.fori_loop(lower, upper, body, (backend.asarray(0.0), lower))

    total, last = backend.value(f, lower, upper)
    assert (float(total), int(last), backend.dtype(last)) == (25.0, 7, dtype)


@pytest.mark.parametrize(
    ("dtype", "lower", "steps"),
    [("int8", -100, 200), ("uint8", 0, 255), ("int64", 2**40, 5), ("int64", -(2**62) - 2**61, 3), ("uint32", 2**31, 4)],
)
def test_indices_may_be_any_that_the_dtype_holds(backend: Backend, dtype: str, lower: int, steps: int):
    def f(lower: Any, upper: Any) -> Any:
        return backend.fori_loop(lower, upper, lambda i, c: (c[0] + 1, i), (backend.asarray(0, "int32"), lower))

    count, last = backend.value(f, *(backend.asarray(np.asarray(n, dtype), dtype) for n in (lower, lower + steps)))
    assert (int(count), int(last)) == (steps, lower + steps - 1)


@pytest.mark.parametrize(("dtype", "lower", "upper"), [("uint8", 200, 100), ("int8", 100, -100), ("int64", 1, -1)])
def test_no_step_where_upper_is_not_above_lower(backend: Backend, dtype: str, lower: int, upper: int):
    def f(lower: Any, upper: Any) -> Any:
        return backend.fori_loop(lower, upper, lambda i, c: c + 1, backend.asarray(7, "int32"), full_output=True)

    result = backend.value(f, backend.asarray(lower, dtype), backend.asarray(upper, dtype))
    assert (int(result.carry), int(result.steps), result.ys) == (7, 0, None)


def test_value_is_that_of_the_python_loop_bit_for_bit(backend: Backend):
    body = lambda i, y: 3.99 * y * (1 - y) + 1e-3 / (i + 2)
    found = backend.value(lambda y: backend.fori_loop(-1, 60, body, y), backend.asarray(0.3))
    wanted = indexed(-1, 60, lambda i, y: backend.step(body)(backend.asarray(i, "int64"), y), backend.asarray(0.3))
    assert float(found) == float(wanted)


def test_the_bounds_alone_tell_the_library(backend: Backend):
    out = backend.value(lambda n: dynloop.fori_loop(0, n, lambda i, y: 2 * y, 1.0), backend.asarray(4, "int32"))
    assert float(out) == 16.0


def test_a_loop_of_loops(backend: Backend):
    """The index of the outer loop bounds the inner one: the sum of i * j for j < i < 6."""

    def f() -> Any:
        def outer(i: Any, total: Any) -> Any:
            return backend.fori_loop(0, i, lambda j, t: t + i * j, total)

        return backend.fori_loop(0, 6, outer, backend.asarray(0, "int64"))

    assert int(backend.value(f)) == sum(i * j for i in range(6) for j in range(i))


# ---- the bound


def powers(backend: Backend, **options: Any) -> Any:
    return lambda x, n: backend.fori_loop(0, n, lambda i, y: y * x, backend.asarray(1.0), **options)


def test_more_steps_than_the_bound_raise(backend: Backend):
    f, n = powers(backend, max_steps=3), backend.asarray(4, "int32")
    with pytest.raises(Exception, match="fori_loop: max_steps=3 was reached"):
        float(backend.value(f, backend.asarray(2.0), n))
    with pytest.raises(Exception, match="fori_loop: max_steps=3 was reached"):
        float(backend.grad(f)(backend.asarray(2.0), n))


def test_as_many_steps_as_the_bound_are_no_error(backend: Backend):
    f = powers(backend, max_steps=3, full_output=True)
    result = backend.value(f, backend.asarray(2.0), backend.asarray(3, "int32"))
    assert (float(result.carry), int(result.steps), result.stopped_because) == (8.0, 3, StoppedBecause.CONDITION)


@taking_turns("option", ["stop", "nan"])
def test_the_bound_cuts_off(backend: Backend, option: str):
    f = powers(backend, max_steps=3, on_max_steps=option, full_output=True, checkpoints=2)
    x, n = backend.asarray(2.0), backend.asarray(5, "int32")
    result, slope = backend.value(f, x, n), float(backend.grad(lambda x, n: f(x, n).carry)(x, n))
    assert (int(result.steps), result.stopped_because) == (3, StoppedBecause.BOUND)
    found = [float(result.carry), slope]
    assert found == [8.0, 12.0] if option == "stop" else all(map(np.isnan, found))


# ---- bad input


@pytest.mark.parametrize(
    ("lower", "upper", "part"),
    [
        (0.0, 3, "lower must be an integer scalar; got a float (0.0)"),
        (0, None, "upper must be an integer scalar; got a NoneType"),
        (True, 3, "lower must be an integer scalar; got a bool (True)"),
        (0, np.ones(2, "int32"), "upper must be an integer scalar"),
    ],
    ids=["float", "None", "bool", "vector"],
)
def test_bounds_that_are_no_integers_are_refused(backend: Backend, lower: Any, upper: Any, part: str):
    with pytest.raises(ArgumentTypeError) as caught:
        backend.fori_loop(lower, upper, lambda i, y: y, backend.asarray(1.0))
    assert f"fori_loop: {part}" in str(caught.value)


def test_bounds_without_a_common_integer_are_refused(backend: Backend):
    with pytest.raises(ArgumentTypeError, match="lower is uint64 and upper is int64, and no integer dtype holds both"):
        backend.fori_loop(backend.asarray(0, "uint64"), backend.asarray(3, "int64"), lambda i, y: y, 1.0)


@pytest.mark.parametrize(("upper", "part"), [(2**31, "upper - lower is 2147483648"), (2**70, "not an integer that")])
def test_more_steps_than_can_be_counted_are_refused(backend: Backend, upper: int, part: str):
    with pytest.raises(ArgumentError, match=part):
        backend.fori_loop(0, upper, lambda i, y: y, backend.asarray(1.0))


def test_every_state_needs_bounds_that_are_numbers(backend: Backend):
    f = powers(backend, checkpoints=adjoint.StoreAll())
    assert_close(backend.grad(lambda x: f(x, 4))(backend.asarray(2.0)), 32.0)
    with pytest.raises(ArgumentError, match="give max_steps="):
        backend.value(f, backend.asarray(2.0), backend.asarray(4, "int32"))


def test_a_body_that_takes_no_index_is_an_error_that_says_what_it_is_given(backend: Backend):
    with pytest.raises(TypeError) as caught:
        backend.fori_loop(0, 3, lambda y: y, backend.asarray(1.0))
    note = caught.value.__notes__[0]
    assert note.startswith("fori_loop: raised while body ")
    assert note.endswith(" with the carry float64[]")


def test_binomial_is_refused_where_the_number_of_steps_is_unknown(backend: Backend):
    with pytest.raises(ArgumentError, match=r"while_loop: Binomial.* needs the number of steps before"):
        backend.while_loop(lambda y: y < 3, lambda y: 2 * y, backend.asarray(1.0), checkpoints=adjoint.Binomial(2))
