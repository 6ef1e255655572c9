"""The three loops that the gradient benchmarks time: a tiny state, a long vector, a batch through a network.

Each problem is a function of a loop, `loop(cond, body, init) -> carry`, so that every library runs
the same step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

Loop = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class Problem:
    """loss(loop, steps, parameters) is differentiated with respect to `parameters`."""

    name: str
    steps: int
    parameters: Any
    loss: Callable[[Loop, Any, Any], Any]


def lorenz(steps: int = 10_000) -> Problem:
    """Classical Runge-Kutta on Lorenz' system: 3 numbers, three closed-over parameters."""

    def loss(loop: Loop, n: Any, parameters: Any) -> Any:
        start, (sigma, rho, beta) = parameters

        def field(y: Any) -> Any:
            return jnp.stack([sigma * (y[1] - y[0]), y[0] * (rho - y[2]) - y[1], y[0] * y[1] - beta * y[2]])

        def body(carry: Any) -> Any:
            i, y = carry
            h = 1e-3
            k1 = field(y)
            k2 = field(y + h / 2 * k1)
            k3 = field(y + h / 2 * k2)
            k4 = field(y + h * k3)
            return i + 1, y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

        return jnp.sum(loop(lambda c: c[0] < n, body, (jnp.int32(0), start))[1])

    return Problem("Lorenz", steps, (jnp.array([1.0, 2.0, 20.0]), jnp.array([10.0, 28.0, 8 / 3])), loss)


def burgers(steps: int = 1000, points: int = 10_000) -> Problem:
    """Burgers' equation with viscosity on a periodic grid, explicit steps: one long vector.

    The viscosity is in units of dx, so that the explicit step is stable at any number of points.
    """

    def loss(loop: Loop, n: Any, parameters: Any) -> Any:
        start, viscosity = parameters
        dx = 1.0 / points
        dt = 0.2 * dx

        def body(carry: Any) -> Any:
            i, u = carry
            left, right = jnp.roll(u, 1), jnp.roll(u, -1)
            flux = u * (right - left) / (2 * dx)
            return i + 1, u + dt * (viscosity * dx * (right - 2 * u + left) / dx**2 - flux)

        return jnp.sum(loop(lambda c: c[0] < n, body, (jnp.int32(0), start))[1] ** 2)

    x = jnp.linspace(0, 1, points, endpoint=False)
    return Problem("Burgers", steps, (jnp.sin(2 * jnp.pi * x), jnp.array(0.3)), loss)


def network(steps: int = 200, batch: int = 256, width: int = 128) -> Problem:
    """A neural ODE by Euler steps: a batch through two layers whose weights are closed over."""
    keys = jax.random.split(jax.random.key(0), 3)
    weights = [jax.random.normal(k, (width, width)) / width**0.5 for k in keys[:2]]

    def loss(loop: Loop, n: Any, parameters: Any) -> Any:
        start, (first, second) = parameters

        def body(carry: Any) -> Any:
            i, y = carry
            return i + 1, y + 0.01 * jnp.tanh(y @ first) @ second

        return jnp.mean(loop(lambda c: c[0] < n, body, (jnp.int32(0), start))[1] ** 2)

    return Problem("MLP", steps, (jax.random.normal(keys[2], (batch, width)), weights), loss)
