"""Claims from public reports of loops that came out wrong, with right values that are known in closed form.

Each is told in one line; the issue it comes from stands beside it.
"""

import math
from typing import Any

import numpy as np
import pytest

from dynloop import CarryError, StoppedBecause
from tests.closeness import assert_close
from tests.dynloop.backends import CHECKPOINTS, Backend, taking_turns, with_checkpoints, with_checkpoints_swapped


def less_than_ten(y: Any) -> Any:
    return y < 10


def zero(backend: Backend) -> Any:
    return backend.asarray(0, "int32")


@with_checkpoints
def test_a_loop_that_runs_no_step_is_the_identity(backend: Backend, checkpoints: Any):
    # pytorch/pytorch#195970, patrick-kidger/equinox#870: one step was differentiated although none ran.
    def f(x: Any, w: Any) -> Any:
        return backend.while_loop(less_than_ten, lambda y: y * w, x, checkpoints=checkpoints)

    x, w = backend.asarray(20.0), backend.asarray(3.0)
    assert float(backend.value(f, x, w)) == 20.0
    assert_close(backend.grad(f, (0, 1))(x, w), (1.0, 0.0))


@pytest.mark.parametrize("start", ["array", "number"])
@with_checkpoints_swapped
def test_an_accumulator_with_a_constant_start_passes_its_gradient(backend: Backend, checkpoints: Any, start: str):
    # pytorch/pytorch#160483, tensorflow/tensorflow#1093: the cotangent of a constant start was dropped on the way.
    first: Any = backend.asarray(0.0) if start == "array" else 0.0

    def total(x: Any) -> Any:
        def body(c: Any) -> Any:
            return c[0] + 1, c[1] + c[2], 2 * c[2]

        return backend.while_loop(lambda c: c[0] < 4, body, (zero(backend), first, x), checkpoints=checkpoints)[1]

    assert_close(backend.grad(total)(backend.asarray(3.0)), 15.0)


@with_checkpoints
def test_horner_with_a_closed_over_variable(backend: Backend, checkpoints: Any):
    # tensorflow/tensorflow#1093: 1 + w + w**2 + w**3.
    def f(w: Any) -> Any:
        def body(c: Any) -> Any:
            return c[0] + 1, c[1] * w + 1

        return backend.while_loop(lambda c: c[0] < 4, body, (zero(backend), 0.0), checkpoints=checkpoints)[1]

    assert_close(backend.grad(f)(backend.asarray(3.0)), 34.0)


ORDERS = ["reverse over reverse", "forward over reverse", "reverse over forward", "forward over forward"]


def squaring(backend: Backend, **options: Any) -> Any:
    """x**8 from 1.5, by three squarings."""
    return lambda x: backend.while_loop(less_than_ten, lambda y: y * y, x, **options)


def second_derivative(backend: Backend, order: str, f: Any) -> Any:
    outer, inner = order.split(" over ")

    def forward(b: Backend, g: Any) -> Any:
        return lambda x: b.jvp(g, (x,), (b.asarray(1.0),))[1]

    # The inner derivative is part of what the outer one runs, compiled or not.
    first = backend.eager.grad(f) if inner == "reverse" else forward(backend.eager, f)
    return backend.grad(first) if outer == "reverse" else forward(backend, first)


@taking_turns("order", ORDERS)
def test_second_derivative_of_repeated_squaring(backend: Backend, order: str):
    # rtqichen/torchdiffeq#29, patrick-kidger/diffrax#332, pytorch/pytorch#102223: 56 x**6.
    f = squaring(backend, checkpoints=2)
    assert_close(second_derivative(backend, order, f)(backend.asarray(1.5)), 637.875)


@taking_turns("checkpoints", CHECKPOINTS, order="reverse over reverse")
def test_second_derivative_whatever_is_stored(backend: Backend, checkpoints: Any):
    f = squaring(backend, checkpoints=checkpoints)
    assert_close(second_derivative(backend, "reverse over reverse", f)(backend.asarray(1.5)), 637.875)


def test_one_function_serves_forward_and_reverse_mode(backend: Backend):
    # jax-ml/jax#17840, patrick-kidger/equinox#927: custom_vjp loops have no forward mode.
    f, x = squaring(backend), backend.asarray(1.5)
    assert_close(backend.jvp(f, (x,), (backend.asarray(1.0),)), (25.62890625, 136.6875))
    assert_close(backend.grad(f)(x), 136.6875)


@with_checkpoints_swapped
def test_a_parameter_that_only_the_condition_reads_has_gradient_zero(backend: Backend, checkpoints: Any):
    # tensorflow/tensorflow#18920, #16504.
    def f(x: Any, t: Any) -> Any:
        return backend.while_loop(lambda y: y < t, lambda y: 2 * y, x, checkpoints=checkpoints)

    assert_close(backend.grad(f, (0, 1))(backend.asarray(1.0), backend.asarray(10.0)), (16.0, 0.0))


@with_checkpoints
def test_a_variable_used_in_the_loop_and_after_it(backend: Backend, checkpoints: Any):
    # NVIDIA/warp#1694: 8 x**2 at 1.5.
    def f(x: Any) -> Any:
        return backend.while_loop(less_than_ten, lambda y: 2 * y, x, checkpoints=checkpoints) * x

    assert_close(backend.grad(f)(backend.asarray(1.5)), 24.0)


@pytest.mark.parametrize(("steps", "is_overwritten", "slope"), [(3, True, 4.0), (4, False, 15.0)])
@with_checkpoints_swapped
def test_only_the_last_write_to_a_cell_counts(
    backend: Backend, checkpoints: Any, steps: int, is_overwritten: bool, slope: float
):
    # jax-ml/jax#17640, patrick-kidger/equinox#1091: overwritten cells kept their gradient.
    def f(x: Any) -> Any:
        def body(c: Any) -> Any:
            i, cells, y = c
            return i + 1, backend.put(cells, 0 if is_overwritten else i, y), 2 * y

        start = (zero(backend), backend.asarray([0.0] * 4), x)
        out = backend.while_loop(lambda c: c[0] < steps, body, start, checkpoints=checkpoints)
        return backend.xp.sum(out[1])

    assert_close(backend.grad(f)(backend.asarray(1.0)), slope)


@pytest.mark.parametrize("place", ["carried", "closed over"])
@with_checkpoints
def test_a_power_by_repeated_products(backend: Backend, checkpoints: Any, place: str):
    # elixir-nx/nx#1747: n x**(n - 1); the variable is the factor in the derivative by the accumulator.
    def f(x: Any, n: Any) -> Any:
        if place == "carried":
            start = (zero(backend), backend.asarray(1.0), x)
            out = backend.while_loop(
                lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * c[2], c[2]), start, checkpoints=checkpoints
            )
        else:
            start = (zero(backend), backend.asarray(1.0))
            out = backend.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * x), start, checkpoints=checkpoints)
        return out[1]

    gradient, x = backend.grad(f), backend.asarray(0.5)
    assert_close([gradient(x, backend.asarray(n, "int32")) for n in (0, 1, 2, 3)], [0.0, 1.0, 1.0, 0.75])


@with_checkpoints_swapped
def test_a_bound_that_is_reached_is_not_silent(backend: Backend, checkpoints: Any):
    # patrick-kidger/diffrax#207, rtqichen/torchdiffeq#278: a truncated answer without a sign.
    def f(**options: Any) -> Any:
        options |= {"max_steps": 2, "checkpoints": checkpoints}
        return lambda x: backend.while_loop(less_than_ten, lambda y: 2 * y, x, **options)

    x = backend.asarray(1.0)
    with pytest.raises(Exception, match=r"max_steps(=2)? was reached and the condition still held"):
        float(backend.value(f(), x))
    assert float(backend.value(f(on_max_steps="stop"), x)) == 4.0
    assert float(backend.grad(f(on_max_steps="stop"))(x)) == 4.0
    result = backend.value(f(on_max_steps="stop", full_output=True), x)
    assert result.stopped_because is StoppedBecause.BOUND


@pytest.mark.parametrize("never_ends", [False, True])
def test_a_nan_in_the_condition_is_no_convergence(backend: Backend, never_ends: bool):
    # jax-ml/jax#2634, rtqichen/torchdiffeq#244.
    def f(x: Any) -> Any:
        cond = (lambda y: ~(y >= 10)) if never_ends else less_than_ten
        options = {"max_steps": 5, "on_max_steps": "stop", "full_output": True}
        return backend.while_loop(cond, lambda y: y * math.nan, x, **options)

    result = backend.value(f, backend.asarray(1.0))
    assert int(result.steps) == (5 if never_ends else 1)
    assert result.stopped_because is StoppedBecause.NONFINITE


def test_a_number_takes_the_dtype_that_the_body_gives_it(backend: Backend):
    # jax-ml/jax#833, #9046: 1 doubled by a float32 is a float32.
    two = backend.asarray(2.0, "float32")
    out = backend.value(lambda: backend.while_loop(less_than_ten, lambda y: y * two, 1))
    assert (float(out), backend.dtype(out)) == (16.0, "float32")


@pytest.mark.parametrize("dtype", ["int32", "float16"])
def test_an_array_does_not_take_another_dtype(backend: Backend, dtype: str):
    # jax-ml/jax#6059, #22045.
    def f(x: Any) -> Any:
        return backend.while_loop(lambda c: c["y"] < 10, lambda c: {"y": c["y"] * backend.asarray(1.5, "float32")}, x)

    with pytest.raises(
        CarryError, match=rf"carry\['y'\] is {dtype}\[\] before a step and float32\[\] after it.*\.(astype|to)\("
    ):
        backend.value(f, {"y": backend.asarray(4, dtype)})


@with_checkpoints_swapped
def test_bfloat16_gradients_stay_bfloat16(backend: Backend, checkpoints: Any):
    # patrick-kidger/diffrax#197.
    def f(x: Any) -> Any:
        body = lambda c: (c[0] + 1, 2 * c[1])
        return backend.while_loop(lambda c: c[0] < 3, body, (zero(backend), x), checkpoints=checkpoints)[1]

    gradient = backend.grad(f)(backend.asarray(1.0, "bfloat16"))
    assert (float(gradient), backend.dtype(gradient)) == (8.0, "bfloat16")


@with_checkpoints
def test_an_array_carried_and_closed_over(backend: Backend, checkpoints: Any):
    # pytorch/pytorch#191686, #196005: x + x + x.
    def f(x: Any) -> Any:
        body = lambda c: (c[0] + 1, c[1] + x)
        return backend.while_loop(lambda c: c[0] < 2, body, (zero(backend), x), checkpoints=checkpoints)[1]

    x = backend.asarray(5.0)
    assert float(backend.value(f, x)) == 15.0
    assert_close(backend.grad(f)(x), 3.0)


@pytest.mark.parametrize("false", [False, np.False_, np.bool_(0)], ids=["Python", "NumPy", "NumPy made"])
@with_checkpoints_swapped
def test_a_condition_that_is_constantly_false(backend: Backend, checkpoints: Any, false: Any):
    # pytorch/pytorch#195970.
    def f(x: Any) -> Any:
        options = {"checkpoints": checkpoints, "full_output": True}
        return backend.while_loop(lambda y: false, lambda y: y * y, x, **options)

    x = backend.asarray(3.0)
    result = backend.value(f, x)
    assert (float(result.carry), int(result.steps), result.stopped_because) == (3.0, 0, StoppedBecause.CONDITION)
    assert float(backend.grad(lambda x: f(x).carry)(x)) == 1.0
