"""The solver of the examples against solutions in closed form, and where there is none to reach."""

from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.user_process import ROOT


@pytest.fixture(scope="module")
def solver() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "examples"))
        return import_module("dormand_prince")


TIMES = jnp.array([0.0, 0.5, 3.0, 3.001, 10.0])


@pytest.mark.parametrize("tolerance", [1e-5, 1e-8])
def test_oscillation_equals_cosine(solver: Any, tolerance: float) -> None:
    end = solver.solve(lambda y: jnp.stack([y[1], -y[0]]), jnp.array([1.0, 0.0]), TIMES, tolerance=tolerance)
    # Each step errs by the tolerance at most, and nothing damps what has been summed up.
    np.testing.assert_allclose(end.saved[:, 0], np.cos(TIMES), rtol=0, atol=tolerance * int(end.accepted))
    assert int(end.arrived) == TIMES.size


def test_gradient_equals_that_of_the_exact_solution(solver: Any) -> None:
    final = lambda rate: solver.solve(lambda y: -rate * y, jnp.array([1.0]), TIMES).saved[-1, 0]
    value, slope = jax.value_and_grad(final)(0.3)
    np.testing.assert_allclose(value, np.exp(-3.0), rtol=1e-6)
    np.testing.assert_allclose(slope, -10 * np.exp(-3.0), rtol=1e-6)


def test_stages_meet_the_conditions_on_their_sums(solver: Any) -> None:
    # Dormand and Prince 1980, table 2: the nodes, and the first five conditions on the weights.
    nodes = np.array([0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1])
    np.testing.assert_allclose([sum(row) for row in solver.STAGES], nodes[1:], rtol=1e-14)
    for power in range(5):
        np.testing.assert_allclose(solver.STAGES[-1] @ nodes[:6] ** power, 1 / (power + 1), rtol=1e-14)
    for power in range(4):
        np.testing.assert_allclose(solver.DIFFERENCE @ nodes**power, 0, atol=1e-15)


@pytest.mark.parametrize(
    "field", [lambda y: y**2, lambda y: jnp.full_like(y, jnp.nan)], ids=["runs off to infinity", "is no number"]
)
def test_solution_that_cannot_go_on_ends_the_loop(solver: Any, field: Any) -> None:
    # y' = y^2 from 1 is 1 / (1 - t): there is nothing beyond time 1.
    end = solver.solve(field, jnp.array([1.0]), TIMES)
    assert np.isnan(end.saved[-1, 0])
    assert float(end.time) < 1.0 + 1e-6
