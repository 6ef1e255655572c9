"""Carries the actions of a schedule out on real states: the working state, the stores, the cotangent.

Every action is executed on integers first (`adjoint.machine`), so a schedule's mistake is told before it can
touch a state. The driver keeps the stores such that `adjoint.recovery` can go on after a kill at any moment: an
overwritten or discarded state is only given up, and is removed at a safe point (`adjoint.store`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from adjoint.actions import Action, Advance, Apply, Discard, Prefetch, Record, Restore, Store, Turn
from adjoint.asynchronous import Asynchronous
from adjoint.chain import Chain, Over
from adjoint.errors import ScheduleError
from adjoint.lookahead import lookahead
from adjoint.machine import Content, Machine
from adjoint.openended import forward_pass
from adjoint.store import Key, Milestone, StateStore


class Lost:
    """Stands for a working state that an interruption took, until somebody asks for it."""


class Driver:
    """One run of a chain: the working state and everything that is counted."""

    def __init__(self, chain: Chain, stores: Sequence[StateStore], state: Any, cotangent: Any) -> None:
        self.chain = chain
        self.stores = stores
        self.position = Machine(0, None)
        self.value = self.initial = state
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
        self.advances = self.taped = self.recomputed = self.turns = self.stored = self.restored = 0

    @property
    def turned(self) -> int:
        """How many steps are turned, those before an interruption included."""
        return self.position.steps - self.position.left

    def follow(self, actions: Iterable[Action]) -> None:
        """Carries out actions to their end."""
        for action in lookahead(actions, self.upcoming if any_asynchronous(self.stores) else None):
            self.execute(action)

    def upcoming(self, action: Action) -> None:
        """Hears of an action some time before its turn, and has what it will need read once that is there."""
        self.heard += 1
        if isinstance(action, Restore | Apply) and isinstance(self.store(action.tier), Asynchronous):
            key = Key(action.slot, action.step, True) if isinstance(action, Apply) else Key(action.slot, action.state)
            self.awaited.setdefault((action.tier, key), []).append(self.heard)
            self.read_ahead(action.tier, key)

    def read_ahead(self, tier: int, key: Key) -> None:
        """Begins to read what is there, once for each time it was heard that it will be.

        Not in the forward pass: every state that it stores would be read before the older ones, and all for nothing.
        """
        is_back = self.is_delivered or self.turned > 0
        content = self.position.held.get((tier, key.slot))
        if not is_back or content != Content(key.state, key.is_tape):
            return
        store = self.store(tier)
        for when in self.awaited.pop((tier, key), ()):
            assert isinstance(store, Asynchronous)
            store.prefetch(key, when)

    def execute(self, action: Action) -> None:
        """Carries out one action."""
        if self.value is Lost and isinstance(action, Advance | Store | Turn | Record):
            self.find_working_state()
        before = None
        if isinstance(action, Store | Discard | Record):
            before = self.position.held.get((action.tier, action.slot))
        self.position.execute(action)
        match action:
            case Advance():
                self.value = self.chain.run(action.start, action.stop, self.value)
                self.advances += action.stop - action.start
                self.deliver_if_last()
            case Store():
                self.keep(action.tier, Key(action.slot, action.state), self.value, before)
            case Restore():
                # The old value goes first: two working states would take the room of one more.
                self.value = None
                self.value = self.store(action.tier).load(Key(action.slot, action.state))
                self.restored += 1
            case Discard():
                assert before is not None, "the position has been there"
                self.drop(action.tier, Key(action.slot, *before))
            case Turn():
                value, self.value = self.value, None
                self.cotangent = self.chain.adjoint(action.step, value, self.cotangent)
                self.taped += 1
                self.finish_turn()
            case Record():
                self.value, tape = self.chain.taped(action.step, self.value)
                self.taped += 1
                self.keep(action.tier, Key(action.slot, action.step, True), tape, before)
                self.deliver_if_last()
            case Apply():
                tape = self.store(action.tier).load(Key(action.slot, action.step, True))
                self.restored += 1
                self.cotangent = self.chain.applied(action.step, tape, self.cotangent)
                self.finish_turn()
            case Prefetch():
                # Every restore was heard of already, whether it is announced or not.
                pass

    def keep(self, tier: int, key: Key, value: Any, before: Content | None) -> None:
        """Puts a state or a tape into a slot, of which it takes the place of what was there."""
        if before is not None and before != Content(key.state, key.is_tape):
            self.drop(tier, Key(key.slot, *before))
        store = self.store(tier)
        store.keep(key, value)
        self.stored += 1
        self.read_ahead(tier, key)
        if self.turned == 0 and not self.is_delivered:
            # The newest state of the forward pass, which would go on from here.
            store.settle()

    def deliver_if_last(self) -> None:
        """Delivers the working state if it is the last one, and the forward pass has just come to it."""
        if self.position.working == self.position.steps and self.turned == 0 and not self.is_delivered:
            self.deliver()

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

    def finish_turn(self) -> None:
        """Counts a turn, and marks it if it is time."""
        self.turns += 1
        self.turned_since += 1
        if self.position.left == 0 or self.stores[-1].is_due(self.turned_since, self.dropped_since):
            self.mark()

    def find_working_state(self) -> None:
        """Makes a working state again that an interruption took, from the newest older state that is kept."""
        working = self.position.working
        assert working is not None, "the position asks for one"
        kept = [(content.number, address) for address, content in self.position.held.items() if not content.is_tape]
        older = [(state, address) for state, address in kept if state <= working]
        state, self.value = 0, self.initial
        if older:
            state, (tier, slot) = max(older)
            self.value = self.store(tier).load(Key(slot, state))
        self.value = self.chain.run(state, working, self.value)
        self.recomputed += working - state

    def mark(self) -> None:
        """Writes down how far the reversal has come; from here on, what was given up before is not needed."""
        if self.is_resumable:
            self.stores[-1].mark(Milestone(self.position.steps, self.turned, self.cotangent, self.last))
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
