"""A network that is a differential equation: its gradient against Python's steps, its forecasts beside others'."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.dynloop.adapter import Backend


@pytest.fixture(scope="module")
def neural(story: Callable[[str], Any]) -> Any:
    return story("neural_ode")


def by_many_steps(neural: Any, network: Any, logs: Any, steps: int = 50) -> Any:
    """A year by the classical method of Runge and Kutta, in equal steps."""
    rates, by = neural.network_rates(jnp, network), 1 / steps

    def step(logs: Any, _: None) -> tuple[Any, None]:
        first = rates(logs)
        second = rates(logs + by / 2 * first)
        third = rates(logs + by / 2 * second)
        return logs + by / 6 * (first + 2 * second + 2 * third + rates(logs + by * third)), None

    return jax.lax.scan(step, logs, length=steps)[0]


def test_loss_and_its_gradient_are_those_of_many_small_steps(neural: Any, backend: Backend) -> None:
    plain = neural.newborn()
    before, after = np.array([[0.2, -1.0], [3.0, 2.0]]), np.array([[0.5, -0.5], [1.0, 0.1]])
    vmap = import_module(backend.library).vmap
    pairs = backend.asarray(before), backend.asarray(after)
    loss = lambda *parts: neural.network_loss(backend.xp, vmap, type(plain)(*parts), *pairs)

    def expected(network: Any) -> Any:
        missed = jax.vmap(lambda logs: by_many_steps(neural, network, logs))(jnp.asarray(before)) - after
        weight = jnp.sum(network.first**2) + jnp.sum(network.last**2)
        return (jnp.sum(missed**2) + neural.DECAY * weight) / 2

    slope = jax.jit(jax.grad(expected))(jax.tree.map(jnp.asarray, plain))
    for found, known in zip(backend.grad(loss, tuple(range(4)))(*map(backend.asarray, plain)), slope, strict=True):
        np.testing.assert_allclose(found, known, rtol=0, atol=1e-3 * np.max(abs(known)))


def test_held_out_years_are_forecast_better_than_by_a_linear_map(neural: Any, capsys: Any, tmp_path: Any) -> None:
    neural.main([str(tmp_path / "neural.png")], updates=60)
    errors = {line[:20].strip(): float(line[20:]) for line in capsys.readouterr().out.splitlines()[1:]}
    assert list(errors) == ["neural ODE", "Lotka and Volterra", "linear map", "as it was"]
    assert errors["neural ODE"] < errors["linear map"] < errors["as it was"]
    assert (tmp_path / "neural.png").read_bytes().startswith(b"\x89PNG")


def test_no_later_year_teaches(neural: Any) -> None:
    years, logs = neural.record()
    taught = years <= neural.LAST_TAUGHT
    assert taught.sum() == 14
    np.testing.assert_allclose(logs[taught].mean(axis=0), 0, rtol=0, atol=1e-12)
