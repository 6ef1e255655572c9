"""Which states to store while the number of steps is still unknown: the rule, as one fixed sequence.

The rule is a sparse form of A-revolve (Hinze & Sternberg 2005). State i is a candidate when it is at least
max(1, i // (c s)) steps past the last stored one, c being `SPARSITY`, and less in very long loops. What is stored is
judged by what reversing the steps so far would cost, each gap between two stored states being reversed by binomial
checkpointing with the slots left to it.

* While a slot is free, a candidate is stored.
* Otherwise the stored state whose loss makes that cost least makes room for it, never state 0; if not storing is no
  dearer, the candidate is passed over.
* After a store up to `MOST_FREED` more states are dropped, as long as each drop lowers the cost (`Stored.thin`).

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
from itertools import accumulate
from math import inf
from operator import add, sub

from adjoint.binomial import SATURATED, Optimum
from adjoint.errors import ScheduleError, checked_integer

SPARSITY = 10
"""c in the least distance i // (c s) of a candidate i: more of it stores more often and repeats a little less.

With twice as much the table is nearly twice as long, and the repetition hardly less: set it to 5, 10 and 20, and print
`len(store_table(16).states)` and `adjoint.Online(16).cost(10_000)`.
"""

FAR, FAR_SPARSITY = 2**17, 3
"""c in loops whose newest stored state lies so far out: half of a table's entries, and of the time to make it, would
else serve loops of more than a hundred thousand steps.
"""

MOST_FREED = 2
"""How many more states one store may drop: a compiled loop reads them from the columns of a table.

A state that is still in the way is judged again after the next store.
"""

NONE_FREED: tuple[int, int] = (-1, -1)
"""`MOST_FREED` times no slot."""

# No gap is longer than the largest int32, which is as far as these functions reach.
optimum = cache(Optimum)


@dataclass(frozen=True, slots=True)
class StoreTable:
    """Every store of the online forward pass, in order, closed by an entry that no counter reaches.

    All entries are int32.

    Args:
        states: the stored states' indices, ascending; the last entry is the sentinel 2**31 - 1.
        slots: the slot that each goes to, overwriting what it held; 0 beside the sentinel.
        freed: two more slots whose states are dropped at each store, in that order; -1 for none.

    >>> table = store_table(3, limit=8)
    >>> table.states, table.slots
    ((0, 1, 2, 4, 6, 2147483647), (0, 1, 2, 1, 2, 0))
    >>> table.held(5)
    ((0, 0), (2, 2), (4, 1))
    >>> table = store_table(5, limit=5000)
    >>> next(entry for entry in zip(table.states, table.slots, table.freed) if max(entry[2]) >= 0)
    (4398, 1, (4, -1))

    The last line is read as: state 4398 is stored in slot 1, and the state in slot 4 is dropped besides.
    """

    states: tuple[int, ...]
    slots: tuple[int, ...]
    freed: tuple[tuple[int, int], ...]

    def held(self, steps: int) -> tuple[tuple[int, int], ...]:
        """What the slots hold after a forward pass of `steps` steps: pairs (state, slot), by state."""
        stored = bisect_left(self.states, steps)
        held: dict[int, int] = {}
        for state, slot, freed in zip(self.states[:stored], self.slots, self.freed, strict=False):
            held[slot] = state
            for gone in freed:
                held.pop(gone, None)
        return tuple(sorted((state, slot) for slot, state in held.items()))


@lru_cache(maxsize=256)
def store_table(slots: int, limit: int = SATURATED) -> StoreTable:
    """The stores of an online forward pass: its events with a state below `limit`.

    The first `slots` states go to the slots of their own number; later ones to the slot freed last, or to that of the
    state they replace. The table for a smaller limit is a prefix.

    Args:
        slots: states kept at once, state 0 included, >= 1.
        limit: states from here on are left out, 0..2**31 - 1: an int32 counter goes no further.

    Returns:
        The table, of the order of slots * log(limit / slots) entries, remembered between calls.

    Raises:
        ScheduleError: slots is below 1, or limit is out of range.

    Cost: O(slots) integer operations for each candidate, so time grows about as the square of the slots; the first call
        with hundreds of them takes seconds: `python -m timeit -n 1 -r 1 -s "import adjoint" "adjoint.store_table(256)"`

    >>> store_table(2, limit=10).states
    (0, 1, 3, 7, 2147483647)
    """
    slots = checked_integer("slots", slots, 1, "give at least one slot, for state 0")
    limit = checked_integer("limit", limit, 0, "give the largest number of steps")
    if limit > SATURATED:
        raise ScheduleError("limit", limit, "at most 2**31 - 1", "split the loop, or store blocks of several steps")
    first = range(min(slots, limit))
    events = [(state, state, NONE_FREED) for state in first]
    if slots > 1 and limit > slots:
        stored, state = Stored(slots), slots
        while (state := max(state, stored.next_candidate())) < limit:
            home = stored.admit(state)
            if home is not None:
                events.append((state, home, stored.thin()))
            state += 1
    states, places, freed = zip(*events, (SATURATED, 0, NONE_FREED), strict=True)
    return StoreTable(states, places, freed)


class Stored:
    """The stored states and their slots, with the reversal cost of every gap kept up to date; the first `slots` states
    to begin with, each in the slot of its number.

    homes[a] is the slot of the stored state a, and `free` are the slots that hold none, the next one to use last.
    Gap a lies between the stored states a and a + 1. With P(l, m) the least advances for l steps and m slots:
    keep[a] = P(gap a, s - a), its cost; relief[a] = P(gap a, s - a + 1) - keep[a] <= 0, the change when a state on its
    left is dropped; merge[j] = P(gap j - 1 and gap j together, s - j + 1) - keep[j - 1] - keep[j], the change in those
    two when state j is dropped. The newest state's own step needs no advance.
    Dropping state j leaves the entries below j - 1 as they are, and an appended state leaves all of them.
    """

    __slots__ = ("free", "gaps", "homes", "keep", "last", "merge", "more", "relief", "slots")

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.last = slots - 1
        self.homes = list(range(slots))
        self.free: list[int] = []
        self.gaps: list[int] = [1] * (slots - 1)
        self.keep: list[int] = [0] * (slots - 1)
        self.relief: list[int] = [0] * (slots - 1)
        # State 0 is never dropped.
        self.merge: list[float] = [inf] + [1] * (slots - 2)
        # more[a] is P for a gap a with one slot more, as if a state on its left were dropped.
        self.more = [optimum(slots - a + 1) for a in range(slots + 1)]

    def next_candidate(self) -> int:
        """The first state i with i - last >= max(1, i // (c s)).

        With i = last + g and D = c s that is (last + g) // D <= g, or g (D - 1) > last - D.
        """
        spread = (SPARSITY if self.last < FAR else FAR_SPARSITY) * self.slots
        return self.last + max(1, (self.last - spread) // (spread - 1) + 1)

    def admit(self, candidate: int) -> int | None:
        """Stores the candidate, a state beyond the newest, or passes it over; returns its slot, or None."""
        newest, gap = self.last, candidate - self.last
        self.append(candidate)
        if self.free:
            home = self.free.pop()
        else:
            change, rank = self.best_drop()
            # Without its store the candidate's step is one more of a gap with one slot: P(gap + 1, 1) - P(gap, 1).
            if change >= gap:
                for entries in (self.gaps, self.keep, self.relief, self.merge):
                    entries.pop()
                self.last = newest
                return None
            home = self.drop(rank)
        self.homes.append(home)
        return home

    def thin(self) -> tuple[int, int]:
        """Drops up to `MOST_FREED` states whose loss makes the reversal cheaper; returns their slots, -1 for none.

        A stored state takes a slot from every gap on its right, so one in a bad place is worse than none. With those
        gone on the way, what is left to decide when the loop has stopped is one number, how many of the oldest states
        to keep (`adjoint.planning`): a compiled loop pays for every operation of that decision, and for none of this.
        """
        freed = list(NONE_FREED)
        for count in range(MOST_FREED):
            change, rank = self.best_drop()
            if change >= 0:
                break
            freed[count] = self.drop(rank)
            self.free.append(freed[count])
        return freed[0], freed[1]

    def best_drop(self) -> tuple[float, int]:
        """The change in cost and the rank of the drop, other than of state 0 or the newest, that costs least.

        Dropping j changes the cost by merge[j] and by the relief of every gap beyond j. Of equals the oldest goes.
        """
        changes = list(map(sub, self.merge, accumulate(self.relief)))
        least = min(changes)
        return least + sum(self.relief), changes.index(least)

    def append(self, state: int) -> None:
        """Stores a state as the newest, even beyond the number of slots: one must be dropped then."""
        rank = len(self.gaps)
        gap = state - self.last
        keep = optimum(self.slots - rank)(gap)
        more = optimum(self.slots - rank + 1)
        self.merge.append(more(self.gaps[-1] + gap) - self.keep[-1] - keep if rank else inf)
        self.gaps.append(gap)
        self.keep.append(keep)
        self.relief.append(more(gap) - keep)
        self.last = state

    def drop(self, j: int) -> int:
        """Drops the stored state of rank j, neither state 0 nor the newest; returns the slot that held it."""
        gaps, keep, relief, merge = self.gaps, self.keep, self.relief, self.merge
        gaps[j - 1 : j + 1] = [gaps[j - 1] + gaps[j]]
        # A gap beyond j loses one rank: what it costs then is known.
        keep[j - 1 :] = [int(merge[j]) + keep[j - 1] + keep[j], *map(add, keep[j + 1 :], relief[j + 1 :])]
        first = max(j - 1, 1)
        del relief[j - 1 :], merge[first:]
        costs, more = keep[j - 1 :], self.more[j - 1 : len(gaps)]
        relief += map(sub, map(Optimum.__call__, more, gaps[j - 1 :]), costs)
        pairs = map(add, gaps[first - 1 :], gaps[first:])
        apart = map(add, keep[first - 1 :], keep[first:])
        merge += map(sub, map(Optimum.__call__, self.more[first : len(gaps)], pairs), apart)
        return self.homes.pop(j)
