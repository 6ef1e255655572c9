"""Checking a reverse sweep while it runs: is every state that it uses what the step before makes of the state before?

The states that a sweep uses come out of slots, out of leaf rows, or out of steps run again. Turning step i,
which starts from state i, the sweep has turned step i + 1 already; so the state it used there is compared
with what step i makes of state i.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dynloop.on_jax import internals
from dynloop.on_jax.guard import Alarm, guarded

CHANGED = Alarm(
    "verify: an integer or boolean leaf of a state that the reverse sweep used differs from what its step makes of the "
    "state before it: the body is not a function of its carry alone, or rounding has changed a decision in it",
    "observe=dynloop.verify()",
    "Leave it out.",
)


class Check(NamedTuple):
    """following: the state of the step that was turned last.

    drift: the largest so far.   is_changed: did an integer or boolean leaf ever differ?
    """

    following: list[Array]
    drift: Array
    is_changed: Array

    @staticmethod
    def begin(state: Sequence[Any], number: Any) -> "Check":
        """state: abstract values."""
        nothing = [internals.zeros_of(a) for a in state]
        return Check(nothing, number.astype(jnp.float32), number > 0)

    def after(self, state: list[Array], made: list[Array], is_compared: Array) -> "Check":
        """A step has been turned from `state`, of which it makes `made`; the last of all has no other to meet."""
        drift, is_changed = self.drift, self.is_changed
        for x, y in zip(made, self.following, strict=True):
            if jnp.issubdtype(x.dtype, jnp.inexact):
                drift = jnp.maximum(drift, jnp.where(is_compared, _drift(x, y), 0))
            else:
                x, y = (jax.random.key_data(z) if internals.is_extended(z.dtype) else z for z in (x, y))
                is_changed |= is_compared & jnp.any(x != y)
        return Check(state, drift, is_changed)

    def finish(self, report: Any, results: Sequence[Array]) -> list[Array]:
        jax.debug.callback(lambda drift: report(float(drift)), self.drift)
        return guarded(self.is_changed, results, CHANGED)


def _drift(x: Array, y: Array) -> Array:
    is_same = (x == y) | (jnp.isnan(x) & jnp.isnan(y))
    relative = jnp.abs(x - y) / jnp.maximum(jnp.abs(y), 1)
    relative = jnp.where(jnp.isnan(relative), jnp.inf, relative)
    return jnp.max(jnp.where(is_same, 0, relative), initial=0).astype(jnp.float32)
