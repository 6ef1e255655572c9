"""Rays that walk to a ball against the quadratic equation, and the ball recovered from its picture."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.dynloop.adapter import Backend


@pytest.fixture
def march(story: Callable[[str], Any]) -> Any:
    return story("ray_march")


def test_picture_and_gradient_equal_the_formula(march: Any, backend: Backend) -> None:
    directions, weights = march.rays(8), np.cos(np.arange(64))
    vmap = import_module(backend.library).vmap
    seen = lambda ball: march.picture_of(backend.xp, vmap, ball, backend.asarray(directions))
    formula = lambda ball: march.picture_by_formula(ball, jnp.asarray(directions))
    ball = backend.asarray(march.TRUE)
    exact = formula(jnp.asarray(march.TRUE))
    np.testing.assert_allclose(backend.value(seen, ball), exact, rtol=0, atol=1e-7)
    assert 10 < np.sum(np.asarray(exact) > 0) < 54, "some rays must hit and some must miss"
    slope = backend.grad(lambda ball: (seen(ball) * backend.asarray(weights)).sum())(ball)
    exact_slope = jax.grad(lambda ball: formula(ball) @ weights)(jnp.asarray(march.TRUE))
    np.testing.assert_allclose(slope, exact_slope, rtol=0, atol=1e-6 * np.max(abs(exact_slope)))


def test_rays_take_different_numbers_of_steps(march: Any) -> None:
    steps = jax.vmap(lambda ray: march.walk(jnp, jnp.asarray(march.TRUE), ray).steps)(jnp.asarray(march.rays(8)))
    assert int(jnp.max(steps)) > 3 * int(jnp.min(steps)) > 0


def test_ball_is_recovered_from_its_picture(march: Any, capsys: Any, tmp_path: Any) -> None:
    march.main([str(tmp_path / "ball.png")])
    found, true = (float(part.split()[-1]) for part in capsys.readouterr().out.split(","))
    assert found == pytest.approx(true, abs=1e-5)
    assert (tmp_path / "ball.png").read_bytes().startswith(b"\x89PNG")


def test_picture_without_pixels_is_refused(march: Any) -> None:
    with pytest.raises(ValueError, match="side must be the number of pixels"):
        march.rays(0)
