"""How the reverse sweep comes to its next run of stored states.

A *run* is a stretch of consecutive states that lie in the buffers, the last of them the next to be
reversed. When one has been reversed, the sweep descends from the newest checkpoint: it advances to
the next split storing nothing, and stores the split; or, where all states up to the end fit, it
stores every one of them, which makes the next run.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dynloop.on_jax.placement import I32, Binomials, entry, known_stack, stack_of
from dynloop.on_jax.tiers import Buffers

Advance = Callable[[Array, list[Array]], list[Array]]


class Sweep(NamedTuple):
    """Where the reverse sweep stands: a run, and the stack of checkpoints below it.

    first, end: the run's states are first..end-1; reversing it lowers `end` to `first`.
    anchor: without leaf rows, state minus place on the stack, the same for all of the run; with leaf
        rows, the one state of the run that lies in a slot, or -1.
    top: the newest place below the run.   source: the place that the next descent starts from.
    states, levels: see `Stack`.
    """

    first: Array
    end: Array
    anchor: Array
    top: Array
    source: Array
    states: Array
    levels: Array


class Split(NamedTuple):
    """Where a descent goes: advance to `start` storing nothing, then to `stop` storing every state.

    offset: blocks from the newest checkpoint to the split.  is_leaf: every state up to the end is stored.
    """

    start: Array
    stop: Array
    offset: Array
    is_leaf: Array


class Descent:
    """The descents of one loop's reverse sweep.

    advance: one step of the loop, from step i and state i to state i + 1.
    steps: int32[], the number of steps.   stored: int32[slots + 1], see `stack_of`.
    is_known: the number of steps was known when the states were stored.
    """

    def __init__(self, buffers: Buffers, advance: Advance, steps: Array, stored: Array, is_known: bool):
        self.buffers, self.layout, self.advance = buffers, buffers.layout, advance
        layout = self.layout
        self.binomials = None if self.layout.is_complete else Binomials(self.layout.slots)
        self.place = np.arange(self.layout.slots + 1, dtype=np.int32)
        # The forward pass left a run in the leaf rows; without them the first run is yet to be made.
        first = jnp.maximum(steps - layout.leaf, 0) if layout.leaf else steps
        choose = known_stack if is_known and not layout.is_complete else stack_of
        stack = choose(self.layout, stored, self.blocks(first))
        self.rows = stack.rows
        self.start = Sweep(first, steps, jnp.full_like(steps, -1), stack.top, stack.source, stack.states, stack.levels)

    def row_of(self, sweep: Sweep, i: Array) -> Array:
        """The row of state i of the run."""
        if not self.layout.leaf:
            return entry(self.rows, i - sweep.anchor)
        return jnp.where(i == sweep.anchor, entry(self.rows, sweep.top + 1), self.leaf_row(i))

    def descend(self, sweep: Sweep, buffers: list[Array]) -> tuple[Sweep, list[Array]]:
        """One descent. It leaves an empty run, first = end, where it stored a split that is not next to the end."""
        # Below the first state there is no top; then end is 0, and `split` has nothing to do.
        end, top = sweep.end, jnp.maximum(sweep.top, 0)
        split = self.split(sweep, top)
        buffers = self.store(buffers, sweep, top, split)
        base, level = entry(sweep.states, top), entry(sweep.levels, top)
        # The right gap of a split keeps its number of sweeps, the left one has one less.
        levels = jnp.where(self.place == top, level - 1, jnp.where(self.place == top + 1, level, sweep.levels))
        if self.layout.leaf:
            is_run, first = split.is_leaf & (end > 0), base * self.layout.block
            states = jnp.where(self.place == top + 1, base + split.offset, sweep.states)
            new_top, anchor = jnp.where(split.is_leaf, top - 1, top + 1), first
        else:
            newest = top + split.stop - split.start
            pushed = (self.place > top) & (self.place <= newest)
            states = jnp.where(pushed, split.start + self.place - top, sweep.states)
            anchor = entry(states, newest) - newest
            # States ascend strictly, so equal differences at two places mean equal differences between.
            consecutive = (states - self.place == anchor) & (self.place <= newest)
            lowest = lax.argmax(consecutive, 0, np.int32)
            is_run, first = (anchor + newest == end - 1) & (end > 0), anchor + lowest
            new_top = jnp.where(is_run, lowest - 1, newest)
        return Sweep(jnp.where(is_run, first, end), end, anchor, new_top, new_top, states, levels), buffers

    def split(self, sweep: Sweep, top: Array) -> Split:
        """The next split below the end; nothing to do when no step is left."""
        end, base, slots, block = sweep.end, entry(sweep.states, top), self.layout.slots - top, self.layout.block
        length, source = self.blocks(end) - base, entry(sweep.states, sweep.source)
        if self.binomials is None:
            is_leaf, offset = jnp.asarray(True), jnp.asarray(1, I32)
        else:
            is_leaf = length == 1 if self.layout.leaf else length - 1 <= slots
            offset = self.binomials.first_offset(length, slots, entry(sweep.levels, top))
            # A first sweep that starts late, from a dropped state, splits no earlier than after its first step.
            offset = jnp.maximum(offset, source - base + 1)
        source, target = source * block, (base + offset) * block
        start = jnp.where(is_leaf | (end == 0), source, target - 1)
        stop = jnp.where(end == 0, source, jnp.where(is_leaf, end - 1, target))
        return Split(start, stop, offset, is_leaf)

    def store(self, buffers: list[Array], sweep: Sweep, top: Array, split: Split) -> list[Array]:
        """Run the steps of a descent, storing the states after `split.start`."""

        def run_and_store(w: Any) -> Any:
            i, state, buffers = w
            until = jnp.maximum(i, split.start) + 1
            i, state = lax.while_loop(lambda v: v[0] < until, lambda v: (v[0] + 1, self.advance(*v)), (i, state))
            if self.layout.leaf:
                row = jnp.where(split.is_leaf, self.leaf_row(i), entry(self.rows, top + 1))
            else:
                row = entry(self.rows, top + i - split.start)
            return i, state, self.buffers.put(buffers, state, row)

        source = entry(sweep.states, sweep.source) * self.layout.block
        start = (source, self.buffers.get(buffers, entry(self.rows, sweep.source)), buffers)
        return lax.while_loop(lambda w: w[0] < split.stop, run_and_store, start)[2]

    def leaf_row(self, i: Array) -> Array:
        return (self.layout.rows - self.layout.leaf) + lax.rem(i, np.int32(self.layout.leaf))

    def blocks(self, steps: Array) -> Array:
        return lax.div(steps + np.int32(self.layout.block - 1), np.int32(self.layout.block))
