"""Where the solver kit's derivatives are in danger: rejected steps that are NaN, times, values saved up to an event."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.examples.ode_kit import kit, solver

# Nearly empty: the last steps are such that an attempt of each method misses the vessel's floor.
END, TOLERANCES = 1.99, {"Tsit5": 1e-6, "Rodas4": 1e-4}


def emptied(rate: Any, method: str) -> Any:
    """A vessel that runs empty: (1 - rate t / 2)^2, which steps that are too long leave for where the root is NaN."""
    field = lambda t, y: -rate * jnp.sqrt(y)
    return kit().solve(solver(method, TOLERANCES[method]), field, [0.0, END], jnp.array([1.0]))


@pytest.mark.parametrize("method", TOLERANCES)
def test_a_rejected_step_that_is_no_number_leaves_every_derivative_alone(method: str) -> None:
    level = lambda rate: emptied(rate, method).value[0]

    @jax.jit
    @jax.vmap
    def found(rate: Any) -> Any:
        slope, pushed = jax.grad(level)(rate), jax.jvp(level, (rate,), (1.0,))[1]
        return slope, pushed, emptied(rate, method).rejected

    # Of two lanes one alone meets such a step.
    rates = jnp.array([1.0, 0.1])
    slope, pushed, rejected = found(rates)
    exact = -END * (1 - END * rates / 2)
    np.testing.assert_allclose(slope, exact, atol=5e-4)
    np.testing.assert_allclose(pushed, slope, rtol=1e-9)
    assert rejected[0] > 0 == rejected[1]


@pytest.mark.parametrize("method", TOLERANCES)
def test_without_the_guard_the_gradient_is_no_number(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = lambda attempt, xp, *inputs: (trial := attempt(*inputs), jnp.all(jnp.isfinite(trial.slope)))
    monkeypatch.setitem(kit().solve.__globals__, "guarded", bare)
    assert np.isnan(jax.jit(jax.grad(lambda rate: emptied(rate, method).value[0]))(1.0))


# exp(-(t^2 - t0^2) / 2) at a time t, from 1 at t0.
shrink = lambda t, y: -y * t
after = lambda t, t0: np.exp(-(t**2 - t0**2) / 2)


def test_all_times_have_their_gradient() -> None:
    times, weights = np.array([0.3, 0.7, 1.0, 1.2]), np.array([1.0, 2.0, 3.0, 4.0])
    saved = lambda times: kit().solve(solver(tolerance=1e-8), shrink, times, jnp.array([1.0]), save=True).saved[:, 0]
    slope = jax.jit(jax.grad(lambda times: saved(times) @ weights))(jnp.array(times))
    value = weights[1:] * after(times[1:], 0.3)
    np.testing.assert_allclose(slope, [0.3 * np.sum(value), *(-times[1:] * value)], rtol=1e-6)


def test_values_are_saved_up_to_an_event_and_both_have_their_derivatives() -> None:
    times = np.array([0.0, 0.5, 0.9, 1.1, 3.0])

    def found(rate: Any) -> tuple[Any, Any]:
        decay = lambda t, y: -rate * y
        event = lambda t, y: y[0] - np.exp(-1.0)
        end = kit().solve(solver(tolerance=1e-8), decay, times, jnp.array([1.0]), event=event, save=True)
        return end.saved[:, 0], end.time

    (saved, time), (by_rate, time_by_rate) = jax.jit(lambda rate: jax.jvp(found, (rate,), (1.0,)))(1.0)
    np.testing.assert_allclose(saved, [1.0, *np.exp(-times[1:3]), np.nan, np.nan], rtol=1e-6)
    np.testing.assert_allclose(by_rate[:3], -times[:3] * np.exp(-times[:3]), rtol=0, atol=1e-6)
    np.testing.assert_allclose([time, time_by_rate], [1.0, -1.0], rtol=1e-6)


def test_traced_times_out_of_order_are_told_by_the_status() -> None:
    end = jax.jit(lambda times: kit().solve(solver(), shrink, times, jnp.array([1.0])))(jnp.array([1.0, 0.0, 2.0]))
    assert int(end.accepted) == 0
    assert str(end).startswith("t = 1: times must ascend, or descend to solve backwards")


def test_times_in_another_precision_are_refused() -> None:
    with pytest.raises(ValueError, match="must have the dtype of start, float64; got float32"):
        kit().solve(solver(), shrink, jnp.array([0.0, 1.0], jnp.float32), jnp.array([1.0]))
