"""The kit's methods by themselves, in NumPy: their orders, their tables against Diffrax's, their dense output."""

from typing import Any

import diffrax
import numpy as np
import pytest
from scipy.integrate import RK45

from tests.examples.ode_kit import kit

METHODS = ("DormandPrince54", "Tsit5", "Rodas4")


def field(time: Any, value: Any) -> Any:
    """Neither linear nor autonomous; from 1 and 2 at time 0 the solution is exp(sin t) and 2 + sin t."""
    return np.stack([value[0] * np.cos(time) * (value[1] - np.sin(time) - 1), np.cos(time) + 0 * value[0]])


def exact(time: float) -> Any:
    return np.array([np.exp(np.sin(time)), 2 + np.sin(time)])


def jacfwd(function: Any, argnums: int) -> Any:
    by_value = lambda t, y: np.array([[np.cos(t) * (y[1] - np.sin(t) - 1), y[0] * np.cos(t)], [0.0, 0.0]])
    by_time = lambda t, y: np.array(
        [y[0] * (-np.sin(t) * (y[1] - np.sin(t) - 1) - np.cos(t) ** 2), -np.sin(t)],
    )
    return (by_time, by_value)[argnums]


def ends(name: str, steps: int) -> tuple[float, float]:
    """The largest error at an end of a step, and in the middle of one, of equal steps up to time 2."""
    method, step, value, apart, middle = getattr(kit(), name), 2 / steps, exact(0), 0.0, 0.0
    slope = field(0.0, value)
    for i in range(steps):
        trial = method.attempt(field, i * step, value, slope, step, np, jacfwd)
        between = method.between(0.5, step, value, trial.value, trial.stages)
        middle = max(middle, np.max(abs(between - exact((i + 0.5) * step))))
        value, slope = trial.value, trial.slope
        apart = max(apart, np.max(abs(value - exact((i + 1) * step))))
    return apart, middle


@pytest.mark.parametrize("name", METHODS)
def test_errors_fall_with_the_step_as_the_order_says(name: str) -> None:
    order = getattr(kit(), name).order
    (coarse, coarse_middle), (fine, fine_middle) = (ends(name, steps) for steps in (40, 80))
    assert order - 0.3 < np.log2(coarse / fine) < order + 0.3
    # Between its ends a step is known to order 4, or to order 3 by the cubic; what is told is a local error, one more.
    assert np.log2(coarse_middle / fine_middle) > 3.7


@pytest.mark.parametrize("name", METHODS)
def test_the_error_told_is_small_and_falls_faster_than_the_step(name: str) -> None:
    method = getattr(kit(), name)
    value = exact(0)
    told = [
        np.max(abs(method.attempt(field, 0.0, value, field(0.0, value), step, np, jacfwd).error)) for step in (0.2, 0.1)
    ]
    assert told[0] < 1e-3
    assert np.log2(told[0] / told[1]) > 3.5


@pytest.mark.parametrize(("name", "theirs"), [("Tsit5", diffrax.Tsit5), ("DormandPrince54", diffrax.Dopri5)])
def test_tables_are_those_of_diffrax(name: str, theirs: Any) -> None:
    ours, tableau = getattr(kit(), name), theirs.tableau
    for row, known in zip(ours.rows, tableau.a_lower, strict=True):
        np.testing.assert_allclose(row, known, rtol=0, atol=1e-14)
    np.testing.assert_allclose(ours.nodes, tableau.c, rtol=0, atol=1e-14)
    # Diffrax has another estimate of the second pair's error; scipy has this one.
    error = tableau.b_error if name == "Tsit5" else RK45.E
    np.testing.assert_allclose(np.abs(ours.error), np.abs(error), rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", ["DormandPrince54", "Tsit5"])
def test_dense_output_meets_the_conditions_on_its_weights(name: str) -> None:
    method = getattr(kit(), name)
    nodes = np.array([0.0, *method.nodes])
    for part in (0.3, 0.8, 1.0):
        for power in range(4):
            np.testing.assert_allclose(
                method.dense(part) @ nodes**power, part ** (power + 1) / (power + 1), rtol=0, atol=1e-14
            )
    np.testing.assert_allclose(method.dense(1.0)[:-1], method.rows[-1], rtol=0, atol=1e-14)


def test_rosenbrock_asks_for_what_differentiates_the_field() -> None:
    with pytest.raises(ValueError, match=r"Rodas4 differentiates the field: give jacfwd=jax\.jacfwd"):
        kit().Rodas4.attempt(field, 0.0, exact(0), field(0.0, exact(0)), 0.1, np, None)
