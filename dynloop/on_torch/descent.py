"""How the reverse sweep comes to its next run of stored states.

A *run* is a stretch of consecutive states that lie in the buffers, the last of them the next to be reversed. When one
has been reversed, the sweep descends from the newest checkpoint: it advances to the next split storing nothing, and
stores the split; or, where all states up to the end fit, it stores every one of them, which makes the next run.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dynloop.checkpoints import Layout
from dynloop.on_torch.arguments import cut
from dynloop.on_torch.placement import Binomials, blocks_of, complete_stack, entry, known_stack, stack_of
from dynloop.on_torch.storing_loop import get, put, run

Advance = Callable[[Tensor, list[Tensor], list[Any]], list[Tensor]]


class Sweep(NamedTuple):
    """Where the reverse sweep stands: a run, and the stack of checkpoints below it.

    first, end: the run's states are first..end-1; reversing it lowers `end` to `first`.
    anchor: without leaf rows, state minus place on the stack, the same for all of the run; with leaf rows, the one
        state of the run that lies in a slot, or -1.
    top: the newest place below the run.   source: the place that the next descent starts from.
    states, levels: see `Stack`.
    """

    first: Tensor
    end: Tensor
    anchor: Tensor
    top: Tensor
    source: Tensor
    states: Tensor
    levels: Tensor


class Split(NamedTuple):
    """Where a descent goes: advance to `start` storing nothing, then to `stop` storing every state.

    offset: blocks from the newest checkpoint to the split.  is_leaf: every state up to the end is stored.
    """

    start: Tensor
    stop: Tensor
    offset: Tensor
    is_leaf: Tensor


class Descent:
    """The descents of one loop's reverse sweep.

    steps: the number of steps.   stored: [slots + 1], see `stack_of`.
    is_known: the number of steps was known when the states were stored.
    tables: tensors that every call is given: the rows of the stack's places, and beta.
    """

    def __init__(self, layout: Layout, steps: Tensor, stored: Tensor, is_known: bool):
        self.layout = layout
        self.binomial = Binomials(layout.slots, Binomials.table_of(layout.slots, steps.device))
        # The forward pass left a run in the leaf rows; without them the first run is yet to be made.
        first = torch.clamp(steps - layout.leaf, min=0) if layout.leaf else steps + 0
        end = blocks_of(first, layout)
        if layout.is_complete:
            stack = complete_stack(layout, stored, end)
        elif is_known:
            stack = known_stack(layout, self.binomial, stored, end)
        else:
            stack = stack_of(layout, self.binomial, stored, end)
        self.tables = [stack.rows, self.binomial.padded]
        anchor = torch.full_like(steps, -1)
        self.start = Sweep(first, steps + 0, anchor, stack.top, stack.source, stack.states + 0, stack.levels + 0)

    def row_of(self, tables: list[Tensor], sweep: Sweep, i: Tensor) -> Tensor:
        """The row of state i of the run."""
        if not self.layout.leaf:
            return entry(tables[0], i - sweep.anchor)
        return torch.where(i == sweep.anchor, entry(tables[0], sweep.top + 1), self.leaf_row(i))

    def descend(
        self, tables: list[Tensor], sweep: Sweep, buffers: list[Tensor], advance: Advance, given: list[Any]
    ) -> tuple[Sweep, list[Tensor]]:
        """One descent. It leaves an empty run, first = end, where it stored a split that is not next to the end."""
        # Below the first state there is no top; then end is 0, and `split` has nothing to do.
        end, top = sweep.end, torch.clamp(sweep.top, min=0)
        place = torch.arange(self.layout.slots + 1, device=end.device)
        split = self.split(tables, sweep, top)
        buffers = self.store(tables, buffers, sweep, top, split, advance, given)
        base, level = entry(sweep.states, top), entry(sweep.levels, top)
        # The right gap of a split keeps its number of sweeps, the left one has one less.
        levels = torch.where(place == top, level - 1, torch.where(place == top + 1, level, sweep.levels))
        if self.layout.leaf:
            is_run, first = split.is_leaf & (end > 0), base * self.layout.block
            states = torch.where(place == top + 1, base + split.offset, sweep.states)
            new_top, anchor = torch.where(split.is_leaf, top - 1, top + 1), first
        else:
            newest = top + split.stop - split.start
            pushed = (place > top) & (place <= newest)
            states = torch.where(pushed, split.start + place - top, sweep.states)
            anchor = entry(states, newest) - newest
            # States ascend strictly, so equal differences at two places mean equal differences between.
            consecutive = (states - place == anchor) & (place <= newest)
            lowest = torch.where(consecutive, place, self.layout.slots).min()
            is_run, first = (anchor + newest == end - 1) & (end > 0), anchor + lowest
            new_top = torch.where(is_run, lowest - 1, newest)
        first = torch.where(is_run, first, end)
        return Sweep(first, end + 0, anchor + 0, new_top, new_top + 0, states, levels), buffers

    def split(self, tables: list[Tensor], sweep: Sweep, top: Tensor) -> Split:
        """The next split below the end; nothing to do when no step is left."""
        end, base, slots, block = sweep.end, entry(sweep.states, top), self.layout.slots - top, self.layout.block
        length, source = blocks_of(end, self.layout) - base, entry(sweep.states, sweep.source)
        if self.layout.is_complete:
            is_leaf, offset = end == end, torch.ones_like(end)
        else:
            is_leaf = length == 1 if self.layout.leaf else length - 1 <= slots
            level = entry(sweep.levels, top)
            offset = Binomials(self.layout.slots, tables[1]).first_offset(length, slots, level)
            # A first sweep that starts late, from a dropped state, splits no earlier than after its first step.
            offset = torch.maximum(offset, source - base + 1)
        source, target = source * block, (base + offset) * block
        start = torch.where(is_leaf | (end == 0), source, target - 1)
        stop = torch.where(end == 0, source, torch.where(is_leaf, end - 1, target))
        return Split(start, stop, offset, is_leaf)

    def store(
        self,
        tables: list[Tensor],
        buffers: list[Tensor],
        sweep: Sweep,
        top: Tensor,
        split: Split,
        advance: Advance,
        given: list[Any],
    ) -> list[Tensor]:
        """Run the steps of a descent, storing the states after `split.start`."""
        rows = tables[0]

        def run_and_store(carries: list[Tensor], buffers: list[Tensor], constants: list[Any]) -> Any:
            (start, _, is_leaf, top, rows), given = cut(constants, 5)
            i, *state = carries
            until = torch.maximum(i, start) + 1

            def one(carries: list[Tensor], _: Any, constants: list[Any]) -> Any:
                i, *state = carries
                return [i + 1, *advance(i, state, constants[1:])], []

            (i, *state), _ = run(lambda c, _, constants: c[0] < constants[0], one, [i, *state], [], [until, *given])
            if self.layout.leaf:
                row = torch.where(is_leaf, self.leaf_row(i), entry(rows, top + 1))
            else:
                row = entry(rows, top + i - start)
            return [i, *state], put(buffers, state, row)

        source = entry(sweep.states, sweep.source) * self.layout.block
        state = get(buffers, entry(rows, sweep.source))
        constants = [split.start, split.stop, split.is_leaf, top, rows, *given]
        _, buffers = run(lambda c, _, k: c[0] < k[1], run_and_store, [source, *state], buffers, constants)
        return buffers

    def leaf_row(self, i: Tensor) -> Tensor:
        return (self.layout.rows - self.layout.leaf) + i % self.layout.leaf
