"""Carries the actions of a schedule out on real states: the working state, the stores, the cotangent.

Every action is executed on integers first (`adjoint.replay.Machine`), so a schedule's mistake is told before it can
touch a state. The driver keeps the stores such that `adjoint.recovery` can go on after a kill at any moment: an
overwritten or discarded state is only given up, and is removed at a safe point (`adjoint.store`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from adjoint.actions import Action, Advance, Discard, Restore, Store, Turn
from adjoint.asynchronous import Asynchronous
from adjoint.chain import Chain, Over
from adjoint.errors import ScheduleError
from adjoint.lookahead import lookahead
from adjoint.openended import forward_pass
from adjoint.replay import Machine
from adjoint.store import Key, Milestone, StateStore

Address = tuple[int, int]
"""A tier and a slot in it."""


class Position:
    """Where a schedule stands, on integers: what each address holds, the working state, the number of turned steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.machine = Machine(steps, None)
        self.held: dict[Address, int] = {}
        self.working: int | None = 0
        self.turned = 0

    def execute(self, action: Action) -> None:
        """Moves on by one action, or raises an `InvariantError`."""
        self.machine.execute(action)
        match action:
            case Advance():
                self.working = action.stop
            case Store():
                self.held[address(action)] = action.state
            case Restore():
                self.working = action.state
            case Discard():
                del self.held[address(action)]
            case Turn():
                self.working = None
                self.turned += 1


def address(action: Store | Restore | Discard) -> Address:
    """The address of an action; one without a tier speaks of the first one."""
    return getattr(action, "tier", 0), action.slot


class Driver:
    """One run of a chain: the working state and everything that is counted."""

    def __init__(self, chain: Chain, stores: Sequence[StateStore], state: Any, cotangent: Any) -> None:
        self.chain = chain
        self.stores = stores
        self.position = Position(0)
        self.value = state
        # Before the last state is delivered, this may be the function that makes the cotangent from it.
        self.cotangent = cotangent
        self.last: Any = None
        self.is_delivered = False
        # States of a forward pass that is reversed more than once: nothing gives them up.
        self.protected: frozenset[tuple[int, Key]] = frozenset()
        self.is_resumable = True
        # Restores that were heard of, by what they restore: when they come, as a count of actions.
        self.awaited: dict[tuple[int, Key], list[int]] = {}
        self.heard = 0
        self.turned_since = self.dropped_since = 0
        self.advances = self.recomputed = self.turns = self.stored = self.restored = 0

    def follow(self, actions: Iterable[Action]) -> None:
        """Carries out actions to their end."""
        for action in lookahead(actions, self.upcoming if any_asynchronous(self.stores) else None):
            self.execute(action)

    def upcoming(self, action: Action) -> None:
        """Hears of an action some time before its turn, and has what it will restore read once that is there."""
        self.heard += 1
        if isinstance(action, Restore) and isinstance(self.store(address(action)[0]), Asynchronous):
            tier, slot = address(action)
            self.awaited.setdefault((tier, Key(slot, action.state)), []).append(self.heard)
            self.read_ahead(tier, Key(slot, action.state))

    def read_ahead(self, tier: int, key: Key) -> None:
        """Begins to read a state once for each restore that was heard of, if it is there.

        Not in the forward pass: every state that it stores would be read before the older ones, and all for nothing.
        """
        is_back = self.is_delivered or self.position.turned > 0
        if not is_back or self.position.held.get((tier, key.slot)) != key.state:
            return
        store = self.store(tier)
        for when in self.awaited.pop((tier, key), ()):
            assert isinstance(store, Asynchronous)
            store.prefetch(key, when)

    def execute(self, action: Action) -> None:
        """Carries out one action."""
        before = self.position.held.get(address(action)) if isinstance(action, Store) else None
        self.position.execute(action)
        match action:
            case Advance():
                self.value = self.chain.run(action.start, action.stop, self.value)
                self.advances += action.stop - action.start
                if action.stop == self.position.steps and self.position.turned == 0 and not self.is_delivered:
                    self.deliver()
            case Store():
                self.keep(action, before)
            case Restore():
                tier, slot = address(action)
                # The old value goes first: two working states would take the room of one more.
                self.value = None
                self.value = self.store(tier).load(Key(slot, action.state))
                self.restored += 1
            case Discard():
                tier, slot = address(action)
                self.drop(tier, Key(slot, action.state))
            case Turn():
                self.turn(action.step)

    def keep(self, action: Store, before: int | None) -> None:
        tier, slot = address(action)
        if before is not None and before != action.state:
            self.drop(tier, Key(slot, before))
        store = self.store(tier)
        store.keep(Key(slot, action.state), self.value)
        self.stored += 1
        self.read_ahead(tier, Key(slot, action.state))
        if self.position.turned == 0 and not self.is_delivered:
            # The newest state of the forward pass, which would go on from here.
            store.settle()

    def deliver(self) -> None:
        """Takes the working state as the last one, from which the cotangent may be made."""
        self.last = self.value
        self.is_delivered = True
        self.cotangent = self.chain.seed(self.position.steps, self.cotangent, self.last)
        self.mark()
        for tier, key in list(self.awaited):
            self.read_ahead(tier, key)

    def drop(self, tier: int, key: Key) -> None:
        if (tier, key) in self.protected:
            return
        self.store(tier).drop(key)
        if tier == len(self.stores) - 1:
            self.dropped_since += 1

    def turn(self, step: int) -> None:
        value, self.value = self.value, None
        self.cotangent = self.chain.adjoint(step, value, self.cotangent)
        self.turns += 1
        self.turned_since += 1
        if step == 0 or self.stores[-1].is_due(self.turned_since, self.dropped_since):
            self.mark()

    def mark(self) -> None:
        """Writes down how far the reversal has come; from here on, what was given up before is not needed."""
        if self.is_resumable:
            self.stores[-1].mark(Milestone(self.position.steps, self.position.turned, self.cotangent, self.last))
        for store in self.stores:
            store.settle()
        self.turned_since = self.dropped_since = 0

    def discover(self, actions: Iterable[Action]) -> int:
        """Carries out the forward pass of a chain whose end only its states know; returns its number of steps."""
        tested = -1
        for action in forward_pass(actions):
            working = self.position.working
            assert working is not None, "a forward pass has a working state"
            # Before a store at state i, since a chain that ends there does not store it.
            if tested != working and self.chain.is_over(working, self.value):
                return working
            tested = working
            if not isinstance(action, Advance):
                self.execute(action)
                continue
            for step in range(action.start, action.stop):
                if tested != step and self.chain.is_over(step, self.value):
                    return step
                value = self.chain.step(step, self.value)
                if value is Over:
                    return step
                self.value = value
                self.advances += 1
                self.position.execute(Advance(step, step + 1))
        bound = self.position.steps
        is_over = self.chain.is_over(bound, self.value)
        if is_over or (self.chain.until is None and self.chain.step(bound, self.value) is Over):
            return bound
        most = f"at most {self.position.steps}, as this schedule cannot do with more"
        raise ScheduleError("steps", f"a chain of more than {self.position.steps}", most, "give another schedule")

    def store(self, tier: int) -> StateStore:
        """The store of a tier."""
        if not 0 <= tier < len(self.stores):
            expected = f"at least {tier + 1} stores, as a state goes to tier {tier}"
            advice = "give one store for each tier of the schedule, the fastest first"
            raise ScheduleError("store", f"{len(self.stores)} stores", expected, advice)
        return self.stores[tier]


def any_asynchronous(stores: Sequence[StateStore]) -> bool:
    return any(isinstance(store, Asynchronous) for store in stores)
