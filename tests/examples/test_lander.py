"""The lander against the rocket equation: where it stands still, when, what it burnt, and what moves all three."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

from tests.dynloop.adapter import Backend


@pytest.fixture(scope="module")
def lander(story: Callable[[str], Any]) -> Any:
    return story("lander")


def in_closed_form(lander: Any, ignition: float, throttle: float) -> tuple[float, float]:
    """Height and fuel where it stands still, lit at any time (Tsiolkovsky 1903)."""
    share = throttle * lander.PUSH / lander.EXHAUST
    speed = lander.SPEED - lander.GRAVITY * ignition
    left = lambda t: speed - lander.GRAVITY * t - lander.EXHAUST * np.log1p(-share * t)
    burning: Any = brentq(left, 1.0, 200.0, xtol=1e-12, rtol=np.float64(1e-14))
    rest = 1 - share * burning
    lit = lander.HEIGHT + lander.SPEED * ignition - lander.GRAVITY * ignition**2 / 2
    won = lander.EXHAUST * (rest * np.log(rest) + share * burning) / share
    return lit + speed * burning - lander.GRAVITY * burning**2 / 2 + won, share * burning


def slopes_in_closed_form(lander: Any, ignition: float, throttle: float) -> np.ndarray:
    """Their derivatives by ignition and by throttle, [2, 2], by central differences."""
    value = lambda *at: np.array(in_closed_form(lander, *at))
    by_ignition = (value(ignition + 1e-4, throttle) - value(ignition - 1e-4, throttle)) / 2e-4
    by_throttle = (value(ignition, throttle + 1e-5) - value(ignition, throttle - 1e-5)) / 2e-5
    return np.stack([by_ignition, by_throttle], -1)


def test_landing_and_its_slopes_equal_the_rocket_equation(lander: Any, backend: Backend) -> None:
    at = (20.0, 0.9)
    if backend.library == "jax":
        *slopes, landing = lander.slopes(*at)
        found = np.stack(slopes, -1)
    else:
        landing = lander.land(backend.xp, *map(backend.asarray, at))
        height = lambda *at: lander.land(backend.xp, *at).height
        found = np.stack(backend.grad(height, (0, 1))(*map(backend.asarray, at)))[None]
    np.testing.assert_allclose([landing.height, landing.fuel], in_closed_form(lander, *at), rtol=1e-8)
    np.testing.assert_allclose(found, slopes_in_closed_form(lander, *at)[: len(found)], rtol=1e-6)


def test_ignition_is_that_of_the_rocket_equation_and_full_throttle_is_best(
    lander: Any, capsys: Any, tmp_path: Any
) -> None:
    lander.main([str(tmp_path / "lander.png")])
    lines = capsys.readouterr().out.splitlines()
    for line, known in zip(lines, lander.by_rocket_equation(), strict=False):
        assert f"rocket equation {known:.6f}" in line
        assert float(line.split()[1].strip(",")) == pytest.approx(known, abs=2e-6)
    assert (tmp_path / "lander.png").read_bytes().startswith(b"\x89PNG")
    # Where the landing stays soft, the closed form tells what less throttle costs.
    price = (lander.by_rocket_equation(1.0)[2] - lander.by_rocket_equation(1 - 1e-5)[2]) / 1e-5
    assert lander.price_of_throttle(lander.best_ignition()) == pytest.approx(price, rel=1e-3)
    assert price < 0


def test_newton_that_does_not_arrive_says_so(lander: Any) -> None:
    with pytest.raises(RuntimeError, match=r"20 steps of Newton's method from ignition=0\.5 leave"):
        lander.newton(lambda x: (1 + x**2, 2 * x), 0.5)
