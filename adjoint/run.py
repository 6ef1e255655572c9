"""One run of a chain: its arguments, checked; forward, back, and back again after an interruption.

The forward pass of a chain whose end nobody knows is that of a very long one, carried out step by step until it ends.
Where it has ended, the schedule is asked again, for that number of steps, and the reversal goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from adjoint.actions import Action, Advance, Apply, Record, Turn
from adjoint.asynchronous import Asynchronous, Overlap
from adjoint.chain import Chain
from adjoint.driver import Driver, Lost
from adjoint.errors import ScheduleError
from adjoint.machine import Machine
from adjoint.openended import checked_online, longest, not_online
from adjoint.recovery import after_store, after_turns, fill, kept, newest_kept
from adjoint.replay import HasActions
from adjoint.schedule import Schedule, checked_steps
from adjoint.store import Identity, Key, MemoryStore, Sample, StateStore


@dataclass(frozen=True)
class Reversal:
    """What a reversal gives, and what it took.

    Args:
        cotangent: the cotangent of state 0, with whatever else the turns have gathered in it.
        state: the last state, state n; None if the schedule is joined, as such a forward pass does not deliver it.
        steps: n.
        advances: plain steps that this call ran.
        turns: steps that this call turned.
        taped: taped step evaluations: one for each turn, or for each tape that was put into a slot.
        recomputed: plain steps on top, that made again what an interruption had lost.
        stores: states and tapes put into a slot.
        restores: states and tapes taken out of one.
        overlaps: for each asynchronous store, how much of its work was hidden.

    >>> from adjoint import StoreAll, reverse
    >>> print(reverse(StoreAll(), 10, lambda i, x: 2 * x, lambda i, x, bar: 2 * bar, 1.0, 1.0))
    10 steps reversed: 10 plain steps and 10 turns, 10 stores and 10 restores
    """

    cotangent: Any
    state: Any
    steps: int
    advances: int
    turns: int
    taped: int
    recomputed: int
    stores: int
    restores: int
    overlaps: tuple[Overlap, ...] = ()

    @property
    def evaluations(self) -> int:
        """All steps that this call ran, those of the turns included."""
        return self.advances + self.taped + self.recomputed

    def __str__(self) -> str:
        again = f", {self.recomputed} steps to make lost states again" if self.recomputed else ""
        counted = (
            f"{self.advances} plain steps and {self.turns} turns, {self.stores} stores and {self.restores} restores"
        )
        return "; ".join([f"{self.steps} steps reversed: {counted}{again}", *map(str, self.overlaps)])


class Run:
    """The arguments of a run, checked, and the way through it."""

    def __init__(
        self,
        schedule: HasActions,
        steps: int | None,
        chain: Chain,
        state: Any,
        cotangent: Any,
        store: StateStore | Sequence[StateStore] | None,
    ) -> None:
        self.schedule = schedule
        self.steps = None if steps is None else checked_steps(steps)
        self.initial = state
        self.cotangent = cotangent
        self.check(chain)
        self.stores = in_memory(schedule, self.steps) if store is None else checked_stores(store)
        self.driver = Driver(chain, self.stores, state, cotangent)

    def check(self, chain: Chain) -> None:
        """Refuses what could not end well, before the first step."""
        if self.steps is None:
            self.bound = longest(self.schedule)
            checked_online(self.schedule, self.bound)
            return
        self.bound = self.steps
        if chain.until is not None:
            advice = "leave out steps (None), or leave out until"
            raise ScheduleError("until", chain.until, f"nothing beside steps={self.steps}", advice)
        needs_last = callable(self.cotangent) or chain.turn is None
        if needs_last and not delivers(self.schedule, self.steps):
            advice = "give a split schedule, such as Binomial(slots), or in reverse the cotangent itself"
            raise ScheduleError("schedule", self.schedule, "one that delivers the last state before a turn", advice)

    def carry_out(self, is_new: bool) -> Reversal:
        """The whole run, or what is left of it."""
        self.begin(is_new)
        try:
            milestone = None if is_new else self.stores[-1].latest()
            if milestone is None:
                actions = self.go_forward(is_new)
            else:
                actions = self.go_back_to(milestone.steps, milestone.turned)
                self.driver.last, self.driver.cotangent = milestone.last, milestone.cotangent
                if milestone.turned == 0 and milestone.last is not None:
                    self.driver.value = milestone.last
                self.driver.is_delivered = milestone.last is not None
            self.driver.follow(actions)
            for store in self.stores:
                store.settle()
        finally:
            self.end()
        return self.result()

    def begin(self, is_new: bool) -> None:
        """Opens the stores, all or none."""
        identity = Identity.of(self.schedule, self.steps)
        slots: list[int | None] = [None] * len(self.stores)
        if self.steps is not None and isinstance(self.schedule, Schedule):
            cost = self.schedule.cost(self.steps)
            slots = [*(tier.slots for tier in cost.traffic), *slots] if cost.traffic else [cost.slots, *slots]
        cotangent = None if callable(self.cotangent) else self.cotangent
        for opened, store in enumerate(self.stores):
            try:
                store.begin(identity, Sample(self.initial, cotangent, slots[opened]), is_new)
            except BaseException:
                for earlier in self.stores[:opened]:
                    earlier.end()
                raise

    def end(self) -> None:
        """Closes the stores."""
        for store in self.stores:
            store.end()

    def go_forward(self, is_new: bool) -> Iterator[Action]:
        """Runs the forward pass until the last state is delivered; returns the actions that follow."""
        driver = self.driver
        actions = iter(self.schedule.actions(self.bound))
        driver.position = Machine(self.bound, None)
        if not is_new:
            actions = self.go_on_forward(actions)
        if self.steps is not None:
            if self.steps == 0:
                driver.deliver()
            return actions
        steps = driver.discover(actions)
        held = driver.position.held
        actions = iter(self.schedule.actions(steps))
        driver.position, actions = after_turns(actions, steps, 0)
        wanted = driver.position.held
        # Where advance itself says that there is no next state, the last state may have been stored before it did.
        if not wanted.items() <= held.items() and all(content.number != steps for content in held.values()):
            raise not_online(self.schedule)
        driver.deliver()
        if held != wanted:
            fill(driver, wanted, self.initial)
        return actions

    def go_on_forward(self, actions: Iterator[Action]) -> Iterator[Action]:
        """Puts an interrupted forward pass where its newest state was stored; returns the actions that follow."""
        driver = self.driver
        newest = newest_kept(driver)
        position = after_store(actions, self.bound, newest) if newest else None
        if newest and position:
            driver.position = position
            fill(driver, position.held, self.initial)
            driver.value = driver.store(newest[0]).load(newest[1])
            return actions
        first = next(((tier, key) for tier, key in kept(driver) if key == Key(key.slot, 0)), None)
        if first:
            driver.value = driver.store(first[0]).load(first[1])
        fill(driver, {}, None)
        return iter(self.schedule.actions(self.bound))

    def go_back_to(self, steps: int, turned: int) -> Iterator[Action]:
        """Makes the stores hold what they held after so many turns; returns the actions that follow."""
        actions = iter(self.schedule.actions(steps))
        self.driver.position, actions = after_turns(actions, steps, turned)
        self.driver.value = Lost
        fill(self.driver, self.driver.position.held, self.initial)
        for store in self.stores:
            store.settle()
        return actions

    def result(self) -> Reversal:
        """What the driver has come to."""
        driver = self.driver
        return Reversal(
            cotangent=driver.cotangent,
            state=driver.last,
            steps=driver.position.steps,
            advances=driver.advances,
            turns=driver.turns,
            taped=driver.taped,
            recomputed=driver.recomputed,
            stores=driver.stored,
            restores=driver.restored,
            overlaps=tuple(store.overlap for store in self.stores if isinstance(store, Asynchronous)),
        )


def in_memory(schedule: HasActions, steps: int | None) -> list[StateStore]:
    """A store in memory for each tier."""
    traffic = schedule.cost(steps or 0).traffic if isinstance(schedule, Schedule) else ()
    return [MemoryStore() for _ in traffic] or [MemoryStore()]


def checked_stores(store: StateStore | Sequence[StateStore]) -> list[StateStore]:
    """The stores by tier."""
    stores = [store] if isinstance(store, StateStore) else store
    if not (isinstance(stores, Sequence) and stores and all(isinstance(one, StateStore) for one in stores)):
        raise ScheduleError("store", store, "a store, or a list of stores", "give MemoryStore(), DiskStore(path), ...")
    return list(stores)


def delivers(schedule: HasActions, steps: int) -> bool:
    """Whether the forward pass comes to the last state before the first turn."""
    for action in schedule.actions(steps):
        is_last = isinstance(action, Advance) and action.stop == steps
        if is_last or (isinstance(action, Record) and action.step + 1 == steps):
            return True
        if isinstance(action, Turn | Apply):
            return False
    return steps == 0
