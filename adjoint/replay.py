"""The judge of all schedules: runs any of them on integers, checks every invariant and counts everything.

A state is its own index here, so the working state is an integer or nothing, and a slot holds an integer or nothing.
A schedule that passes can be driven with real states; one that fails is told its first broken invariant in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from adjoint.actions import Action, Advance, Discard, Restore, Store, Turn
from adjoint.errors import InvariantError, checked_integer
from adjoint.schedule import checked_steps


@dataclass(frozen=True, slots=True)
class Counts:
    """What a schedule did on one chain.

    Args:
        advances: plain step evaluations.
        turns: taped step evaluations, each followed by its adjoint.
        stores: copies of the working state into a slot.
        restores: copies of a slot into the working state.
        discards: slots freed.
        peak_slots: the most slots occupied at once.
        delivered: whether the last state was the working state before the first turn, as a split schedule must have it.

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

    @property
    def evaluations(self) -> int:
        """All step evaluations: advances and turns."""
        return self.advances + self.turns


class HasActions(Protocol):
    """Anything whose `actions(steps)` gives actions: a `Schedule`, or what a test makes up."""

    def actions(self, steps: int, /) -> Iterator[Action]: ...


def replay(schedule: HasActions, steps: int, slots: int | None = None) -> Counts:
    """Executes a schedule on integers and counts what it does.

    The invariants: the working state is state 0 at first. An advance starts at the working state, moves on and stays
    within the chain. A store copies the working state, with its own index; a store into an occupied slot overwrites it
    and counts as any other. A restore or a discard names what the slot holds. A turn is of the last step not yet
    turned, from its own state, and leaves no working state. At the end every step has been turned, once.

    Args:
        schedule: anything with `actions(steps)`.
        steps: n >= 0.
        slots: how many slots there are; by default any number.

    Returns:
        The counts.

    Raises:
        InvariantError: the first broken invariant, in words, and the action that breaks it.
        ScheduleError: steps or slots is no such number, or the schedule has no answer for that many steps.

    Cost: one integer operation per action; no step runs.

    >>> from adjoint import Online
    >>> counts = replay(Online(8), steps=100, slots=8)
    >>> counts.evaluations == Online(8).cost(100).evaluations
    True
    """
    n = checked_steps(steps)
    if slots is not None:
        slots = checked_integer("slots", slots, 0, "give the number of slots there are, or leave it out")
    machine = Machine(n, slots)
    for action in schedule.actions(n):
        machine.execute(action)
    return machine.counts()


class Machine:
    """The working state, the slots and the counters of one replay."""

    __slots__ = (
        "advances",
        "delivered",
        "discards",
        "held",
        "left",
        "limit",
        "peak",
        "position",
        "restores",
        "steps",
        "stores",
        "working",
    )

    def __init__(self, steps: int, limit: int | None) -> None:
        self.steps = steps
        self.limit = limit
        self.working: int | None = 0
        self.held: dict[int, int] = {}
        self.left = steps
        self.delivered = steps == 0
        self.position = self.advances = self.stores = self.restores = self.discards = self.peak = 0

    def execute(self, action: Action) -> None:
        """Runs one action, or raises an `InvariantError`."""
        match action:
            case Advance():
                reason = self.advance(action)
            case Store():
                reason = self.store(action)
            case Restore():
                reason = self.restore(action)
            case Discard():
                reason = self.discard(action)
            case Turn():
                reason = self.turn(action)
            case _:
                reason = "it is no action of this package"
        if reason:
            raise InvariantError(self.position, action, reason)
        self.position += 1

    def advance(self, action: Advance) -> str | None:
        if action.start != self.working:
            return f"it starts at state {action.start}, but {self.working_in_words()}"
        if action.stop <= action.start:
            return "it runs no step: stop must be greater than start"
        if action.stop > self.steps:
            return f"it runs past the end: the chain's last state is {self.steps}"
        self.advances += action.stop - action.start
        self.working = action.stop
        self.delivered = self.delivered or (action.stop == self.steps == self.left)
        return None

    def store(self, action: Store) -> str | None:
        if action.state != self.working:
            return f"it stores state {action.state}, but {self.working_in_words()}"
        if action.slot < 0:
            return "there is no slot with a negative number"
        if self.limit is not None and action.slot >= self.limit:
            return f"there are {self.limit} slots, numbered from 0: slot {action.slot} is not one of them"
        self.held[action.slot] = action.state
        self.stores += 1
        self.peak = max(self.peak, len(self.held))
        return None

    def restore(self, action: Restore) -> str | None:
        if self.held.get(action.slot) != action.state:
            return f"it restores state {action.state}, but {self.slot_in_words(action.slot)}"
        self.restores += 1
        self.working = action.state
        return None

    def discard(self, action: Discard) -> str | None:
        if self.held.get(action.slot) != action.state:
            return f"it discards state {action.state}, but {self.slot_in_words(action.slot)}"
        self.discards += 1
        del self.held[action.slot]
        return None

    def turn(self, action: Turn) -> str | None:
        if self.left == 0:
            return "every step is turned already"
        if action.step != self.left - 1:
            return f"steps are turned from the last to the first, and the next one is step {self.left - 1}"
        if action.step != self.working:
            return f"step {action.step} starts from state {action.step}, but {self.working_in_words()}"
        self.left -= 1
        self.working = None
        return None

    def counts(self) -> Counts:
        """The counts of a schedule that has ended, or an `InvariantError` if it ended too early."""
        if self.left:
            raise InvariantError(self.position, None, f"steps 0..{self.left - 1} are not turned yet")
        return Counts(
            advances=self.advances,
            turns=self.steps,
            stores=self.stores,
            restores=self.restores,
            discards=self.discards,
            peak_slots=self.peak,
            delivered=self.delivered,
        )

    def working_in_words(self) -> str:
        return "there is no working state" if self.working is None else f"the working state is {self.working}"

    def slot_in_words(self, slot: int) -> str:
        return f"slot {slot} holds state {self.held[slot]}" if slot in self.held else f"slot {slot} holds nothing"
