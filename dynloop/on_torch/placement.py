"""The schedule's arithmetic inside a compiled loop, on int64 tensors.

Where states are stored on the way forward is a fixed sequence, read from `adjoint`'s table. What depends on the number
of steps is computed here, once when the loop has stopped (`stack_of`) and once for each split (`first_offset`): a
second text of `adjoint.plan` and `adjoint.first_offset`, tested equal to the first. Costs saturate at `UNREACHABLE`: a
choice past it is legal, not the cheapest.

A compiled loop calls a kernel or two for each of these decisions, and many more where tensors of one element are
gathered one by one; so tables are read in whole rows.
"""

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

import adjoint
from dynloop.checkpoints import Layout
from dynloop.on_torch.storing_loop import run

NEVER = 2**31 - 1
UNREACHABLE = 2**30 - 1
# Columns that a table has at least: a plan may give a short gap more sweeps than the longest loop's gaps need.
SHORTEST_ROW = 24


def entry(array: Tensor, *index: Tensor) -> Tensor:
    """One entry of an array; indices that are out of range are moved into it."""
    inside = [torch.clamp(i, 0, size - 1) for i, size in zip(index, array.shape, strict=True)]
    return torch.ops.aten.index.Tensor(array, inside)


class StoreEvents(NamedTuple):
    """The steps whose states are stored, ascending, NEVER at the end; their slots; two slots each that are freed."""

    steps: tuple[int, ...]
    slots: tuple[int, ...]
    freed: tuple[tuple[int, int], ...]


def store_events(layout: Layout, bound: int | None) -> StoreEvents:
    """The forward pass's stores, in steps."""
    blocks = NEVER if bound is None else -(-bound // layout.block)
    # Rounded up, so that many bounds share one table.
    return _events_of_blocks(layout, min(NEVER, 2 ** max(blocks - 1, 1).bit_length()))


@cache
def _events_of_blocks(layout: Layout, limit: int) -> StoreEvents:
    if layout.is_complete:
        states, slots = (*range(layout.slots), NEVER), (*range(layout.slots), 0)
        freed = ((-1, -1),) * (layout.slots + 1)
    else:
        table = adjoint.store_table(layout.slots, limit)
        states, slots, freed = table.states, table.slots, table.freed
    return StoreEvents(tuple(min(state * layout.block, NEVER) for state in states), slots, freed)


class Store(NamedTuple):
    """One store of the forward pass: its slot, the slots it frees beside (None: none), the step of the next one."""

    slot: Tensor
    freed: Tensor | None
    next_step: Tensor


class TabledStores:
    """The stores of a loop whose number of steps is unknown."""

    def __init__(self, layout: Layout, tables: list[Tensor]):
        self.steps, self.slots, self.freed = tables

    @staticmethod
    def tables(layout: Layout, bound: int | None, device: torch.device) -> list[Tensor]:
        return [torch.tensor(x, dtype=torch.int64, device=device) for x in store_events(layout, bound)]

    def at(self, number: Tensor, block: Tensor) -> Store:
        """The store of this number, which is that of the first state of `block`."""
        freed = torch.ops.aten.index.Tensor(self.freed, [torch.clamp(number, 0, self.freed.shape[0] - 1)])
        return Store(entry(self.slots, number), freed, entry(self.steps, number + 1))


class KnownStores:
    """The stores of a loop of `steps` steps: Griewank & Walther 2000's, of the first sweep for one step more.

    The forward pass runs to the end, not only to the last step; so what comes after it is the same as for a
    loop with one step more whose last one is already reversed.
    """

    def __init__(self, layout: Layout, tables: list[Tensor], steps: Tensor):
        self.layout, self.binomials = layout, Binomials(layout.slots, tables[0])
        # The leaf rows keep what the last steps started from.
        self.end = blocks_of(torch.clamp(steps - layout.leaf, min=0), layout)
        self.level = self.binomials.level(self.end + 1, torch.full_like(steps, layout.slots))

    @staticmethod
    def tables(layout: Layout, device: torch.device) -> list[Tensor]:
        return [Binomials.table_of(layout.slots, device)]

    def at(self, number: Tensor, block: Tensor) -> Store:
        slots, length = self.layout.slots - number, self.end + 1 - block
        # The right gap of a split keeps its number of sweeps.
        following = block + self.binomials.first_offset(length, slots, self.level)
        is_last = (slots <= 1) | (following >= self.end)
        return Store(number, None, torch.where(is_last, NEVER, following * self.layout.block))


class Binomials:
    """beta(m, t) = C(m + t, m) for one layout, and what follows from it for a gap of n blocks and m slots.

    table: [m + 1, t + 2], with zeros before it, so that beta(m, -1), beta(m, -2) and beta(-1, t) can be read.
    """

    def __init__(self, slots: int, table: Tensor):
        self.slots, self.padded = slots, table

    @staticmethod
    def rows_of(slots: int) -> tuple[tuple[int, ...], ...]:
        table = adjoint.beta_table(slots)
        # Gaps that need more sweeps than the whole of the longest loop are never planned.
        longest = adjoint.repetition(NEVER, slots) + 2 if slots > 1 else 0
        width = min(len(table[0]), max(SHORTEST_ROW, longest))
        return ((0,) * (width + 2), *((0, 0, *row[:width]) for row in table))

    @staticmethod
    def table_of(slots: int, device: torch.device) -> Tensor:
        return torch.tensor(Binomials.rows_of(slots), dtype=torch.int64, device=device)

    @property
    def width(self) -> int:
        return self.padded.shape[1] - 2

    def beta(self, m: Tensor, t: Tensor) -> Tensor:
        """One entry; m >= -1, t >= -2."""
        return entry(self.padded, m + 1, t + 2)

    def level(self, length: Tensor, m: Tensor) -> Tensor:
        """The least t with beta(m, t) >= n; the number of t in the table if there is none."""
        row = torch.ops.aten.index.Tensor(self.padded, [torch.clamp(m + 1, 0, self.padded.shape[0] - 1)])
        # The two zeros before the row count too, unless nothing is to be covered.
        return torch.clamp((row < length).sum() - 2, min=0)

    def advances(self, n: Tensor, m: Tensor, t: Tensor) -> Tensor:
        """P(n, m) = t n - beta(m + 1, t - 1) with the level t (Griewank & Walther 2000); at most UNREACHABLE."""
        is_covered = (t < self.width) & (n * torch.clamp(t, min=1) <= NEVER)
        return torch.where(is_covered, torch.clamp(t * n - self.beta(m + 1, t - 1), max=UNREACHABLE), UNREACHABLE)

    def last_offset(self, n: Tensor, m: Tensor, t: Tensor) -> Tensor:
        """The upper end of the optimal first offsets, with the level t."""
        return torch.minimum(torch.minimum(n - 1, self.beta(m, t - 1)), n - self.beta(m - 1, t - 1))

    def first_offset(self, length: Tensor, m: Tensor, t: Tensor) -> Tensor:
        """Griewank & Walther 2000, p. 34: the optimal first checkpoint that needs fewest stores."""
        below, left, right = self.beta(m, t - 1), self.beta(m - 1, t - 1), self.beta(m - 2, t - 1)
        rest = length - right
        offset = torch.where(rest <= below, self.beta(m, t - 2), torch.where(rest - left < below, rest - left, below))
        offset = torch.where(m == 1, length - 1, torch.where(m >= length - 1, 1, offset))
        return torch.minimum(torch.clamp(offset, min=1), torch.clamp(length - 1, min=1))


class Stack(NamedTuple):
    """The checkpoints of a reverse sweep, oldest first, in units of blocks; place s is the working row.

    rows: [s + 1] the buffer row of each place.
    states: [s + 1] the state in each place, valid up to `top`.
    levels: [s + 1] how often the gap above each may still be swept.
    source: the place that the first sweep starts from: `top`, or that of the newest stored state, though dropped.
    """

    rows: Tensor
    states: Tensor
    levels: Tensor
    top: Tensor
    source: Tensor


def known_stack(layout: Layout, binomials: Binomials, stored: Tensor, end: Tensor) -> Stack:
    """All of the stored states, which `KnownStores` placed for a loop of `end` blocks."""
    place = torch.arange(layout.slots + 1, device=end.device)
    top = (stored < end).sum() - 1
    following = torch.minimum(torch.cat([stored[1:], torch.full_like(stored[:1], NEVER)]), end)
    table = binomials.padded[1 : layout.slots + 2].flip(0)
    length = torch.where(stored < end, following - stored, 0)
    levels = torch.clamp((table < length[:, None]).sum(1) - 2, min=0)
    return Stack(place, stored, levels, top, top + 0)


def complete_stack(layout: Layout, stored: Tensor, end: Tensor) -> Stack:
    """Every block start is stored in the slot of its number, so every gap is one block."""
    top = (stored < end).sum() - 1
    place = torch.arange(layout.slots + 1, device=end.device)
    return Stack(place, stored, torch.zeros_like(stored), top, top + 0)


def stack_of(layout: Layout, binomials: Binomials, stored: Tensor, end: Tensor) -> Stack:
    """Choose what to keep of the stored states to reverse `end` blocks: the second text of `adjoint.plan`.

    stored: [s + 1], the block whose first state is in each row, NEVER where there is none.

    Each stored state costs every gap on its right one slot, so dropping the newest can pay. The cost of keeping all
    up to a place is that of the gaps below it, a running sum, and of the gap from it to the end; the first sweep of
    the latter may start from the newest state, though it is dropped.
    """
    s = layout.slots
    # A stable sort: the working row, which holds nothing, stays last.
    states, rows = torch.sort(stored, stable=True)
    newest = (states < end).sum() - 1
    latest = entry(states, newest)

    def weigh(carries: list[Tensor], buffers: list[Tensor], constants: list[Tensor]) -> Any:
        i, below, best_total, best_top, best_level, is_best_passed, levels = carries
        states, end, _, latest, table = constants
        binomials = Binomials(s, table)
        base, m = entry(states, i), s - i
        near, last = torch.minimum(entry(states, i + 1), end) - base, end - base
        level, last_level = binomials.level(near, m), binomials.level(last, m)
        # Every state of a short gap is stored on the way, so none may be passed by.
        ahead = latest - base
        is_passed = (last > m + 1) & (ahead < binomials.last_offset(last, m, last_level))
        total = below + binomials.advances(last, m, last_level)
        total = torch.clamp(total, max=UNREACHABLE) - torch.where(is_passed, ahead, 0)
        # Of equally cheap ones, the one that keeps most.
        is_better = total <= best_total
        below = torch.clamp(below + binomials.advances(near, m, level), max=UNREACHABLE)
        best = [(total, best_total), (i, best_top), (last_level, best_level), (is_passed, is_best_passed)]
        best = [torch.where(is_better, x, y) for x, y in best]
        levels = torch.where(torch.arange(s + 1, device=i.device) == i, level, levels)
        return [i + 1, below, *best, levels], buffers

    zero = torch.zeros_like(end)
    # Nothing stored, nothing to reverse: top is -1.
    start = [zero, zero + 0, zero + NEVER, zero - 1, zero + 0, zero > 0, torch.zeros_like(stored)]
    constants = [states, end, newest, latest, binomials.padded]
    final, _ = run(lambda carries, _, constants: carries[0] <= constants[2], weigh, start, [], constants)
    _, _, _, top, level, is_passed, levels = final
    levels = torch.where(torch.arange(s + 1, device=end.device) == top, level, levels)
    return Stack(rows, states, levels, top, torch.where(is_passed, newest, top))


def blocks_of(steps: Tensor, layout: Layout) -> Tensor:
    """How many blocks a number of steps begins."""
    return torch.div(steps + (layout.block - 1), layout.block, rounding_mode="floor")
