"""The schedule for an unknown number of steps that is bounded: the least evaluations, or nearly, for small bounds.

With s slots and at most (s + 1)(s + 2) / 2 - 1 steps no step need run more than three times, once forward and twice
again, and one sequence of stores is optimal for every number of steps up to there (Stumm & Walther 2010, Algorithm I).

Why: reversing n steps after the forward pass takes n - s advances, the least possible, if s states are stored and gap
a, counted from the oldest with a = 0, is at most s - a + 1 steps long: then each step of it but the last is advanced
once. The *pillars* 0, s + 1, 2 s + 1, 3 s, ..., each gap between them as long as that allows, are never given up. While
there is room between the pillars, other states are kept too, and of those the oldest makes room for the next: so a
prefix of the gaps is as long as it may be, one is shorter, and the rest are as short as they were when stored. The last
gap may be two steps long, so that about every other state is stored.

From there to beta(s, 3) - 1 steps the pillars lie further apart, gap a being beta(s - a, 2) steps long, which three
sweeps turn; about every third state is stored, and of those that may go the newest makes room: one whose two gaps
together are no longer than that (their Algorithm II). The evaluations are not always the least, but nearly;
`benchmarks/online_rules.py` compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, chain, takewhile

from adjoint.actions import Action, Advance, Store
from adjoint.binomial import beta
from adjoint.errors import ScheduleError, checked_integer
from adjoint.offline import StoreAll
from adjoint.online import Online, sweep_stores
from adjoint.planning import plan
from adjoint.schedule import Cost, Schedule, checked_steps
from adjoint.tiers import slots_within


@dataclass(frozen=True)
class Bounded(Schedule):
    """The least step evaluations without knowing the number of steps, if it is bounded and the bound is not too great.

    Args:
        slots: s, states kept at once, state 0 included, >= 1.
        max_steps: the bound, >= 0. Up to s every state is kept; up to beta(s, 2) - 1 = (s + 1)(s + 2) / 2 - 1 the
            evaluations are the least possible for every number of steps; up to beta(s, 3) - 1 they are within a few
            per cent of that, and closer with more slots; beyond, this is `Online`.

    Raises:
        ScheduleError: slots is below 1 or max_steps below 0; and, when asked for more steps than the bound.

    Cost: P(n + 1, s) advances within the first limit; n turns. `actions` and `cost` take O(slots) operations for each
        store.

    >>> from adjoint import Binomial
    >>> [Bounded(4, max_steps=14).cost(n).evaluations - Binomial(4).cost(n).evaluations for n in (5, 9, 14)]
    [0, 0, 0]
    >>> [Online(4).cost(n).evaluations - Binomial(4).cost(n).evaluations for n in (5, 9, 14)]
    [0, 0, 1]
    """

    slots: int
    max_steps: int

    def __post_init__(self) -> None:
        slots = checked_integer("slots", self.slots, 1, "give at least one slot, for state 0")
        advice = "give the greatest number of steps, or use adjoint.Online"
        bound = checked_integer("max_steps", self.max_steps, 0, advice)
        object.__setattr__(self, "slots", slots)
        object.__setattr__(self, "max_steps", bound)

    @classmethod
    def for_budget(cls, bytes: int, state_bytes: int, max_steps: int) -> Bounded:
        """The schedule with as many slots as fit.

        Args:
            bytes: memory for stored states.
            state_bytes: size of one state, >= 1.
            max_steps: as for the class.

        Returns:
            A schedule.

        Raises:
            ScheduleError: not even one state fits, or max_steps is below 0.

        >>> Bounded.for_budget(1000, 90, max_steps=77)
        Bounded(slots=11, max_steps=77)
        """
        return cls(slots_within(bytes, state_bytes), max_steps)

    @property
    def is_optimal(self) -> bool:
        """Whether no schedule at all takes fewer evaluations, for any number of steps up to the bound."""
        return self.max_steps < (self.slots + 1) * (self.slots + 2) // 2

    @property
    def is_online(self) -> bool:
        """Whether the bound is too great for a rule of its own."""
        return self.max_steps >= beta(self.slots, 3)

    def actions(self, steps: int) -> Iterator[Action]:
        """See `Schedule.actions`."""
        n = self.checked(steps)
        if self.max_steps <= self.slots:
            return StoreAll().actions(n)
        return Online(self.slots).actions(n) if self.is_online else self.run(n)

    def cost(self, steps: int) -> Cost:
        """See `Schedule.cost`."""
        n = self.checked(steps)
        if self.max_steps <= self.slots:
            return StoreAll().cost(n)
        if self.is_online or n == 0:
            return Online(self.slots).cost(n)
        events = list(self.stores(n))
        held = {slot: state for state, slot in events}
        chosen = plan(sorted(held.values()), n, self.slots)
        stores = len(events) + sweep_stores(chosen, n, self.slots)
        return Cost(steps=n, advances=n + chosen.advances, turns=n, stores=stores, slots=min(self.slots, n))

    def checked(self, steps: int) -> int:
        """A number of steps within the bound, or a `ScheduleError`."""
        n = checked_steps(steps)
        if n > self.max_steps:
            raise ScheduleError("steps", n, f"at most max_steps = {self.max_steps}", "give a greater max_steps")
        return n

    def run(self, n: int) -> Iterator[Action]:
        """The actions between pillars."""
        held: dict[int, int] = {}
        events = list(self.stores(n))
        if n == 0:
            return
        for (state, slot), stop in zip(events, [*(state for state, _ in events[1:]), n], strict=True):
            held[slot] = state
            yield Store(state, slot)
            yield Advance(state, stop)
        yield from Online(self.slots).reversal(n, held)

    def stores(self, n: int) -> Iterator[tuple[int, int]]:
        """The stores of the forward pass, as pairs (state, slot)."""
        near = pillar_stores(self.slots)
        return takewhile(lambda event: event[0] < n, chain(near, far_stores(self.slots, near)))


def pillar_stores(slots: int) -> list[tuple[int, int]]:
    """Every store of Algorithm I, as pairs (state, slot), until the slots hold its pillars alone."""
    pillars = set(accumulate((slots + 1 - a for a in range(slots - 1)), initial=0))
    stored: list[tuple[int, int]] = []
    events: list[tuple[int, int]] = []
    for state in range(max(pillars) + 1):
        if len(stored) < slots:
            slot = state
        elif state in pillars or state - stored[-1][0] == 2:
            oldest = next(i for i, (older, _) in enumerate(stored) if older not in pillars)
            slot = stored.pop(oldest)[1]
        else:
            continue
        stored.append((state, slot))
        events.append((state, slot))
    return events


def far_stores(slots: int, before: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The stores of Algorithm II after those of Algorithm I, until the slots hold its pillars alone."""
    homes = sorted((state, slot) for slot, state in {slot: state for state, slot in before}.items())
    states, places = [state for state, _ in homes], [slot for _, slot in homes]
    lengths = [beta(m, 2) for m in range(slots, 0, -1)]
    pillars = list(accumulate(lengths[:-1], initial=0))
    while states[-1] < pillars[-1]:
        # A pillar is stored when its turn comes, though it be nearer than three steps.
        state = min(states[-1] + 3, next(p for p in pillars if p > states[-1]))
        states.append(state)
        free = next(
            a
            for a in range(slots - 1, 0, -1)
            if states[a] not in pillars and states[a + 1] - states[a - 1] <= lengths[a - 1]
        )
        states.pop(free)
        places.append(places.pop(free))
        yield state, places[-1]
