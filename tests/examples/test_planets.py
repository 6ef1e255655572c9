"""The sampler against the posterior in closed form, and its motion against a Python loop."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.fixture(scope="module")
def planets(story: Callable[[str], Any]) -> Any:
    return story("planets")


@pytest.fixture(scope="module")
def sampled(planets: Any) -> tuple[Any, np.ndarray]:
    chains, draws = planets.sample_all(jax.random.key(0))
    return chains, np.asarray(draws)[:, planets.WARM_UP :]


def test_mean_lies_within_three_standard_errors_of_the_exact_one(planets: Any, sampled: Any) -> None:
    mean, error = planets.mean_and_error(sampled[1])
    assert np.all(abs(mean - planets.exact()[0]) < 3 * error)
    assert np.all(error < 0.05 * np.sqrt(np.diag(planets.exact()[1]))), "so few draws would show nothing"


def test_covariance_equals_the_exact_one(planets: Any, sampled: Any) -> None:
    found = np.cov(sampled[1].reshape(-1, 2).T)
    exact = planets.exact()[1]
    np.testing.assert_allclose(found, exact, rtol=0, atol=0.05 * np.max(abs(exact)))


def test_most_proposals_are_accepted_and_some_are_not(planets: Any, sampled: Any) -> None:
    share = float(np.mean(sampled[0].accepted)) / planets.DRAWS
    assert 0.6 < share < 0.999


def python_loop(planets: Any, key: jax.Array, position: jax.Array, momentum: jax.Array) -> tuple[Any, Any, int]:
    """The oracle: the same coins, thrown one after the other."""
    slope, goes_on, steps = jax.grad(planets.potential), True, 0
    while goes_on:
        key, coin = jax.random.split(key)
        half = momentum - planets.STEP / 2 * slope(position)
        position = position + planets.STEP * half
        momentum = half - planets.STEP / 2 * slope(position)
        goes_on, steps = bool(jax.random.bernoulli(coin, planets.GOES_ON)), steps + 1
    return position, momentum, steps


def test_motion_and_its_gradient_equal_the_python_loop(planets: Any) -> None:
    key, start, kick = jax.random.key(3), jnp.array([0.02, 1.45]), jnp.array([0.5, -1.0])
    result = planets.follow(planets.potential, key, start, kick, checkpoints=2)
    position, momentum, steps = python_loop(planets, key, start, kick)
    assert int(result.steps) == steps > 2
    np.testing.assert_allclose(result.carry.position, position, rtol=1e-12)
    np.testing.assert_allclose(result.carry.momentum, momentum, rtol=1e-11)
    looped = lambda x: planets.follow(planets.potential, key, x, kick, checkpoints=2).carry.position.sum()
    unrolled = lambda x: python_loop(planets, key, x, kick)[0].sum()
    np.testing.assert_allclose(jax.grad(looped)(start), jax.grad(unrolled)(start), rtol=1e-10)


def test_motion_runs_backwards_to_its_start(planets: Any) -> None:
    key, start, kick = jax.random.key(3), jnp.array([0.02, 1.45]), jnp.array([0.5, -1.0])
    there = planets.follow(planets.potential, key, start, kick).carry
    back = planets.follow(planets.potential, key, there.position, -there.momentum).carry
    np.testing.assert_allclose(back.position, start, rtol=1e-11)
    np.testing.assert_allclose(-back.momentum, kick, rtol=1e-9)


def test_bad_input_is_refused(planets: Any) -> None:
    with pytest.raises(ValueError, match=r"one point, \[n\]"):
        planets.sample(planets.potential, jax.random.key(0), jnp.zeros((3, 2)))
    with pytest.raises(ValueError, match="draws must be at least 1"):
        planets.sample(planets.potential, jax.random.key(0), jnp.zeros(2), draws=0)


def test_slope_is_printed_beside_the_exact_one(planets: Any, capsys: Any, tmp_path: Any) -> None:
    planets.main([str(tmp_path / "planets.png")])
    printed = capsys.readouterr().out
    assert f"exact {planets.exact()[0][1]:.6f}" in printed
    assert (tmp_path / "planets.png").read_bytes().startswith(b"\x89PNG")
