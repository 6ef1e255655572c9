"""The machine that schedules are replayed on: a working state, slots in tiers, and the invariants of every action.

A state is its own index here, so the working state is an integer or nothing, and a slot holds a state, the tape of a
step, or nothing. An action that breaks an invariant is answered by the reason, in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from adjoint.actions import Action, Advance, Apply, Discard, Prefetch, Record, Restore, Store, Turn
from adjoint.errors import InvariantError
from adjoint.timeline import Address, Clock

Limits = Sequence[int | None]
"""For each tier how many slots it has, None standing for any number."""


class Content(NamedTuple):
    """What a slot holds: the state of that number, or the tape of the step of that number."""

    number: int
    is_tape: bool

    def __str__(self) -> str:
        return f"the tape of step {self.number}" if self.is_tape else f"state {self.number}"


class Machine:
    """The working state, the slots and the counters of one replay."""

    __slots__ = (
        "advances",
        "announced",
        "applied",
        "clock",
        "delivered",
        "discards",
        "held",
        "left",
        "limits",
        "occupied",
        "peak",
        "peaks",
        "position",
        "prefetches",
        "reads",
        "recorded",
        "steps",
        "working",
        "writes",
    )

    def __init__(self, steps: int, limits: Limits | None, clock: Clock | None = None) -> None:
        self.steps = steps
        self.limits = limits
        self.clock = clock
        self.working: int | None = 0
        self.held: dict[Address, Content] = {}
        self.announced: dict[Address, int] = {}
        self.left = steps
        self.delivered = steps == 0
        self.position = self.advances = self.recorded = self.applied = self.discards = self.prefetches = self.peak = 0
        # By tier: slots occupied, the most of them at once, writes and reads.
        self.occupied: dict[int, int] = {}
        self.peaks: dict[int, int] = {}
        self.writes: dict[int, int] = {}
        self.reads: dict[int, int] = {}

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
            case Record():
                reason = self.record(action)
            case Apply():
                reason = self.apply(action)
            case Prefetch():
                reason = self.prefetch(action)
            case _:
                reason = "it is no action of this package"
        if reason:
            raise InvariantError(self.position, action, reason)
        self.position += 1

    def finish(self) -> None:
        """Raises an `InvariantError` if the schedule has ended too early."""
        if self.left:
            raise InvariantError(self.position, None, f"steps 0..{self.left - 1} are not turned yet")
        for (tier, slot), position in self.announced.items():
            announced = f"{self.slot_in_words(tier, slot)}, which action {position} announced"
            raise InvariantError(self.position, None, f"{announced}, and which was never restored")

    def advance(self, action: Advance) -> str | None:
        if action.start != self.working:
            return f"it starts at state {action.start}, but {self.working_in_words()}"
        if action.stop <= action.start:
            return "it runs no step: stop must be greater than start"
        if action.stop > self.steps:
            return f"it runs past the end: the chain's last state is {self.steps}"
        self.advances += action.stop - action.start
        self.move(action.stop)
        return None

    def store(self, action: Store) -> str | None:
        if action.state != self.working:
            return f"it stores state {action.state}, but {self.working_in_words()}"
        return self.put(action.tier, action.slot, Content(action.state, is_tape=False))

    def restore(self, action: Restore) -> str | None:
        content = Content(action.state, is_tape=False)
        if self.held.get((action.tier, action.slot)) != content:
            return f"it restores {content}, but {self.slot_in_words(action.tier, action.slot)}"
        self.get(action.tier, action.slot)
        self.working = action.state
        return None

    def discard(self, action: Discard) -> str | None:
        address = (action.tier, action.slot)
        held = self.held.get(address)
        if held is None or held.number != action.state:
            return f"it discards state {action.state}, but {self.slot_in_words(*address)}"
        if address in self.announced:
            return f"{held} was announced by action {self.announced[address]} and is not restored yet"
        self.discards += 1
        self.occupied[action.tier] -= 1
        del self.held[address]
        return None

    def turn(self, action: Turn) -> str | None:
        if reason := self.out_of_turn(action.step):
            return reason
        if action.step != self.working:
            return f"step {action.step} starts from state {action.step}, but {self.working_in_words()}"
        self.left -= 1
        self.working = None
        if self.clock:
            self.clock.run(action.step, action.step + 1)
            self.clock.apply()
        return None

    def record(self, action: Record) -> str | None:
        if action.step != self.working:
            return f"step {action.step} starts from state {action.step}, but {self.working_in_words()}"
        if action.step >= self.left:
            return f"step {action.step} is turned already: a tape of it has no use"
        self.move(action.step + 1)
        self.recorded += 1
        return self.put(action.tier, action.slot, Content(action.step, is_tape=True))

    def apply(self, action: Apply) -> str | None:
        content = Content(action.step, is_tape=True)
        if reason := self.out_of_turn(action.step):
            return reason
        if self.held.get((action.tier, action.slot)) != content:
            return f"it applies {content}, but {self.slot_in_words(action.tier, action.slot)}"
        self.get(action.tier, action.slot)
        self.applied += 1
        self.left -= 1
        if self.clock:
            self.clock.apply()
        return None

    def prefetch(self, action: Prefetch) -> str | None:
        address = (action.tier, action.slot)
        held = self.held.get(address)
        if held is None or held.number != action.state:
            return f"it announces state {action.state}, but {self.slot_in_words(*address)}"
        if address in self.announced:
            return f"{held} is announced already, by action {self.announced[address]}"
        self.prefetches += 1
        self.announced[address] = self.position
        if self.clock:
            waiting = sum(tier == action.tier for tier, _ in self.announced)
            buffers = self.clock.tiers[action.tier].buffers
            if 0 < buffers < waiting:
                return f"tier {action.tier} has {buffers} buffers, and {waiting - 1} announced states wait in them"
            self.clock.announce(action.tier, address)
        return None

    def move(self, state: int) -> None:
        """Makes the state the working one, the steps up to it having run."""
        if self.clock and self.working is not None:
            self.clock.run(self.working, state)
        self.working = state
        self.delivered = self.delivered or (state == self.steps == self.left)

    def put(self, tier: int, slot: int, content: Content) -> str | None:
        """Fills a slot, or says why that cannot be."""
        if slot < 0:
            return "there is no slot with a negative number"
        if tier < 0:
            return "there is no tier with a negative number"
        if self.limits is not None:
            if tier >= len(self.limits):
                return f"there are {len(self.limits)} tiers, numbered from 0: tier {tier} is not one of them"
            limit = self.limits[tier]
            if limit is not None and slot >= limit:
                where = f" in tier {tier}" if len(self.limits) > 1 else ""
                return f"there are {limit} slots{where}, numbered from 0: slot {slot} is not one of them"
        address = (tier, slot)
        if address in self.announced:
            return (
                f"{self.held[address]} in that slot was announced by action {self.announced[address]}: it would be lost"
            )
        if address not in self.held:
            self.occupied[tier] = self.occupied.get(tier, 0) + 1
        self.held[address] = content
        self.writes[tier] = self.writes.get(tier, 0) + 1
        self.peak = max(self.peak, len(self.held))
        self.peaks[tier] = max(self.peaks.get(tier, 0), self.occupied[tier])
        if self.clock:
            self.clock.write(tier)
        return None

    def get(self, tier: int, slot: int) -> None:
        """Reads a slot that holds what is asked for."""
        self.announced.pop((tier, slot), None)
        self.reads[tier] = self.reads.get(tier, 0) + 1
        if self.clock:
            self.clock.read(tier, (tier, slot))

    def out_of_turn(self, step: int) -> str | None:
        """Why that step is not the next to turn, or None."""
        if self.left == 0:
            return "every step is turned already"
        if step != self.left - 1:
            return f"steps are turned from the last to the first, and the next one is step {self.left - 1}"
        return None

    def working_in_words(self) -> str:
        return "there is no working state" if self.working is None else f"the working state is {self.working}"

    def slot_in_words(self, tier: int, slot: int) -> str:
        where = f"slot {slot} of tier {tier}" if tier else f"slot {slot}"
        held = self.held.get((tier, slot))
        return f"{where} holds nothing" if held is None else f"{where} holds {held}"
