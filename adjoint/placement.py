"""Which states to store while the number of steps is still unknown: the rule, as one fixed sequence.

The rule ("sparse A-revolve"): state i is a candidate when it is at least max(1, i // (4 s)) steps past the last stored
one. While a slot is free it is stored. Afterwards one stored state other than state 0 makes room: the one without which
the reversal of i steps would be cheapest, each gap being reversed by binomial checkpointing with the slots left to it;
if not storing is no dearer, the candidate is passed over.
That a loop of unknown length can be checkpointed as it runs, by dropping stored states, is due to Wang, Moin &
Iaccarino 2009 and to Stumm & Walther 2010; here a drop is judged by the reversal's cost, and the least distance makes
stores rare.
The sequence does not depend on the data, so it is computed once, and a compiled loop only compares its counter with the
next entry.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cache, lru_cache

from adjoint.binomial import SATURATED, Optimum
from adjoint.errors import ScheduleError, checked_integer

SPARSITY = 4
"""c in the least distance i // (c s) of a candidate i: more of it stores more often and repeats a little less."""

# No gap is longer than the largest int32, which is as far as these functions reach.
optimum = cache(Optimum)


@dataclass(frozen=True, slots=True)
class StoreTable:
    """Every store of the online forward pass, in order, closed by an entry that no counter reaches.

    Args:
        states: the stored states' indices, ascending; the last entry is the sentinel 2**31 - 1.
        slots: the slot that each goes to, overwriting what it held; 0 beside the sentinel.

    >>> table = store_table(3, limit=8)
    >>> table.states, table.slots
    ((0, 1, 2, 4, 6, 2147483647), (0, 1, 2, 1, 2, 0))
    >>> table.held(5)
    ((0, 0), (2, 2), (4, 1))
    """

    states: tuple[int, ...]
    slots: tuple[int, ...]

    def held(self, steps: int) -> tuple[tuple[int, int], ...]:
        """What the slots hold after a forward pass of `steps` steps: pairs (state, slot), by state."""
        stored = bisect_left(self.states, steps)
        latest = dict(zip(self.slots[:stored], self.states[:stored], strict=True))
        return tuple(sorted((state, slot) for slot, state in latest.items()))


@lru_cache(maxsize=256)
def store_table(slots: int, limit: int = SATURATED) -> StoreTable:
    """The stores of an online forward pass: its events with a state below `limit`.

    The first `slots` states go to the slots of their own number; the table for a smaller limit is a prefix.

    Args:
        slots: states kept at once, state 0 included, >= 1.
        limit: states from here on are left out, 0..2**31 - 1: an int32 counter goes no further.

    Returns:
        The table, of the order of slots * log(limit / slots) entries, remembered between calls.

    Raises:
        ScheduleError: slots is below 1, or limit is out of range.

    >>> store_table(2, limit=10).states
    (0, 1, 3, 7, 2147483647)
    """
    slots = checked_integer("slots", slots, 1, "give at least one slot, for state 0")
    limit = checked_integer("limit", limit, 0, "give the largest number of steps")
    if limit > SATURATED:
        raise ScheduleError("limit", limit, "at most 2**31 - 1", "split the loop, or store blocks of several steps")
    first = range(min(slots, limit))
    states, places = list(first), list(first)
    if slots > 1 and limit > slots:
        stored, homes = Stored(slots), list(first)
        state = slots
        while (state := max(state, stored.next_candidate())) < limit:
            evicted = stored.evicted_by(state)
            if evicted:
                stored.replace(evicted, state)
                home = homes.pop(evicted)
                homes.append(home)
                states.append(state)
                places.append(home)
            state += 1
    return StoreTable((*states, SATURATED), (*places, 0))


class Stored:
    """The stored states, all slots being full, with the reversal cost of every gap kept up to date.

    Gap a lies between the stored states a and a + 1; the last one, from the newest stored state to the candidate,
    changes with every candidate and is not among the lists. With P(l, m) the least advances for l steps and m slots:
    keep[a] = P(gap, s - a), its cost with all states stored; shift[a] = P(gap, s - a + 1), its cost with one state
    fewer on the left; merge[j] = P(gap j - 1 and gap j together, s - j + 1), their cost without stored state j.
    An eviction leaves the entries on its left as they are.
    """

    __slots__ = ("gaps", "keep", "last", "merge", "shift", "slots")

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.last = slots - 1
        self.gaps: list[int] = [1] * (slots - 1)
        self.keep: list[int] = [0] * (slots - 1)
        self.shift: list[int] = [0] * (slots - 1)
        self.merge: list[int] = [0] + [1] * (slots - 2)

    def next_candidate(self) -> int:
        """The first state i with i - last >= max(1, i // (4 s)).

        With i = last + g and D = 4 s that is (last + g) // D <= g, or g (D - 1) > last - D.
        """
        spread = SPARSITY * self.slots
        return self.last + max(1, (self.last - spread) // (spread - 1) + 1)

    def evicted_by(self, candidate: int) -> int:
        """The rank of the stored state that makes room for the candidate, or 0 to pass the candidate over.

        All costs are compared as differences to the sum of `keep`, so that one pass from the right suffices.
        """
        keep, shift, merge = self.keep, self.shift, self.merge
        newest = len(keep)
        gap = candidate - self.last
        # The candidate itself is turned too: without its store, its step is one more of the last gap.
        best, evicted = optimum(1)(gap + 1), 0
        least = optimum(2)(self.gaps[-1] + gap) - keep[-1]
        rank = newest
        shifted = optimum(2)(gap)
        for j in range(newest - 1, 0, -1):
            cost = merge[j] - keep[j - 1] - keep[j] + shifted
            # Of equals the oldest state goes.
            if cost <= least:
                least, rank = cost, j
            shifted += shift[j] - keep[j]
        if least < best:
            evicted = rank
        return evicted

    def replace(self, evicted: int, candidate: int) -> None:
        """Drops the stored state of that rank and stores the candidate as the newest."""
        slots, newest = self.slots, len(self.gaps)
        gap = candidate - self.last
        gaps = self.gaps
        gaps.append(gap)
        gaps[evicted - 1 : evicted + 1] = [gaps[evicted - 1] + gaps[evicted]]
        self.keep.append(0)
        self.shift.append(optimum(2)(gap))
        self.merge.append(optimum(2)(gaps[-1]) if evicted == newest else 0)
        # A gap on the right of the evicted state loses one rank: it is kept at the cost it had when shifted.
        self.keep[evicted - 1 :] = [self.merge[evicted], *self.shift[evicted + 1 :]]
        ranks = range(evicted - 1, newest)
        self.shift[evicted - 1 :] = [optimum(slots - a + 1)(gaps[a]) for a in ranks]
        near = range(max(evicted - 1, 1), newest)
        self.merge[near.start :] = [optimum(slots - j + 1)(gaps[j - 1] + gaps[j]) for j in near]
        self.last = candidate
