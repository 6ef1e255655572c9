"""The schedule's arithmetic inside a compiled loop, on int32 arrays.

Where states are stored on the way forward is a fixed sequence, read from `adjoint`'s table. What
depends on the number of steps is computed here, once when the loop has stopped (`plan`) and once
for each split (`first_offset`): a second text of `adjoint.binomial` and `adjoint.online`, tested
equal to the first. Costs saturate at `SATURATED` steps, past which a plan is legal but may not be
the cheapest.
"""

from functools import cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import adjoint
from dynloop.checkpoints import Layout

I32 = jnp.int32
NEVER = 2**31 - 1
SATURATED = 2**29 - 1
UNREACHABLE = 2**30 - 1


class StoreEvents(NamedTuple):
    """int32: the step whose state is stored, ascending and ending in NEVER, and the slot it goes to."""

    steps: np.ndarray
    slots: np.ndarray


@cache
def store_events(layout: Layout, bound: int | None) -> StoreEvents:
    """The forward pass's stores, in steps."""
    limit = NEVER if bound is None else min(NEVER, 2 ** max(bound - 1, 1).bit_length())
    if layout.is_complete:
        blocks = np.arange(layout.slots, dtype=np.int64)
        states, slots = np.append(blocks, NEVER), np.append(blocks, 0)
    else:
        table = adjoint.store_table(layout.slots, limit)
        states, slots = np.asarray(table.states, np.int64), np.asarray(table.slots, np.int64)
    steps = np.minimum(states * layout.block, NEVER)
    return StoreEvents(steps.astype(np.int32), slots.astype(np.int32))


class Binomials:
    """beta(m, t) = C(m + t, m) as a saturated table, and what is computed from it."""

    def __init__(self, slots: int):
        self.table = jnp.asarray(np.asarray(adjoint.beta_table(slots), np.int32))

    def beta(self, m: Any, t: Any) -> Array:
        rows, columns = self.table.shape
        inside = (m >= 0) & (t >= 0)
        value = self.table.at[jnp.clip(m, 0, rows - 1), jnp.clip(t, 0, columns - 1)].get(mode="promise_in_bounds")
        return jnp.where(inside, value, 0)

    def repetition(self, length: Array, m: Array) -> Array:
        """The least t with beta(m, t) >= length; the number of columns if none is."""
        row = self.table.at[jnp.clip(m, 0, self.table.shape[0] - 1)].get(mode="promise_in_bounds")
        return jnp.sum(row < length[..., None], axis=-1, dtype=I32)

    def advances(self, length: Array, m: Array) -> Array:
        """P(length, m), the least number of advances that reverse `length` steps; saturated."""
        t = self.repetition(length, m)
        too_long = (t >= self.table.shape[1]) | (length > NEVER // jnp.maximum(t, 1))
        exact = jnp.where(t == 0, 0, t * length - self.beta(m + 1, t - 1))
        return jnp.where(too_long, SATURATED, jnp.minimum(exact, SATURATED))

    def first_offset(self, length: Array, m: Array, t: Array) -> Array:
        """Griewank & Walther 2000, p. 34: the optimal first checkpoint that needs fewest stores."""
        below, left, right = self.beta(m, t - 1), self.beta(m - 1, t - 1), self.beta(m - 2, t - 1)
        # Differences instead of sums: each table entry may be the largest int32.
        offset = jnp.where(
            length - right <= below,
            self.beta(m, t - 2),
            jnp.where(length - right - left < below, length - left - right, below),
        )
        offset = jnp.where(m == 1, length - 1, jnp.where(m >= length - 1, 1, offset))
        return jnp.clip(offset, 1, jnp.maximum(length - 1, 1))

    def last_offset(self, length: Array, m: Array, t: Array) -> Array:
        """The upper end of the optimal first offsets."""
        return jnp.minimum(jnp.minimum(length - 1, self.beta(m, t - 1)), length - self.beta(m - 1, t - 1))


class Stack(NamedTuple):
    """The checkpoints of a reverse sweep, oldest first, in units of blocks.

    states: [s + 1] states stored, valid up to `top`.   rows: [s + 1] the buffer row of each place.
    levels: [s + 1] how often the gap above each may still be swept.
    source: the state that the first sweep starts from.   source_row: its row.
    """

    states: Array
    rows: Array
    levels: Array
    top: Array
    source: Array
    source_row: Array


def stack_of(layout: Layout, stored: Array, end: Array) -> Stack:
    """Choose what to keep of the stored states to reverse `end` blocks.

    stored: [s] int32, the block whose first state is in each slot, NEVER where there is none.
    """
    s = layout.slots
    order = jnp.arange(s, dtype=I32) if layout.is_complete else jnp.argsort(stored).astype(I32)
    states = stored[order]
    count = jnp.sum(states < end, dtype=I32)
    place = jnp.arange(s, dtype=I32)
    everything = place < count
    if layout.is_complete:  # every block start is stored, so every gap is one block
        kept, source = everything, count - 1
    else:
        binomials = Binomials(s)
        # While every block start is stored there is nothing to advance, so nothing is gained by dropping one.
        kept, source = lax.cond(
            end > count,
            lambda: _plan(binomials, s, states, count, end),
            lambda: (everything, count - 1),
        )
    top = jnp.sum(kept, dtype=I32) - 1
    target = jnp.where(kept, jnp.cumsum(kept) - 1, top + jnp.cumsum(~kept))
    permuted = jnp.zeros(s, I32).at[target].set(place, unique_indices=True, mode="promise_in_bounds")
    states_kept = jnp.where(place <= top, states[permuted], NEVER)
    if layout.is_complete:
        levels = jnp.zeros(s, I32)
    else:
        above = jnp.where(place == top, end, jnp.append(states_kept[1:], NEVER))
        levels = binomials.repetition(above - states_kept, s - place)
    return Stack(
        jnp.append(states_kept, NEVER),
        jnp.append(order[permuted], s),
        jnp.append(levels, 0),
        top,
        states[jnp.maximum(source, 0)],
        order[jnp.maximum(source, 0)],
    )


def _plan(binomials: Binomials, s: int, states: Array, count: Array, end: Array) -> tuple[Array, Array]:
    """The mask of the states to keep, and the place of the state where the first sweep starts.

    The dynamic programme of `adjoint.plan`: cheapest[b, i] is the cost of all gaps left of state b
    when b is kept at rank i, with at most one state dropped between two kept ones.
    """
    rank, place = jnp.arange(s, dtype=I32), jnp.arange(s, dtype=I32)

    def gap_costs(skip: int) -> Array:
        before = jnp.roll(states, skip)
        gap = jnp.where((place >= skip) & (place < count), states - before, 0)
        cost = binomials.advances(jnp.broadcast_to(gap[:, None], (s, s)), s - rank[None, :] + 1)
        return jnp.where((place >= skip)[:, None] & (rank > 0)[None, :], cost, UNREACHABLE)

    near, far = gap_costs(1), gap_costs(2)

    def extend(b: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        cheapest, skips = carry
        one = jnp.roll(cheapest[b - 1], 1) + near[b]
        two = jnp.roll(cheapest[jnp.maximum(b - 2, 0)], 1) + far[b]
        best = jnp.minimum(one, two)
        best = jnp.where(best >= UNREACHABLE, UNREACHABLE, jnp.minimum(best, SATURATED))
        return cheapest.at[b].set(best), skips.at[b].set(two < one)

    start = jnp.full((s, s), UNREACHABLE, I32).at[0, 0].set(0)
    cheapest, skips = lax.fori_loop(1, count, extend, (start, jnp.zeros((s, s), bool)))

    m = jnp.broadcast_to(s - rank[None, :], (s, s))
    length = jnp.broadcast_to(jnp.where(place < count, end - states, 0)[:, None], (s, s))
    level = binomials.repetition(length, m)
    reach = jnp.where(length > m + 1, binomials.last_offset(length, m, level), 0)
    limit = jnp.where(place < count, states, 0)[:, None] + reach
    newest = jnp.sum(states <= limit[..., None], axis=-1, dtype=I32) - 1
    saved = jnp.where(reach > 0, states[jnp.maximum(newest, 0)] - states[:, None], 0)
    total = jnp.minimum(cheapest + binomials.advances(length, m), SATURATED) - saved
    total = jnp.where((cheapest < UNREACHABLE) & (place < count)[:, None], total, UNREACHABLE)
    # Ties go to the newest state, then to the highest rank: the last minimum in reading order.
    chosen = s * s - 1 - jnp.argmin(total.ravel()[::-1]).astype(I32)
    last, last_rank = chosen // s, chosen % s

    def keep(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        a, i, kept = carry
        return a - jnp.where(skips[a, i], 2, 1), i - 1, kept.at[a].set(True)

    kept = lax.while_loop(lambda c: c[1] >= 0, keep, (last, last_rank, jnp.zeros(s, bool)))[2]

    length, m = end - states[last], s - last_rank
    level = binomials.repetition(length, m)
    reach = jnp.where(length > m + 1, binomials.last_offset(length, m, level), 0)
    source = jnp.where(reach > 0, jnp.sum(states <= states[last] + reach, dtype=I32) - 1, last)
    # A state at or past the first split is the split: keeping it costs the same and moves no row.
    is_split = states[source] - states[last] >= binomials.first_offset(length, m, level)
    return kept.at[source].set(kept[source] | ((source > last) & is_split)), source
