"""The schedule's arithmetic inside a compiled loop, on int32 arrays.

Where states are stored on the way forward is a fixed sequence, read from `adjoint`'s table. What
depends on the number of steps is computed here, once when the loop has stopped (`stack_of`) and
once for each split (`first_offset`): a second text of `adjoint.plan` and `adjoint.first_offset`,
tested equal to the first. Costs saturate at `UNREACHABLE`: a choice past it is legal, not the cheapest.

Compiling this is a fixed price of every gradient, so it is written in few, plain operations:
tables are constants aligned with the axes that use them, and nothing is gathered.
"""

from functools import cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import adjoint
from dynloop.checkpoints import Layout
from dynloop.on_jax.rows import put

I32 = jnp.int32
NEVER = 2**31 - 1
# The sum of two costs is still an int32.
UNREACHABLE = 2**30 - 1
# Columns that a table has at least: a plan may give a short gap more sweeps than the longest loop's gaps need.
SHORTEST_ROW = 24


def entry(array: Array, *index: Array) -> Array:
    """One entry of an array; indices that are out of range are moved into it."""
    return lax.dynamic_slice(array, index, (1,) * array.ndim, allow_negative_indices=False).reshape(())


class StoreEvents(NamedTuple):
    """int32: the steps whose states are stored, ascending, NEVER at the end; their slots; [.., 2] slots freed."""

    steps: np.ndarray
    slots: np.ndarray
    freed: np.ndarray


def store_events(layout: Layout, bound: int | None) -> StoreEvents:
    """The forward pass's stores, in steps."""
    blocks = NEVER if bound is None else -(-bound // layout.block)
    # Rounded up, so that many bounds share one table.
    return _events_of_blocks(layout, min(NEVER, 2 ** max(blocks - 1, 1).bit_length()))


@cache
def _events_of_blocks(layout: Layout, limit: int) -> StoreEvents:
    if layout.is_complete:
        blocks = np.arange(layout.slots, dtype=np.int64)
        states, slots = np.append(blocks, NEVER), np.append(blocks, 0)
        freed = np.full((len(states), 2), -1)
    else:
        table = adjoint.store_table(layout.slots, limit)
        states, slots, freed = (np.asarray(x, np.int64) for x in (table.states, table.slots, table.freed))
        if layout.host:
            # Slot 0 keeps state 0, the one that is touched least, and goes to the host; the next ones to the device, so
            # that a short loop moves nothing but state 0.
            slots, freed = (np.where(x < 0, x, (x - 1) % layout.slots) for x in (slots, freed))
    steps = np.minimum(states * layout.block, NEVER)
    return StoreEvents(steps.astype(np.int32), slots.astype(np.int32), freed.astype(np.int32))


class Store(NamedTuple):
    """One store of the forward pass: its slot, the slots it frees beside (None: none), the step of the next one."""

    slot: Array
    freed: Array | None
    next_step: Array


class TabledStores:
    """The stores of a loop whose number of steps is unknown."""

    def __init__(self, layout: Layout, bound: int | None):
        self.steps, self.slots, self.freed = map(jnp.asarray, store_events(layout, bound))

    def at(self, number: Array, block: Array) -> Store:
        """The store of this number, which is that of the first state of `block`."""
        freed = lax.dynamic_slice_in_dim(self.freed, number, 1)
        return Store(entry(self.slots, number), freed, entry(self.steps, number + 1))


class KnownStores:
    """The stores of a loop of `steps` steps: Griewank & Walther 2000's, of the first sweep for one step more.

    The forward pass runs to the end, not only to the last step; so what comes after it is the same as for a
    loop with one step more whose last one is already reversed.
    """

    def __init__(self, layout: Layout, steps: Array):
        self.layout, self.binomials = layout, Binomials(layout.slots)
        # The leaf rows keep what the last steps started from.
        first = jnp.maximum(steps - np.int32(layout.leaf), 0)
        self.end = lax.div(first + np.int32(layout.block - 1), np.int32(layout.block))
        self.level = self.binomials.levels((self.end + 1)[None], jnp.asarray(layout.slots, I32))[0]

    def at(self, number: Array, block: Array) -> Store:
        slots, length = self.layout.slots - number, self.end + 1 - block
        # The right gap of a split keeps its number of sweeps.
        following = block + self.binomials.first_offset(length, slots, self.level)
        is_last = (slots <= 1) | (following >= self.end)
        next_step = jnp.where(is_last, NEVER, following * np.int32(self.layout.block))
        if self.layout.host:
            number = lax.rem(number + first_row(self.layout, self.end), np.int32(self.layout.slots))
        return Store(number, None, next_step)


def first_row(layout: Layout, end: Array) -> Array:
    """The row of state 0 where the number of steps is known; the next places have the next rows, round and round.

    The oldest states are touched least (Stumm & Walther 2009), so of the places that `end` blocks need the newest ones
    have the rows of the device, which come first.
    """
    device = layout.slots - layout.host
    needed = jnp.clip(end, device, layout.slots)
    return lax.rem(layout.slots + device - needed, np.int32(layout.slots))


class Binomials:
    """beta(m, t) = C(m + t, m) for one layout, and what follows from it for a gap of n blocks and m slots."""

    def __init__(self, slots: int):
        table = np.asarray(adjoint.beta_table(slots), np.int64)
        # Gaps that need more sweeps than the whole of the longest loop are never planned.
        width = min(table.shape[1], max(SHORTEST_ROW, adjoint.repetition(NEVER, slots) + 2 if slots > 1 else 0))
        self.table, self.slots = table[:, :width].astype(np.int32), slots
        # Zeros around it, so that beta(m, -1), beta(m, -2) and beta(-1, t) can be read.
        self.padded = np.pad(self.table, ((1, 0), (2, 0)))

    def beta(self, m: Array, t: Array) -> Array:
        """One entry; m >= -1, t >= -2."""
        return entry(jnp.asarray(self.padded), m + 1, t + 2)

    def levels(self, lengths: Array, m: Array) -> Array:
        """The least t with beta(m, t) >= n, for several n; the number of t in the table if there is none."""
        row = lax.dynamic_slice_in_dim(jnp.asarray(self.table), m, 1)
        return jnp.sum(row < lengths[:, None], axis=1, dtype=I32)

    def advances(self, n: Array, m: Array, t: Array) -> Array:
        """P(n, m) = t n - beta(m + 1, t - 1) with the level t (Griewank & Walther 2000); at most UNREACHABLE."""
        is_covered = (t < self.table.shape[1]) & (n <= lax.div(np.int32(NEVER), jnp.maximum(t, 1)))
        return jnp.where(is_covered, jnp.minimum(t * n - self.beta(m + 1, t - 1), UNREACHABLE), UNREACHABLE)

    def last_offset(self, n: Array, m: Array, t: Array) -> Array:
        """The upper end of the optimal first offsets, with the level t."""
        return jnp.minimum(jnp.minimum(n - 1, self.beta(m, t - 1)), n - self.beta(m - 1, t - 1))

    def first_offset(self, length: Array, m: Array, t: Array) -> Array:
        """Griewank & Walther 2000, p. 34: the optimal first checkpoint that needs fewest stores."""
        below, left, right = self.beta(m, t - 1), self.beta(m - 1, t - 1), self.beta(m - 2, t - 1)
        # Differences instead of sums: each table entry may be the largest int32.
        rest = length - right
        offset = jnp.where(rest <= below, self.beta(m, t - 2), jnp.where(rest - left < below, rest - left, below))
        offset = jnp.where(m == 1, length - 1, jnp.where(m >= length - 1, 1, offset))
        return jnp.minimum(jnp.maximum(offset, 1), jnp.maximum(length - 1, 1))


class Stack(NamedTuple):
    """The checkpoints of a reverse sweep, oldest first, in units of blocks; place s is the working row.

    rows: [s + 1] the buffer row of each place.
    states: [s + 1] the state in each place, valid up to `top`.
    levels: [s + 1] how often the gap above each may still be swept.
    source: the place that the first sweep starts from: `top`, or that of the newest stored state, though dropped.
    """

    rows: Array
    states: Array
    levels: Array
    top: Array
    source: Array


def known_stack(layout: Layout, stored: Array, end: Array) -> Stack:
    """All of the stored states, which `KnownStores` placed for a loop of `end` blocks."""
    place, rows = np.arange(layout.slots + 1, dtype=np.int32), None
    if layout.host:
        first, s = first_row(layout, end), np.int32(layout.slots)
        rows = jnp.where(place < s, lax.rem(place + first, s), s)
        twice = jnp.concatenate([stored[:s], stored[:s]])
        stored = jnp.concatenate([lax.dynamic_slice_in_dim(twice, first, layout.slots), stored[s:]])
    top = jnp.sum(stored < end, dtype=I32) - 1
    following = jnp.minimum(lax.pad(stored, np.int32(NEVER), [(-1, 1, 0)]), end)
    table = Binomials(layout.slots).table[layout.slots - place]
    levels = jnp.sum(table < jnp.where(stored < end, following - stored, 0)[:, None], axis=1, dtype=I32)
    return Stack(jnp.asarray(place) if rows is None else rows, stored, levels, top, top)


class Choice(NamedTuple):
    """The cheapest place found to keep all stored states up to, and nothing after.

    total: advances to come.   level: of the gap from it to the end.   is_passed: the first sweep of that gap starts
    from the newest stored state.
    """

    total: Array
    top: Array
    level: Array
    is_passed: Array


def stack_of(layout: Layout, stored: Array, end: Array) -> Stack:
    """Choose what to keep of the stored states to reverse `end` blocks: the second text of `adjoint.plan`.

    stored: [s + 1] int32, the block whose first state is in each row, NEVER where there is none.

    Each stored state costs every gap on its right one slot, so dropping the newest can pay. The cost
    of keeping all up to a place is that of the gaps below it, a running sum, and of the gap from it to
    the end; the first sweep of the latter may start from the newest state, though it is dropped.
    One place after the other, on scalars: kernels on vectors of all places take longer to compile than all of this.
    """
    s = layout.slots
    place = np.arange(s + 1, dtype=np.int32)
    if layout.is_complete:  # every block start is stored in the slot of its number, so every gap is one block
        top = jnp.sum(stored < end, dtype=I32) - 1
        return Stack(jnp.asarray(place), stored, jnp.zeros_like(stored), top, top)
    binomials = Binomials(s)
    order = place
    if layout.host:
        # Of the rows that hold nothing those of the host come first: a low place is touched less than a high one.
        order = np.concatenate([place[layout.first_host_row : s], place[: layout.first_host_row], place[s:]])
        stored = jnp.concatenate([stored[layout.first_host_row : s], stored[: layout.first_host_row], stored[s:]])
    # A stable sort: the working row, which holds nothing, stays last.
    states, rows = lax.sort((stored, jnp.asarray(order)), num_keys=1)
    newest = lax.argmin(states < end, 0, I32) - 1
    latest = entry(states, newest)

    def weigh(w: Any) -> Any:
        i, below, best, levels = w
        base, m = entry(states, i), s - i
        near, last = jnp.minimum(entry(states, i + 1), end) - base, end - base
        level, last_level = binomials.levels(jnp.stack([near, last]), m)
        # Every state of a short gap is stored on the way, so none may be passed by.
        ahead = latest - base
        is_passed = (last > m + 1) & (ahead < binomials.last_offset(last, m, last_level))
        total = below + binomials.advances(last, m, last_level)
        total = jnp.minimum(total, UNREACHABLE) - jnp.where(is_passed, ahead, 0)
        # Of equally cheap ones, the one that keeps most.
        is_better = total <= best.total
        found = Choice(total, i, last_level, is_passed)
        best = Choice(*(jnp.where(is_better, x, y) for x, y in zip(found, best, strict=True)))
        below = jnp.minimum(below + binomials.advances(near, m, level), UNREACHABLE)
        return i + 1, below, best, put([levels], [level], i)[0]

    # Nothing stored, nothing to reverse: top is -1.
    zero = jnp.zeros_like(end)
    start = Choice(zero + NEVER, zero - 1, zero, zero > 0)
    _, _, best, levels = lax.while_loop(lambda w: w[0] <= newest, weigh, (zero, zero, start, jnp.zeros_like(stored)))
    levels = jnp.where(place == best.top, best.level, levels)
    return Stack(rows, states, levels, best.top, jnp.where(best.is_passed, newest, best.top))
