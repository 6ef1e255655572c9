"""The schedule for loops whose number of steps is unknown until they stop.

The forward pass stores states by a fixed sequence (`store_table`); when the loop has stopped, `plan` chooses among
them; then every gap is reversed by binomial sweeps (`adjoint.sweep`).
With a *leaf* of u steps the slots hold every u-th state at most, and a ring of u more slots holds the newest states:
the last u steps are turned from the ring without redoing anything, and later the ring takes the states of one block of
u steps at a time. That trades memory for fewer repetitions and for tight inner loops of known shape.
The ideas are those of Wang, Moin & Iaccarino 2009 and Stumm & Walther 2010 (placement while running) joined with
Griewank & Walther 2000 (the reversal of each gap).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from adjoint.actions import Action, Advance, Basic, Discard, Restore, Store, Turn
from adjoint.binomial import SATURATED, fewest_stores, first_offset, repetition
from adjoint.errors import ScheduleError, checked_integer
from adjoint.placement import NONE_FREED, StoreTable, store_table
from adjoint.planning import Plan, plan
from adjoint.ring import Ring
from adjoint.schedule import Cost, Schedule, checked_steps
from adjoint.sweep import Gap, reverse_gaps
from adjoint.tiers import slots_within


@dataclass(frozen=True)
class Online(Schedule):
    """Close to the least step evaluations when nobody knows the number of steps before the loop stops.

    Args:
        slots: states kept at once, state 0 included, >= 1. It may be 0 with a leaf, for loops of at most `leaf` steps.
        leaf: u, the steps of a block; u more slots then hold the newest states, state i in slot `slots + i % u`.
            By default 0: no ring, and the slots hold any states.

    Raises:
        ScheduleError: a negative number, or no slot at all; and, when asked for more than `leaf` steps, no slot
            beside the ring.

    Cost: 2 n + plan.advances step evaluations without a leaf; with one, between 2 n and 3 n and u times the advances
        of the plan over blocks. `actions` and `cost` take O(slots) integer operations for each candidate of the first
        table of a size (`store_table`), which is remembered.

    >>> Online(8).cost(100)
    Cost(steps=100, advances=249, turns=100, stores=90, slots=8)
    >>> for action in Online(0, leaf=2).actions(2):
    ...     print(action)
    Store(state=0, slot=0)
    Advance(start=0, stop=1)
    Store(state=1, slot=1)
    Advance(start=1, stop=2)
    Restore(state=1, slot=1)
    Discard(state=1, slot=1)
    Turn(step=1)
    Restore(state=0, slot=0)
    Discard(state=0, slot=0)
    Turn(step=0)
    """

    slots: int
    leaf: int = 0

    def __post_init__(self) -> None:
        leaf = checked_integer("leaf", self.leaf, 0, "give the number of newest states to keep, or leave it out")
        advice = "give at least one slot, or a leaf that is as long as the loop"
        slots = checked_integer("slots", self.slots, 0 if leaf else 1, advice)
        object.__setattr__(self, "leaf", leaf)
        object.__setattr__(self, "slots", slots)

    @classmethod
    def for_budget(cls, bytes: int, state_bytes: int, leaf: int = 0) -> Online:
        """The schedule with as many slots as fit beside the leaf.

        Args:
            bytes: memory for stored states.
            state_bytes: size of one state, >= 1.
            leaf: as for the class.

        Returns:
            A schedule.

        Raises:
            ScheduleError: not even one state fits beside the leaf.

        >>> Online.for_budget(1000, 90)
        Online(slots=11, leaf=0)
        """
        beside = checked_integer("leaf", leaf, 0, "give the number of newest states to keep, or leave it out")
        return cls(slots_within(bytes, state_bytes, beside), beside)

    def actions(self, steps: int) -> Iterator[Action]:
        """See `Schedule.actions`."""
        n = self.checked(steps)
        return self.run_blocks(n) if self.leaf else self.run(n)

    def cost(self, steps: int) -> Cost:
        """See `Schedule.cost`. O(slots + stores of the forward pass)."""
        n = self.checked(steps)
        if n == 0:
            return Cost(steps=0, advances=0, turns=0, stores=0, slots=0)
        u = max(self.leaf, 1)
        earlier = n - min(n, self.leaf)
        begun, whole = -(-n // u), -(-earlier // u)
        table = self.table(begun)
        stores = bisect_left(table.states, begun)
        again = 0
        if whole:
            chosen = plan([block for block, _ in table.held(begun) if block < whole], whole, self.slots)
            # A sweep advances over whole blocks; turning a block runs it once more, but for its last step.
            again = u * chosen.advances + earlier - whole
            stores += sweep_stores(chosen, whole, self.slots)
        if not self.leaf:
            return Cost(steps=n, advances=n + again, turns=n, stores=stores, slots=min(self.slots, n))
        slots = self.slots + min(n, self.leaf)
        return Cost(steps=n, advances=n + again, turns=n, stores=stores + n + earlier, slots=slots)

    def checked(self, steps: int) -> int:
        """A number of steps that this schedule can reverse, or a `ScheduleError`."""
        n = checked_steps(steps)
        if self.slots == 0 and n > self.leaf:
            raise ScheduleError("steps", n, f"at most leaf = {self.leaf} without slots", "give slots, or a longer leaf")
        if n > SATURATED * max(self.leaf, 1):
            most = f"at most {SATURATED * max(self.leaf, 1)}, as an int32 counts the places of stores"
            raise ScheduleError("steps", n, most, "give a longer leaf")
        return n

    def table(self, n: int) -> StoreTable:
        """A store table that reaches n; rounding n up keeps the number of different tables small."""
        if not self.slots:
            return StoreTable((SATURATED,), (0,), (NONE_FREED,))
        return store_table(self.slots, min(max(1 << n.bit_length(), 1024), SATURATED))

    def run(self, n: int) -> Iterator[Action]:
        """The actions without a leaf."""
        table = self.table(n)
        held: dict[int, int] = {}
        for entry in range(bisect_left(table.states, n)):
            yield from store(table, entry, held)
            yield Advance(table.states[entry], min(table.states[entry + 1], n))
        if n:
            yield from self.reversal(n, held)

    def reversal(self, n: int, held: dict[int, int]) -> Iterator[Basic]:
        """Turns n steps, or blocks of steps, from what the slots hold (a state for each slot)."""
        home = {state: slot for slot, state in held.items()}
        chosen = plan(sorted(home), n, self.slots)
        kept, start = chosen.kept, chosen.sweep_from
        free = [slot for slot in range(self.slots - 1, -1, -1) if slot not in held]
        for state, slot in home.items():
            if state > kept[-1] and state != start:
                yield Discard(state, slot)
                free.append(slot)
        working: int | None = None
        if start > kept[-1]:
            yield Restore(start, home[start])
            yield Discard(start, home[start])
            free.append(home[start])
            working = start
        stops = (*kept[1:], n)
        gaps: list[Gap] = [
            (state, home[state], repetition(stop - state, self.slots - rank))
            for rank, (state, stop) in enumerate(zip(kept, stops, strict=True))
        ]
        yield from reverse_gaps(gaps, n, self.slots, free, working)

    def run_blocks(self, n: int) -> Iterator[Action]:
        """The actions with a leaf."""
        u, ring = self.leaf, Ring(self.slots, self.leaf)
        blocks = -(-n // u)
        table = self.table(blocks)
        entry, held = 0, dict[int, int]()
        for state in range(n):
            if state == table.states[entry] * u:
                for action in store(table, entry, held):
                    yield ring.in_steps(action)
                entry += 1
            yield from ring.fill(state, state + 1)
        earlier = n - min(n, u)
        yield from ring.turn(earlier, n)
        whole = -(-earlier // u)
        for slot in [slot for slot, block in held.items() if block >= whole]:
            yield Discard(held.pop(slot) * u, slot)
        for action in self.reversal(whole, held) if whole else ():
            if isinstance(action, Turn):
                yield from ring.turn_block(action.step, earlier)
            else:
                yield ring.in_steps(action)


def store(table: StoreTable, entry: int, held: dict[int, int]) -> Iterator[Store | Discard]:
    """One store of the forward pass and the drops that go with it; keeps `held`, the state in each slot, up to date."""
    state, slot = table.states[entry], table.slots[entry]
    held[slot] = state
    yield Store(state, slot)
    for gone in table.freed[entry]:
        if gone >= 0:
            yield Discard(held.pop(gone), gone)


def sweep_stores(chosen: Plan, n: int, slots: int) -> int:
    """The stores of a plan's binomial sweeps, each gap's first state being stored already."""
    total, m = 0, slots
    for start, stop in pairwise(chosen.kept):
        total += fewest_stores(stop - start, m) - 1
        m -= 1
    newest = chosen.kept[-1]
    length = n - newest
    if length == 1:
        return total
    # The first sweep may split the newest gap elsewhere than the fewest stores would have it: `sweep.reverse_gaps`.
    k = max(first_offset(length, m, repetition(length, m)), chosen.sweep_from - newest + 1)
    right = fewest_stores(length - k, m - 1) if length - k > 1 else 0
    return total + right + fewest_stores(k, m) - 1
