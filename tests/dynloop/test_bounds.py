"""Claims about `max_steps`, `on_max_steps`, `full_output` and what a `Result` says."""

import math
from typing import Any

import pytest

from dynloop import Result, StoppedBecause
from tests.dynloop.backends import Backend, taking_turns, with_checkpoints

REACHED = r"max_steps=2 was reached and the condition still held"


def doubling(backend: Backend, **options: Any) -> Any:
    """x doubled while it is below 10: four steps from 1."""
    return lambda x: backend.while_loop(lambda y: y < 10, lambda y: 2 * y, x, **options)


def concrete(result: Result) -> tuple[float, int, StoppedBecause]:
    return float(result.carry), int(result.steps), result.stopped_because


def test_a_bound_reached_raises(backend: Backend):
    with pytest.raises(Exception, match=REACHED):
        float(backend.value(doubling(backend, max_steps=2), backend.asarray(1.0)))


def test_a_bound_reached_raises_when_only_the_gradient_is_used(backend: Backend):
    with pytest.raises(Exception, match=REACHED):
        float(backend.grad(doubling(backend, max_steps=2))(backend.asarray(1.0)))


def test_a_bound_reached_raises_when_only_the_tangent_is_used(backend: Backend):
    f = doubling(backend, max_steps=2)
    with pytest.raises(Exception, match=REACHED):
        float(backend.value(lambda x: backend.jvp(f, (x,), (x,))[1], backend.asarray(1.0)))


def test_a_bound_reached_raises_when_only_the_second_derivative_is_used(backend: Backend):
    def square(x: Any) -> Any:
        return backend.while_loop(lambda y: y < 100, lambda y: y * y, x, max_steps=2, checkpoints="all")

    with pytest.raises(Exception, match=REACHED):
        float(backend.grad(backend.grad(square))(backend.asarray(1.5)))


def test_a_bound_reached_raises_when_only_the_steps_are_used(backend: Backend):
    f = doubling(backend, max_steps=2, full_output=True)
    with pytest.raises(Exception, match=REACHED):
        int(backend.value(lambda x: f(x).steps, backend.asarray(1.0)))


@with_checkpoints
def test_stop_gives_the_partial_result_and_its_gradient(backend: Backend, checkpoints: Any):
    f = doubling(backend, max_steps=2, on_max_steps="stop", checkpoints=checkpoints, full_output=True)
    x = backend.asarray(1.0)
    assert concrete(backend.value(f, x)) == (4.0, 2, StoppedBecause.BOUND)
    assert float(backend.grad(lambda x: f(x).carry)(x)) == 4.0


@with_checkpoints
def test_nan_gives_nan_in_the_value_and_in_the_gradient(backend: Backend, checkpoints: Any):
    f = doubling(backend, max_steps=2, on_max_steps="nan", checkpoints=checkpoints)
    x = backend.asarray(1.0)
    assert math.isnan(backend.value(f, x))
    assert math.isnan(backend.grad(f)(x))
    assert math.isnan(backend.jvp(f, (x,), (x,))[1])


@taking_turns("option", ["raise", "stop", "nan"])
def test_a_bound_that_is_not_reached_changes_nothing(backend: Backend, option: str):
    # The fourth step makes the condition false, so a bound of four steps is met and not exceeded.
    f, x = doubling(backend, max_steps=4, on_max_steps=option, checkpoints="all"), backend.asarray(1.0)
    assert float(backend.value(f, x)) == 16.0
    assert float(backend.grad(f)(x)) == 16.0


def test_nan_at_the_bound_leaves_integers(backend: Backend):
    def f(x: Any) -> Any:
        return backend.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1]), x, max_steps=2, on_max_steps="nan")

    count, value = backend.value(f, (backend.asarray(0, "int32"), backend.asarray(1.0)))
    assert int(count) == 2
    assert math.isnan(value)


@pytest.mark.parametrize("start", [1.0, 20.0], ids=["still holding", "false at the start"])
def test_a_bound_of_no_steps(backend: Backend, start: float):
    f = doubling(backend, max_steps=0, on_max_steps="stop", full_output=True, checkpoints="all")
    x = backend.asarray(start)
    reason = StoppedBecause.BOUND if start < 10 else StoppedBecause.CONDITION
    assert concrete(backend.value(f, x)) == (start, 0, reason)
    assert float(backend.grad(lambda x: f(x).carry)(x)) == 1.0


@pytest.mark.parametrize("bound", [None, 4, 1000, 2**31 - 1])
def test_a_result_counts_the_steps_taken(backend: Backend, bound: int | None):
    result = backend.value(doubling(backend, max_steps=bound, full_output=True), backend.asarray(1.0))
    assert concrete(result) == (16.0, 4, StoppedBecause.CONDITION)
    assert (backend.dtype(result.steps), backend.dtype(result.status)) == ("int32", "int32")


@pytest.mark.parametrize(
    ("start", "options", "sentence"),
    [
        (1.0, {}, "stopped after 4 steps because the condition became false"),
        (5.0, {}, "stopped after 1 step because the condition became false"),
        (1.0, {"max_steps": 2}, "stopped after 2 steps because max_steps was reached while the condition still held"),
        (math.nan, {}, "stopped after 0 steps because a value that the condition reads was NaN"),
    ],
)
def test_a_result_prints_as_a_sentence(backend: Backend, start: float, options: Any, sentence: str):
    f = doubling(backend, on_max_steps="stop", full_output=True, **options)
    assert str(backend.value(f, backend.asarray(start))) == sentence


def test_a_nan_that_the_condition_reads_is_reported(backend: Backend):
    result = backend.value(doubling(backend, full_output=True), backend.asarray(math.nan))
    assert result.stopped_because is StoppedBecause.NONFINITE


def test_a_nan_that_only_the_body_reads_is_not_reported(backend: Backend):
    def f(x: Any) -> Any:
        return backend.while_loop(lambda c: c[0] < 10, lambda c: (2 * c[0], c[1] + 1), x, full_output=True)

    result = backend.value(f, (backend.asarray(1.0), backend.asarray(math.nan)))
    assert result.stopped_because is StoppedBecause.CONDITION


def test_nan_at_the_bound_is_reported_as_the_bound(backend: Backend):
    f = doubling(backend, max_steps=2, on_max_steps="nan", full_output=True)
    result = backend.value(f, backend.asarray(1.0))
    assert math.isnan(float(result.carry))
    assert (int(result.steps), result.stopped_because) == (2, StoppedBecause.BOUND)


@pytest.mark.parametrize("value", [complex(math.inf, 0), complex(0, -math.inf)], ids=str)
def test_nan_leaves_complex_infinities_of_a_loop_that_ends_by_itself(backend: Backend, value: complex):
    def f(x: Any) -> Any:
        options = {"max_steps": 3, "on_max_steps": "nan"}
        return backend.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1]), (0, x), **options)[1]

    assert complex(backend.value(f, backend.asarray(value, "complex128"))) == value


def test_an_infinity_that_the_condition_reads_is_legal(backend: Backend):
    result = backend.value(doubling(backend, full_output=True), backend.asarray(math.inf))
    assert concrete(result) == (math.inf, 0, StoppedBecause.CONDITION)


def test_a_gradient_goes_through_a_result(backend: Backend):
    f = doubling(backend, full_output=True, checkpoints=2)

    def g(x: Any) -> Any:
        result = f(x)
        return result.carry * backend.cast(result.steps, "float64")

    assert float(backend.grad(g)(backend.asarray(1.0))) == 16.0 * 4
