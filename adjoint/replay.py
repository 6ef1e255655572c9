"""The judge of all schedules: runs any of them on integers, checks every invariant and counts everything.

A schedule that passes can be driven with real states; one that fails is told its first broken invariant in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from adjoint.actions import Action
from adjoint.errors import ScheduleError, checked_integer
from adjoint.machine import Machine
from adjoint.schedule import Cost, Traffic, checked_steps
from adjoint.tiers import Tier, checked_tiers
from adjoint.timeline import Clock


@dataclass(frozen=True, slots=True)
class Counts:
    """What a schedule did on one chain.

    Args:
        advances: plain step evaluations.
        turns: adjoints applied, one for each step.
        stores: copies into a slot, of the working state or of a tape.
        restores: reads of a slot, of a state or of a tape.
        discards: slots freed.
        peak_slots: the most slots occupied at once, of all tiers together.
        delivered: whether the last state was the working state before the first turn, as a split schedule must have it.
        recorded: how many of the stores are tapes.
        unused: how many of those tapes were never applied; each is an evaluation in vain.
        prefetches: restores that were announced.
        traffic: the same by tier, from tier 0 to the last one used.
        makespan: when the last adjoint ended, in the unit of the costs; None if no tiers were given.

    >>> from adjoint import Binomial
    >>> counts = replay(Binomial(3, joined=True), steps=10)
    >>> counts.evaluations, counts.stores, counts.restores, counts.peak_slots, counts.delivered
    (25, 6, 9, 3, False)
    """

    advances: int
    turns: int
    stores: int
    restores: int
    discards: int
    peak_slots: int
    delivered: bool
    recorded: int = 0
    unused: int = 0
    prefetches: int = 0
    traffic: tuple[Traffic, ...] = ()
    makespan: float | None = None

    @property
    def evaluations(self) -> int:
        """All step evaluations: advances, turns, and tapes recorded in vain."""
        return self.advances + self.turns + self.unused


class HasActions(Protocol):
    """Anything whose `actions(steps)` gives actions: a `Schedule`, or what a test makes up."""

    def actions(self, steps: int, /) -> Iterator[Action]: ...


def replay(
    schedule: HasActions,
    steps: int,
    slots: int | None = None,
    tiers: Sequence[Tier] = (),
    step_cost: float | Sequence[float] = 1.0,
    adjoint_cost: float = 1.0,
) -> Counts:
    """Executes a schedule on integers and counts what it does.

    The invariants: the working state is state 0 at first. An advance starts at the working state, moves on and stays
    within the chain. A store copies the working state, with its own index, into a slot that exists; a store into an
    occupied slot overwrites it and counts as any other. A restore or a discard names what the slot holds. A turn is of
    the last step not yet turned, from its own state, and leaves no working state. A record starts at the working state
    and is of a step not yet turned; an apply is of the last step not yet turned, whose tape the slot holds. A prefetch
    names what the slot holds, and that is restored before it is lost, and before the end. At the end every step has
    been turned, once.

    Args:
        schedule: anything with `actions(steps)`.
        steps: n >= 0.
        slots: how many slots there are, in one tier; by default any number, in any number of tiers.
        tiers: the tiers, in the order of their numbers, instead of `slots`: their capacities are checked, and the time
            is taken (`Counts.makespan`).
        step_cost: what one step evaluation takes, or a sequence with one cost per step; by default the unit of costs.
        adjoint_cost: what one adjoint takes, the taped evaluation of its step not counted.

    Returns:
        The counts.

    Raises:
        InvariantError: the first broken invariant, in words, and the action that breaks it.
        ScheduleError: an argument is no such number, or the schedule has no answer for that many steps.

    Cost: one integer operation per action; no step runs.

    >>> from adjoint import Online, Tier
    >>> counts = replay(Online(8), steps=100, slots=8)
    >>> counts.evaluations == Online(8).cost(100).evaluations
    True
    >>> replay(Online(8), steps=100, tiers=[Tier("disk", slots=8, write=2, read=1)]).makespan
    729.0
    """
    n = checked_steps(steps)
    limits, clock = None, None
    if slots is not None:
        slots = checked_integer("slots", slots, 0, "give the number of slots there are, or leave it out")
        limits = (slots,)
    if tiers:
        if slots is not None:
            raise ScheduleError("slots", slots, "None beside tiers", "each tier says how many slots it has")
        tiers = checked_tiers(tiers, ordered=False)
        limits, clock = [tier.slots for tier in tiers], Clock(n, tiers, step_cost, adjoint_cost)
    machine = Machine(n, limits, clock)
    for action in schedule.actions(n):
        machine.execute(action)
    machine.finish()
    return counted(machine)


def counted(machine: Machine) -> Counts:
    """The counts of a machine that has finished."""
    numbers = range(max(machine.writes, default=-1) + 1)
    traffic = tuple(Traffic(*(of.get(k, 0) for of in (machine.peaks, machine.writes, machine.reads))) for k in numbers)
    return Counts(
        advances=machine.advances,
        turns=machine.steps,
        stores=sum(tier.stores for tier in traffic),
        restores=sum(tier.restores for tier in traffic),
        discards=machine.discards,
        peak_slots=machine.peak,
        delivered=machine.delivered,
        recorded=machine.recorded,
        unused=machine.recorded - machine.applied,
        prefetches=machine.prefetches,
        traffic=traffic,
        makespan=machine.clock.now if machine.clock else None,
    )


def cost_by_replay(schedule: HasActions, steps: int, tiers: int = 1) -> Cost:
    """The cost of a schedule whose rule has no formula: its actions are counted, and no step runs."""
    counts = replay(schedule, steps)
    nothing = (Traffic(0, 0, 0),) * (tiers - len(counts.traffic))
    return Cost(
        steps=counts.turns,
        advances=counts.advances,
        turns=counts.turns,
        stores=counts.stores,
        slots=sum(tier.slots for tier in counts.traffic),
        traffic=(*counts.traffic, *nothing) if tiers > 1 else (),
    )
