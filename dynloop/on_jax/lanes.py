"""Lanes that stop by themselves: how a batch of loops runs in one.

Under `vmap` the lanes of a batch take different numbers of steps. Masking a finished lane after the
step would still evaluate the body on a state whose condition is false, where it may divide by zero,
and its gradient would be 0 * inf. So the body sees, for a finished lane, that lane's *last legal
input* again and again: the state that its last step started from. What the body makes of it is the
lane's result, so nothing has to be masked on the way forward; the states that are kept for the
reverse sweep are these inputs. A lane that takes no step at all borrows the state and the constants
of one that does, once, before the loop.

Backward, step i of a lane is real if i is less than the lane's number of steps: no condition is
evaluated again. A lane's cotangent passes through the steps that are not real.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from dynloop.on_jax.flat import cut
from dynloop.on_jax.step import Loop


class Running(NamedTuple):
    """A batch of loops between two steps.

    inputs: what the body sees next, each leaf [*lanes, ...].   outputs: what it returned last.
    is_live: [*lanes] whether the next step is real.   steps: int32[*lanes], real steps taken.
    """

    inputs: list[Array]
    outputs: list[Array]
    is_live: Array
    steps: Array


class Batch:
    """The lanes of one loop, whose constants that vary have been borrowed where a lane takes no step."""

    def __init__(self, loop: Loop, constants: Sequence[Any], is_started: Array):
        self.loop, self.is_started = loop, is_started
        self.constants = [
            self.borrowed(c) if varies else c for c, varies in zip(constants, loop.lane_constants, strict=True)
        ]

    def borrowed(self, x: Array) -> Array:
        """Lanes that take no step have the entry of the first lane that takes one."""
        n = len(self.loop.lanes)
        flat = x.reshape(-1, *x.shape[n:]) if n > 1 else x
        first = lax.argmax(self.is_started.reshape(-1), 0, jnp.int32)
        lender = lax.dynamic_index_in_dim(flat, first, 0, keepdims=False)
        return choose(self.is_started, x, jnp.broadcast_to(lender, x.shape))

    def begin(self, carry: list[Array]) -> Running:
        steps = jnp.zeros(self.loop.lanes, jnp.int32)
        return Running([self.borrowed(x) for x in carry], carry, self.is_started, steps)

    def step(self, run: Running) -> Running:
        outputs = self.loop.body(*self.constants, *run.inputs)
        is_live = run.is_live & self.loop.cond(*self.constants, *outputs)[0]
        inputs = [choose(is_live, new, old) for new, old in zip(outputs, run.inputs, strict=True)]
        return Running(inputs, outputs, is_live, run.steps + run.is_live.astype(jnp.int32))

    def finish(self, run: Running, carry: list[Array]) -> list[Array]:
        """Each lane's final carry: its own start if it took no step."""
        return [choose(self.is_started, out, start) for out, start in zip(run.outputs, carry, strict=True)]


def begin(loop: Loop, args: Sequence[Any]) -> tuple[Batch, Running, list[Array]]:
    """A batch at its start, and its carry."""
    constants, carry = cut(args, loop.constants, loop.carries)
    batch = Batch(loop, constants, loop.cond(*constants, *carry)[0])
    return batch, batch.begin(carry), carry


class Ended(NamedTuple):
    """The lanes of a batch that has run, each of which took its own number of steps; for the way back."""

    steps: Array

    def advanced(self, i: Array, new: list[Array], old: list[Array]) -> list[Array]:
        """The states i + 1: a finished lane stays at its last legal input."""
        return [choose(i + 1 < self.steps, x, y) for x, y in zip(new, old, strict=True)]

    def seen(self, i: Array, cotangents: list[Array]) -> list[Array]:
        """What the transposed step i is given: nothing flows into the steps that are not real."""
        return [choose(i < self.steps, ct, jnp.zeros_like(ct)) for ct in cotangents]

    def passed(self, i: Array, new: list[Array], old: list[Array]) -> list[Array]:
        """The cotangents before step i: those after it, where it is not real."""
        return [choose(i < self.steps, x, y) for x, y in zip(new, old, strict=True)]


def choose(mask: Array, new: Array, old: Array) -> Array:
    """`new` in the lanes where the mask holds, `old` in the others."""
    return lax.select(lax.broadcast_in_dim(mask, new.shape, tuple(range(mask.ndim))), new, old)
