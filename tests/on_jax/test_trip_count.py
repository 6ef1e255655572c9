"""Claims about the number of steps: it is decided by the first run, and what runs again takes it from there.

The condition here asks the host, which answers otherwise later on, as rounding might in another program.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynloop


class Host:
    """Lets a loop run while its counter is below a limit that can change."""

    def __init__(self, limit: int):
        self.limit = limit

    def allows(self, i: jax.Array) -> jax.Array:
        return jax.pure_callback(lambda i: np.asarray(i < self.limit), jax.ShapeDtypeStruct((), jnp.bool_), i)


def doubled(host: Host, **options: Any) -> Any:
    """x doubled as often as the host allows."""

    def f(x: jax.Array) -> jax.Array:
        start = (jnp.int32(0), x)
        return dynloop.while_loop(lambda c: host.allows(c[0]), lambda c: (c[0] + 1, 2 * c[1]), start, **options)[1]

    return f


@pytest.mark.parametrize("checkpoints", [1, 2, "auto"])
def test_a_linearized_loop_takes_as_many_steps_as_the_loop_did(checkpoints: Any):
    host = Host(3)
    value, linear = jax.linearize(doubled(host, checkpoints=checkpoints), jnp.asarray(1.0))
    host.limit = 5
    assert (float(value), float(linear(jnp.asarray(1.0)))) == (8.0, 8.0)


@pytest.mark.parametrize("checkpoints", [1, 2, "auto"])
def test_a_gradient_takes_as_many_steps_as_the_loop_did(checkpoints: Any):
    host = Host(3)
    value, pull = jax.vjp(doubled(host, checkpoints=checkpoints), jnp.asarray(1.0))
    host.limit = 5
    assert (float(value), float(pull(jnp.asarray(1.0))[0])) == (8.0, 8.0)


def test_a_new_run_asks_again():
    host = Host(3)
    f = doubled(host)
    first = float(f(jnp.asarray(1.0)))
    host.limit = 5
    assert (first, float(f(jnp.asarray(1.0)))) == (8.0, 32.0)
