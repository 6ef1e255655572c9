"""The fit of Misra1a against certified values, and its sensitivity against the implicit function theorem."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests.dynloop.adapter import Backend


@pytest.fixture
def fits(story: Callable[[str], Any]) -> Any:
    return story("least_squares")


@pytest.fixture
def best(fits: Any) -> np.ndarray:
    """The certified parameters, and by NumPy the digits that follow: eleven are too few to compare sensitivities at."""
    b = fits.CERTIFIED
    for _ in range(3):
        values, slopes = fits.stationary(np, fits.X, fits.Y)(b)
        b = b - np.linalg.solve(slopes, values)
    np.testing.assert_allclose(b, fits.CERTIFIED, rtol=2e-11)
    return b


@pytest.mark.parametrize("start", ["FAR", "NEAR"])
def test_levenberg_marquardt_finds_the_certified_values(fits: Any, backend: Backend, start: str) -> None:
    curve = fits.saturating(backend.xp, backend.asarray(fits.X))
    found = backend.value(
        lambda y, b: fits.levenberg_marquardt(backend.xp, curve, y, b),
        backend.asarray(fits.Y),
        backend.asarray(getattr(fits, start)),
    )
    # Certified to eleven digits.
    np.testing.assert_allclose(found.b, fits.CERTIFIED, rtol=1e-10)
    np.testing.assert_allclose(found.squares, fits.CERTIFIED_SUM, rtol=1e-9)


def test_newton_finds_the_certified_values_and_squares_its_error(fits: Any, backend: Backend) -> None:
    function = fits.stationary(backend.xp, backend.asarray(fits.X), backend.asarray(fits.Y))
    start = backend.asarray(fits.CERTIFIED * (1 + 1e-3))
    result = backend.value(lambda b: fits.newton(backend.xp, function, b), start)
    np.testing.assert_allclose(result.carry[0], fits.CERTIFIED, rtol=1e-10)
    # 1e-3, 1e-6 and 1e-12 times constants, and the step that finds nothing left.
    assert int(result.steps) <= 6


def test_sensitivity_through_levenberg_marquardt_equals_the_implicit_one(
    fits: Any, best: np.ndarray, backend: Backend
) -> None:
    curve, start = fits.saturating(backend.xp, backend.asarray(fits.X)), backend.asarray(fits.FAR)
    scaled = lambda y: (fits.levenberg_marquardt(backend.xp, curve, y, start).b / backend.asarray(fits.CERTIFIED)).sum()
    found = backend.grad(scaled)(backend.asarray(fits.Y))
    expected = (fits.sensitivity(best) / fits.CERTIFIED[:, None]).sum(0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.max(abs(expected)))


def test_sensitivity_through_newton_equals_the_implicit_one(fits: Any, best: np.ndarray, backend: Backend) -> None:
    x, start = backend.asarray(fits.X), backend.asarray(fits.CERTIFIED * (1 + 1e-3))
    first = lambda y: fits.newton(backend.xp, fits.stationary(backend.xp, x, y), start).carry[0][0]
    found = backend.grad(first)(backend.asarray(fits.Y))
    expected = fits.sensitivity(best)[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.max(abs(expected)))


def test_implicit_sensitivity_equals_differences_of_fits(fits: Any) -> None:
    # Of SciPy's fits to data that are shifted, in units in which both parameters are near 1.
    from scipy.optimize import least_squares

    def best(y: np.ndarray) -> np.ndarray:
        residuals = lambda u: y - fits.saturating(np, fits.X)(u * fits.CERTIFIED)[0]
        return least_squares(residuals, np.ones(2), xtol=1e-15, ftol=1e-15, gtol=1e-15).x

    by = 1e-3 * np.eye(14)[5]
    differences = (best(fits.Y + by) - best(fits.Y - by)) / 2e-3
    np.testing.assert_allclose(differences * fits.CERTIFIED, fits.sensitivity(fits.CERTIFIED)[:, 5], rtol=1e-3)


def test_some_steps_are_refused(fits: Any) -> None:
    curve = fits.saturating(jnp, jnp.asarray(fits.X))
    fit = fits.levenberg_marquardt(jnp, curve, jnp.asarray(fits.Y), jnp.asarray(fits.FAR))
    assert int(fit.refused) > 0
    assert int(fit.accepted) > int(fit.refused)


@pytest.mark.parametrize(
    ("count", "tolerance", "said"), [(1, 1e-9, "more measurements"), (5, 0.0, "tolerance must be positive")]
)
def test_fit_that_could_not_end_is_refused(fits: Any, count: int, tolerance: float, said: str) -> None:
    curve = fits.saturating(jnp, jnp.ones(count))
    with pytest.raises(ValueError, match=said):
        fits.levenberg_marquardt(jnp, curve, jnp.ones(count), jnp.ones(2), tolerance)


def test_newton_that_finds_no_zero_raises(fits: Any, backend: Backend) -> None:
    # b^2 + 1 has none: Newton's method wanders about for ever.
    function = lambda b: (b**2 + 1, backend.xp.diag(2 * b))
    with pytest.raises(RuntimeError, match="max_steps"):
        fits.newton(backend.xp, function, backend.asarray([0.4]))


def test_fit_is_printed_beside_the_certified_value(fits: Any, capsys: Any, tmp_path: Any) -> None:
    fits.main([str(tmp_path / "fit.png")])
    fitted, certified = (float(part.split()[-1]) for part in capsys.readouterr().out.split(","))
    assert fitted == pytest.approx(certified, rel=1e-10)
    assert (tmp_path / "fit.png").read_bytes().startswith(b"\x89PNG")
