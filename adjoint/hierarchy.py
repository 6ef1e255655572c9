"""The least time to reverse a chain with tiers of slots, by dynamic programming (Herrmann & Pallez 2020).

Tiers are numbered from the fastest, and of the stored states the older ones lie in the slower tiers. So a chain is
known by its length n, the slowest tier k that may still be used, and the slots m that are left of it; all slots of the
faster tiers are free. With w and r the costs of a write and a read, c the slots of a tier, and u the cost of a step:

A(k, m, n), state 0 being the working state: min(A(k - 1, c, n), w + B(k, m, n)): a faster tier, or a store in this one.
B(k, m, n), state 0 being the working state and in a slot of tier k as well, which m counts:
min(A(k - 1, c, n), min over j of j u + A(k, m - 1, n - j) + r + B(k, m, j)): that slot is read no more, or it is.

A(., ., 1) = B(., ., 1) = 0, as the turns cost the same whatever one does. In a tier without limit m says nothing, and
it needs one row. For tiers that are ordered, to read and to write, no reversal at all is faster
(`tests/adjoint/test_hierarchy.py` compares with an exhaustive search).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from adjoint.actions import Action, Advance, Discard, Restore, Store, Turn
from adjoint.recurrence import INFINITE, Minorant, Row, Splits, least_split
from adjoint.tiers import Tier


@dataclass(frozen=True)
class Level:
    """A and B of one tier, as rows by the slots that are left: fresh[m][n] and stored[m][n].

    Rows that repeat are left out, so the last row stands for any more slots; a tier without limit has row 1 alone.
    """

    tier: Tier
    fresh: list[Row]
    stored: list[Row]

    @property
    def most(self) -> int:
        """The slots beyond which more of them change nothing."""
        return len(self.fresh) - 1

    def after_store(self, m: int) -> int:
        """The slots left when one of m is taken."""
        return m if self.tier.slots is None else m - 1


@lru_cache(maxsize=4)
def solved(tiers: tuple[Tier, ...], step_cost: float, n: int) -> tuple[Level, ...]:
    """The tables for chains of up to n steps.

    If the slowest tier holds all that it would hold without a limit, the limit is not looked at.
    """
    last = tiers[-1]
    if last.slots is None:
        return tabulated(tiers, step_cost, n)
    unlimited = Tier(last.name, None, last.write, last.read, last.buffers)
    levels = tabulated((*tiers[:-1], unlimited), step_cost, n)
    stores = (action for action in sweeps(levels, n, step_cost) if isinstance(action, Store))
    most = max((store.slot + 1 for store in stores if store.tier == len(tiers) - 1), default=0)
    return levels if most <= last.slots else tabulated(tiers, step_cost, n)


def tabulated(tiers: tuple[Tier, ...], step_cost: float, n: int) -> tuple[Level, ...]:
    """The tables of every tier, from the fastest."""
    levels: list[Level] = []
    base: Row | None = None
    for tier in tiers:
        level = limited(tier, base, step_cost, n) if tier.slots is not None else unlimited(tier, base, step_cost, n)
        levels.append(level)
        base = level.fresh[-1]
    return tuple(levels)


def limited(tier: Tier, base: Row | None, step_cost: float, n: int) -> Level:
    """The tables of a tier with so many slots; `base` is what the faster ones take, None if there are none."""
    fresh: list[Row] = [base or [0, 0, *(INFINITE for _ in range(2, n + 1))]]
    stored: list[Row] = [fresh[0]]
    assert tier.slots is not None
    for m in range(1, min(tier.slots, n) + 1):
        if base is None and m == 1:
            # Nothing but state 0 is stored: it is read again for every step but the last.
            row: Row = [step_cost * (i * (i - 1) // 2) + tier.read * max(i - 1, 0) for i in range(n + 1)]
        else:
            row = swept(fresh[-1], base, step_cost, tier.read)
        stored.append(row)
        fresh.append(with_write(row, base, tier.write))
        if fresh[m] == fresh[m - 1]:
            break
    return Level(tier, fresh, stored)


def swept(right: Row, base: Row | None, step_cost: float, read: float) -> Row:
    """B(k, m, .) from A(k, m - 1, .)."""
    row: Row = [0, 0]
    left = Minorant([0, step_cost + read])
    splits = Splits(left, Minorant(right))
    for n in range(2, len(right)):
        least = splits.least(n)
        row.append(least if base is None else min(base[n], least))
        left.append(n * step_cost + read + row[n])
    return row


def unlimited(tier: Tier, base: Row | None, step_cost: float, n: int) -> Level:
    """The tables of a tier with any number of slots: both rows grow together."""
    fresh = Minorant([0, 0])
    stored: Row = [0, 0]
    left = Minorant([0, step_cost + tier.read])
    splits = Splits(left, fresh)
    for length in range(2, n + 1):
        other = base[length] if base else INFINITE
        stored.append(min(other, splits.least(length)))
        fresh.append(min(other, tier.write + stored[length]))
        left.append(length * step_cost + tier.read + stored[length])
    return Level(tier, [base or fresh.row, fresh.row], [base or stored, stored])


def with_write(stored: Row, base: Row | None, write: float) -> Row:
    """A from B."""
    if base is None:
        return [0, 0, *(write + entry for entry in stored[2:])]
    return [0, 0, *(min(other, write + entry) for other, entry in zip(base[2:], stored[2:], strict=True))]


def sweeps(levels: tuple[Level, ...], n: int, step_cost: float) -> Iterator[Action]:
    """Turns steps n - 1..0 from working state 0, in the least time. Memory: O(slots in use)."""
    # The stored states, the oldest first: state, slot, tier, and the slots of that tier left with its own.
    stack: list[tuple[int, int, int, int]] = []
    used = [0 for _ in levels]
    start, end = 0, n
    k, m = len(levels) - 1, levels[-1].most
    is_stored = False
    while end:
        while end - start > 1:
            length = end - start
            if not is_stored:
                k, m = slowest_worth_a_store(levels, k, m, length)
                yield Store(start, used[k], k)
                stack.append((start, used[k], k, m))
                used[k] += 1
            level = levels[k]
            left = [j * step_cost + level.tier.read + entry for j, entry in enumerate(level.stored[m][:length])]
            right = level.fresh[level.after_store(m)]
            least, offset = least_split(left, right, length)
            if is_stored and k and levels[k - 1].fresh[-1][length] <= least:
                yield discard(stack, used)
                k, m = k - 1, levels[k - 1].most
            else:
                yield Advance(start, start + offset)
                start, m = start + offset, level.after_store(m)
            is_stored = False
        if is_stored:
            yield discard(stack, used)
        yield Turn(start)
        end -= 1
        if stack:
            start, slot, k, m = stack[-1]
            is_stored = True
            yield Restore(start, slot, k)


def slowest_worth_a_store(levels: tuple[Level, ...], k: int, m: int, length: int) -> tuple[int, int]:
    """The tier in whose slots the working state goes best, k and m being the most that is allowed; and its slots."""
    while k and (m == 0 or levels[k - 1].fresh[-1][length] <= levels[k].tier.write + levels[k].stored[m][length]):
        k, m = k - 1, levels[k - 1].most
    return k, m


def discard(stack: list[tuple[int, int, int, int]], used: list[int]) -> Discard:
    """Frees the slot of the newest stored state."""
    state, slot, k, _ = stack.pop()
    used[k] -= 1
    return Discard(state, slot, k)
