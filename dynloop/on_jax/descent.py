"""How the reverse sweep comes to its next run of stored states.

A *run* is a stretch of consecutive states that lie in the buffers, the last of them the next to be
reversed. When one has been reversed, the sweep descends from the newest checkpoint: it advances to
the next split storing nothing, and stores the split; or, where all states up to the end fit, it
stores every one of them, which makes the next run.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dynloop.on_jax.forward import get, put
from dynloop.on_jax.placement import Binomials, Stack, entry, stack_of
from dynloop.on_jax.step import Loop


class Run(NamedTuple):
    """States first..end-1; the reverse sweep lowers `end` to `first`.

    anchor: without leaf rows, state minus place on the stack, the same for all of the run; with
    leaf rows, the one state of the run that lies in a slot, or -1.
    """

    first: Array
    end: Array
    anchor: Array


class Sweep(NamedTuple):
    """The reverse sweep between two runs. `stack.top` is the newest place below the run."""

    run: Run
    stack: Stack
    buffers: list[Array]
    cotangents: list[Array]
    sums: list[Array]


class Split(NamedTuple):
    """Where a descent goes: advance to `start` storing nothing, then to `stop` storing every state.

    offset: blocks from the newest checkpoint to the split.  is_leaf: every state up to the end is stored.
    """

    start: Array
    stop: Array
    offset: Array
    is_leaf: Array


class Descent:
    """The descents of one loop's reverse sweep."""

    def __init__(self, loop: Loop, constants: Sequence[Any]):
        self.loop, self.constants, self.layout = loop, constants, loop.layout
        self.binomials = None if self.layout.is_complete else Binomials(self.layout.slots)
        self.place = np.arange(self.layout.slots + 1, dtype=np.int32)
        self.first_leaf_row = self.layout.rows - self.layout.leaf

    def begin(self, steps: Array, stored: Array) -> tuple[Run, Stack]:
        """The run that the forward pass left in the leaf rows, if any, and the checkpoints to keep below it."""
        first = jnp.maximum(steps - self.layout.leaf, 0)
        return Run(first, steps, jnp.full_like(steps, -1)), stack_of(self.layout, stored, self.blocks(first))

    def next_run(self, sweep: Sweep) -> Sweep:
        """Descend until the states below `sweep.run.end` are stored, by one split or all of them."""
        end, stack = sweep.run.end, sweep.stack
        top = jnp.maximum(stack.top, 0)
        split = self.split(end, stack, top)
        buffers = self.advance(sweep.buffers, stack, top, split)
        if not self.layout.leaf:
            count = split.stop - split.start
            pushed = (self.place > top) & (self.place <= top + count)
            states = jnp.where(pushed, split.start + self.place - top, stack.states)
            run, new_top = self.stack_run(states, top + count, end)
        else:
            base = entry(stack.states, top)
            first = base * self.layout.block
            states = jnp.where(self.place == top + 1, base + split.offset, stack.states)
            new_top = jnp.where(split.is_leaf, top - 1, top + 1)
            is_run = split.is_leaf & (end > 0)
            run = Run(jnp.where(is_run, first, end), end, first)
        # The right gap of a split keeps its number of sweeps, the left one has one less.
        level = entry(stack.levels, top)
        levels = jnp.where(self.place == top, level - 1, jnp.where(self.place == top + 1, level, stack.levels))
        source, row = entry(states, new_top), entry(stack.rows, new_top)
        return sweep._replace(run=run, stack=Stack(states, stack.rows, levels, new_top, source, row), buffers=buffers)

    def split(self, end: Array, stack: Stack, top: Array) -> Split:
        """The next split below `end`; nothing to do when no step is left."""
        base, slots, block = entry(stack.states, top), self.layout.slots - top, self.layout.block
        length, source = self.blocks(end) - base, stack.source * block
        if self.binomials is None:
            is_leaf, offset = jnp.asarray(True), jnp.asarray(1, jnp.int32)
        else:
            is_leaf = length == 1 if self.layout.leaf else length - 1 <= slots
            offset = self.binomials.first_offset(length, slots, entry(stack.levels, top))
            # A first sweep that starts late, from a dropped state, splits no earlier than after its first step.
            offset = jnp.maximum(offset, stack.source - base + 1)
        target = (base + offset) * block
        start = jnp.where(is_leaf | (end == 0), source, target - 1)
        stop = jnp.where(end == 0, source, jnp.where(is_leaf, end - 1, target))
        return Split(start, stop, offset, is_leaf)

    def advance(self, buffers: list[Array], stack: Stack, top: Array, split: Split) -> list[Array]:
        """Run the steps of a descent, storing the states after `split.start`."""

        def body(state: list[Array]) -> list[Array]:
            return self.loop.body(*self.constants, *state)

        def store(w: Any) -> Any:
            i, state, buffers = w[0] + 1, body(w[1]), w[2]
            if self.layout.leaf:
                in_leaf = self.first_leaf_row + lax.rem(i, np.int32(self.layout.leaf))
                row = jnp.where(split.is_leaf, in_leaf, entry(stack.rows, top + 1))
            else:
                row = entry(stack.rows, top + i - split.start)
            return i, state, put(buffers, state, row)

        source = (stack.source * self.layout.block, get(buffers, stack.source_row))
        i, state = lax.while_loop(lambda w: w[0] < split.start, lambda w: (w[0] + 1, body(w[1])), source)
        return lax.while_loop(lambda w: w[0] < split.stop, store, (i, state, buffers))[2]

    def stack_run(self, states: Array, top: Array, end: Array) -> tuple[Run, Array]:
        """The run in consecutive places of the stack up to `top`, and the newest place below it."""
        newest = entry(states, top)
        anchor = newest - top
        # States ascend strictly, so equal differences at two places mean equal differences between.
        consecutive = (states - self.place == anchor) & (self.place <= top)
        lowest = top + 1 - jnp.sum(consecutive, dtype=jnp.int32)
        is_run = (newest == end - 1) & (end > 0)
        return Run(jnp.where(is_run, anchor + lowest, end), end, anchor), jnp.where(is_run, lowest - 1, top)

    def blocks(self, steps: Array) -> Array:
        return lax.div(steps + np.int32(self.layout.block - 1), np.int32(self.layout.block))
