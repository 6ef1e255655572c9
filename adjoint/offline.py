"""Schedules for a known number of steps: binomial checkpointing, and the two plain ones beside it.

`Binomial` has the least possible number of step evaluations (Griewank 1992; Griewank & Walther 2000, Algorithm 799).
`StoreAll` repeats nothing and keeps every state. `Periodic` keeps every p-th state; it never uses the number of steps
before the end, so it is also the simplest schedule for a loop of unknown length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

from adjoint.actions import Action, Advance, Basic, Discard, Restore, Store, Turn
from adjoint.binomial import advances, fewest_stores, repetition
from adjoint.errors import ScheduleError, checked_integer
from adjoint.schedule import Cost, Schedule, checked_steps
from adjoint.sweep import reverse_gaps
from adjoint.tiers import slots_within


@dataclass(frozen=True)
class Binomial(Schedule):
    """The least step evaluations for a given number of slots, the number of steps being known at the start.

    Among the schedules with that cost, the one with the fewest stores.

    Args:
        slots: states kept at once, state 0 included, >= 1.
        joined: whether the forward pass runs straight into the first turn. By default it does not: it delivers the
            last state first, as a loop must whose result is used before its gradient is asked for.

    Raises:
        ScheduleError: slots is below 1.

    Cost: P(n, s) advances if joined, P(n + 1, s) if split (see `advances`); n turns.

    >>> Binomial(3).cost(10).evaluations, Binomial(3, joined=True).cost(10).evaluations
    (28, 25)
    >>> for action in Binomial(2).actions(2):
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
    joined: bool = False

    def __post_init__(self) -> None:
        slots = checked_integer("slots", self.slots, 1, "give at least one slot, for state 0")
        object.__setattr__(self, "slots", slots)

    @classmethod
    def for_budget(cls, bytes: int, state_bytes: int, joined: bool = False) -> Binomial:
        """The schedule with as many slots as fit.

        Args:
            bytes: memory for stored states.
            state_bytes: size of one state, >= 1.
            joined: as for the class.

        Returns:
            A schedule.

        Raises:
            ScheduleError: not even one state fits.

        >>> Binomial.for_budget(1000, 90)
        Binomial(slots=11, joined=False)
        """
        return cls(slots_within(bytes, state_bytes), joined)

    def actions(self, steps: int) -> Iterator[Basic]:
        """Slot r holds the (r + 1)-th oldest state. See `Schedule.actions`."""
        return self.run(checked_steps(steps))

    def cost(self, steps: int) -> Cost:
        """See `Schedule.cost`."""
        n = checked_steps(steps)
        length = self.chain(n)
        if length <= 1:
            return Cost(steps=n, advances=0, turns=n, stores=0, slots=0)
        return Cost(
            steps=n,
            advances=advances(length, self.slots),
            turns=n,
            stores=fewest_stores(length, self.slots),
            slots=min(self.slots, length - 1),
        )

    def chain(self, n: int) -> int:
        """The length of the joined chain that this reversal is: split adds a last step, the use of state n."""
        return n if self.joined or n == 0 else n + 1

    def run(self, n: int) -> Iterator[Basic]:
        length = self.chain(n)
        if length <= 1:
            yield from (Turn(step) for step in range(length))
            return
        # More slots than states change nothing; the list of free ones stays short.
        slots = min(self.slots, length)
        yield Store(0, 0)
        free = list(range(slots - 1, 0, -1))
        for action in reverse_gaps([(0, 0, repetition(length, slots))], length, slots, free, working=0):
            # The turn of step n stands for the use of state n between the two passes.
            if action != Turn(n):
                yield action


@dataclass(frozen=True)
class StoreAll(Schedule):
    """Every state is stored, state i in slot i; no step runs more than twice (once plain, once taped).

    Cost: n advances, n turns, n slots.

    >>> StoreAll().cost(10)
    Cost(steps=10, advances=10, turns=10, stores=10, slots=10)
    """

    @classmethod
    def for_budget(cls, bytes: int, state_bytes: int, steps: int) -> StoreAll:
        """The schedule, if every state of a chain of so many steps fits.

        Args:
            bytes: memory for stored states.
            state_bytes: size of one state, >= 1.
            steps: n >= 0.

        Returns:
            A schedule.

        Raises:
            ScheduleError: not every state fits.

        >>> StoreAll.for_budget(1000, 90, steps=11)
        StoreAll()
        """
        slots, n = slots_within(bytes, state_bytes), checked_steps(steps)
        if n > slots:
            advice = "give more memory, or use a schedule that runs steps again, such as adjoint.Binomial"
            raise ScheduleError("steps", n, f"at most {slots}, as so many states fit", advice)
        return cls()

    def actions(self, steps: int) -> Iterator[Action]:
        """See `Schedule.actions`."""
        return self.run(checked_steps(steps))

    def cost(self, steps: int) -> Cost:
        """See `Schedule.cost`."""
        n = checked_steps(steps)
        return Cost(steps=n, advances=n, turns=n, stores=n, slots=n)

    def run(self, n: int) -> Iterator[Action]:
        for state in range(n):
            yield Store(state, state)
            yield Advance(state, state + 1)
        for step in range(n - 1, -1, -1):
            yield Restore(step, step)
            yield Discard(step, step)
            yield Turn(step)


@dataclass(frozen=True)
class Periodic(Schedule):
    """Every `period`-th state is stored on the way; then each interval is run again, storing its states, and turned.

    With period p, state q p + j (0 < j < p) is stored in slot j - 1 while interval q is reversed, and state q p in slot
    p - 1 + q: the slots that the unknown number of intervals needs are the last ones.

    Args:
        period: steps from one stored state to the next, >= 1; about the square root of n needs the fewest slots.

    Raises:
        ScheduleError: period is below 1.

    Cost: 2 n - ceil(n / p) advances, n turns, ceil(n / p) + p - 1 slots.

    >>> Periodic(4).cost(10)
    Cost(steps=10, advances=17, turns=10, stores=10, slots=6)
    """

    period: int

    def __post_init__(self) -> None:
        period = checked_integer("period", self.period, 1, "give the number of steps between stored states")
        object.__setattr__(self, "period", period)

    @classmethod
    def for_budget(cls, bytes: int, state_bytes: int, steps: int) -> Periodic:
        """The schedule with the shortest period whose states fit: it runs the fewest steps again.

        Args:
            bytes: memory for stored states.
            state_bytes: size of one state, >= 1.
            steps: n >= 0, or the greatest number of steps.

        Returns:
            A schedule.

        Raises:
            ScheduleError: no period needs so little: that takes about twice the square root of n states.

        >>> Periodic.for_budget(1000, 90, steps=30)
        Periodic(period=4)
        """
        slots, n = slots_within(bytes, state_bytes), checked_steps(steps)
        # A longer period than the square root of n needs more slots again.
        for period in range(1, isqrt(n) + 2):
            if -(-n // period) + period - 1 <= slots:
                return cls(period)
        advice = "give more memory, or use adjoint.Binomial or adjoint.Online"
        raise ScheduleError("bytes", bytes, f"room for more than {slots} states in {n} steps", advice)

    def actions(self, steps: int) -> Iterator[Action]:
        """See `Schedule.actions`."""
        return self.run(checked_steps(steps))

    def cost(self, steps: int) -> Cost:
        """See `Schedule.cost`."""
        n = checked_steps(steps)
        intervals = -(-n // self.period)
        slots = intervals + self.period - 1 if n else 0
        return Cost(steps=n, advances=2 * n - intervals, turns=n, stores=n, slots=slots)

    def run(self, n: int) -> Iterator[Action]:
        period = self.period
        starts = range(0, n, period)
        for start in starts:
            yield Store(start, period - 1 + start // period)
            yield Advance(start, min(start + period, n))
        for start in reversed(starts):
            slot = period - 1 + start // period
            yield Restore(start, slot)
            last = min(start + period, n) - 1
            for state in range(start, last):
                yield Advance(state, state + 1)
                yield Store(state + 1, state - start)
            for step in range(last, start, -1):
                yield Restore(step, step - start - 1)
                yield Discard(step, step - start - 1)
                yield Turn(step)
            if last > start:
                yield Restore(start, slot)
            yield Discard(start, slot)
            yield Turn(start)
