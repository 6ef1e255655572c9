"""Heat and Burgers' equation against their exact ends; the viscosity recovered; the gradient against differences."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.dynloop.adapter import Backend


@pytest.fixture(scope="module")
def burgers(story: Callable[[str], Any]) -> Any:
    return story("burgers")


def test_errors_are_small_and_the_viscosity_is_recovered(burgers: Any, capsys: Any, tmp_path: Any) -> None:
    burgers.main([str(tmp_path / "burgers.png")])
    first, second = capsys.readouterr().out.splitlines()
    heat, steep = (float(part.split()[-1]) for part in first.split(","))
    assert heat < 1e-8
    assert steep < 1e-7
    found, true = (float(part.split()[-1]) for part in second.split(","))
    assert found == pytest.approx(true, rel=1e-5)
    assert (tmp_path / "burgers.png").read_bytes().startswith(b"\x89PNG")


def test_exact_ends_solve_their_equations(burgers: Any) -> None:
    # The references themselves: their time derivatives, by differences, are what the equations say.
    x, by = burgers.places(), 1e-4
    slope, bend = burgers.derivatives()
    u, at = burgers.cole_hopf(x, 1.0), lambda t: burgers.cole_hopf(x, t)
    change = burgers.VISCOSITY * bend @ u - u * (slope @ u)
    np.testing.assert_allclose((at(1 + by) - at(1 - by)) / (2 * by), change, rtol=0, atol=1e-5)
    np.testing.assert_allclose(at(0.0), np.sin(x), rtol=0, atol=1e-10)
    at = lambda t: burgers.heat_kernel(x, t)
    np.testing.assert_allclose(
        (at(1 + by) - at(1 - by)) / (2 * by), burgers.CONDUCTIVITY * bend @ at(1.0), rtol=0, atol=1e-6
    )
    np.testing.assert_allclose(at(0.3).mean() * 2 * np.pi, 1, rtol=1e-9)


def test_gradient_equals_central_differences(burgers: Any, backend: Backend) -> None:
    unknown, direction = np.array([np.log(0.3), 0.8, 0.2, -0.1]), np.array([0.3, -0.5, 0.4, 0.2])
    end = np.sin(burgers.places(16))
    options = {"rtol": 1e-7, "atol": 1e-7, "checkpoints": 4}
    loss = lambda unknown: burgers.misfit(backend.xp, unknown, backend.asarray(end), **options)
    slope = np.asarray(backend.grad(loss)(backend.asarray(unknown)))
    value = jax.jit(lambda unknown: burgers.misfit(jnp, unknown, jnp.asarray(end), **options))
    difference = (value(unknown + 1e-4 * direction) - value(unknown - 1e-4 * direction)) / 2e-4
    np.testing.assert_allclose(slope @ direction, difference, rtol=1e-5)


def test_a_ring_of_an_odd_number_of_points_is_refused(burgers: Any) -> None:
    with pytest.raises(ValueError, match="points must be even, and 4 at least; got 5"):
        burgers.derivatives(5)
