"""Claims about forward passes that are run again: they take the steps of the first run, whatever the condition says."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynloop
from tests.closeness import assert_close
from tests.oracles import unrolled

STEPS = 5
ORDERS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "reverse over reverse": lambda f: jax.grad(lambda x: jnp.sum(jax.grad(f)(x) * jnp.arange(1.0, 4.0))),
    "forward over reverse": lambda f: lambda x: jax.jvp(jax.grad(f), (x,), (jnp.arange(1.0, 4.0),))[1],
    "reverse over forward": lambda f: jax.grad(lambda x: jax.jvp(f, (x,), (jnp.arange(1.0, 4.0),))[1]),
    "reverse three times": lambda f: jax.grad(
        lambda x: jnp.sum(jax.grad(lambda x: jnp.sum(jax.grad(f)(x) * x))(x) * jnp.arange(1.0, 4.0))
    ),
}


class WaveringCondition:
    """Holds for `STEPS` steps in the first run of a loop, and for twice as many in each later one."""

    def __init__(self) -> None:
        self.runs = 0

    def holds(self, i: Any) -> Any:
        self.runs += int(i) == 0
        return np.bool_(int(i) < (STEPS if self.runs == 1 else 2 * STEPS))

    def __call__(self, carry: Any) -> Any:
        return jax.pure_callback(self.holds, jax.ShapeDtypeStruct((), jnp.bool_), carry[0])


def body(carry: Any) -> Any:
    i, x = carry
    return i + 1, jnp.sin(x) * 1.1 + 0.2 * x


@pytest.mark.parametrize("order", ORDERS)
def test_a_condition_that_changes_its_mind_does_not_change_the_steps(order: str):
    condition = WaveringCondition()

    def f(x: Any) -> Any:
        return jnp.sum(dynloop.while_loop(condition, body, (jnp.int32(0), x), checkpoints=2)[1] ** 2)

    def reference(x: Any) -> Any:
        return jnp.sum(unrolled(lambda c: c[0] < STEPS, body, (0, x))[1] ** 2)

    x = jnp.array([0.3, -0.5, 0.9])
    assert_close(jax.jit(ORDERS[order](f))(x), ORDERS[order](reference)(x))
    assert condition.runs >= 1
