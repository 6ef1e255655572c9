"""Where the states of a chain are kept while it is reversed: the interface of all stores, and the one in memory.

A store keeps values under keys and knows nothing of steps. It also keeps one *milestone*: how far the reversal has
come, with the cotangent there. Whoever has the kept states and the milestone can go on (`adjoint.recovery`).
So a state that the reversal gives up is removed at the next *safe point* only, when nothing can need it any more: after
a milestone, or, as long as there is none, after a newer state has been kept.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, is_dataclass
from typing import Any, NamedTuple

from adjoint.errors import StateError, StoreError


class Key(NamedTuple):
    """What names a kept state, or a kept tape: the slot it is in and its index.

    Args:
        slot: the slot's number, from 0.
        state: the state's index, or that of the step whose tape it is.
        is_tape: whether it is a tape.

    >>> Key(slot=2, state=10)
    Key(slot=2, state=10, is_tape=False)
    """

    slot: int
    state: int
    is_tape: bool = False

    def __str__(self) -> str:
        return f"{'tape' if self.is_tape else 'state'} {self.state} in slot {self.slot}"


@dataclass(frozen=True)
class Identity:
    """What must agree for a store to belong to a run.

    Args:
        schedule: the schedule, as text.
        steps: n, or None while nobody knows.

    >>> from adjoint import Online
    >>> Identity.of(Online(8), None)
    Identity(schedule='Online(slots=8, leaf=0)', steps=None)
    """

    schedule: str
    steps: int | None

    @classmethod
    def of(cls, schedule: object, steps: int | None) -> Identity:
        """The identity of a run. A schedule that is no dataclass counts by its class: its text may hold an address."""
        return cls(repr(schedule) if is_dataclass(schedule) else type(schedule).__qualname__, steps)


@dataclass(frozen=True)
class Milestone:
    """How far a reversal has come.

    Args:
        steps: n.
        turned: how many steps are turned.
        cotangent: the cotangent there, in front of step n - turned.
        last: the last state, state n, or None if the forward pass did not deliver it.

    >>> Milestone(steps=10, turned=3, cotangent=1.5, last=2.0).turned
    3
    """

    steps: int
    turned: int
    cotangent: Any
    last: Any


@dataclass(frozen=True)
class Sample:
    """What a store may look at before the run: it refuses what it cannot keep before hours are spent.

    Args:
        state: state 0.
        cotangent: the cotangent of the last state, or None if it is not known yet.
        slots: slots of this store that the schedule uses at once, or None if it cannot tell.

    >>> Sample(state=b"abc", cotangent=None, slots=4).slots
    4
    """

    state: Any
    cotangent: Any
    slots: int | None


class StateStore(ABC):
    """Keeps states for a reversal. Subclass it to keep them elsewhere: in a database, on another machine.

    The calls come in this order: `begin`; then `keep`, `load`, `drop`, `mark` and `settle` in any order; then `end`.
    A later `begin` with `is_new` false finds what the earlier calls have left, in this process or in another one.

    >>> from adjoint import MemoryStore, Milestone
    >>> store = MemoryStore()
    >>> store.begin(Identity("Binomial(3)", 10), Sample(b"x0", None, 3), is_new=True)
    >>> store.keep(Key(0, 0), b"x0")
    >>> store.mark(Milestone(10, 1, b"", b"x10"))
    >>> store.keys(), store.load(Key(0, 0)), store.latest().turned
    ((Key(slot=0, state=0, is_tape=False),), b'x0', 1)
    """

    @abstractmethod
    def is_due(self, turns: int, dropped: int) -> bool:
        """Whether a milestone is wanted now: an interruption costs the turns since, and a milestone costs its writing.

        Args:
            turns: how many steps were turned since the last milestone.
            dropped: how many states were given up since then, and wait for a safe point.
        """

    @abstractmethod
    def begin(self, identity: Identity, sample: Sample, is_new: bool) -> None:
        """Opens the store.

        Args:
            identity: what the run is; a store that holds another run refuses.
            sample: what will be kept.
            is_new: whether the store must hold nothing yet; otherwise what it holds is taken over.

        Raises:
            StoreError: it cannot be written, has too little room, or belongs to another run.
            StateError: it cannot keep such a state.
        """

    @abstractmethod
    def keep(self, key: Key, value: Any) -> None:
        """Keeps a state; when this returns the state survives whatever the store promises to survive.

        Args:
            key: its name. Another state in the same slot stays until it is dropped.
            value: the state. The caller may change it afterwards.
        """

    @abstractmethod
    def load(self, key: Key) -> Any:
        """A kept state, as a value that the caller may change.

        Args:
            key: its name.

        Returns:
            The state, equal to what was kept bit for bit.

        Raises:
            StoreError: there is no such state, or it is damaged.
        """

    @abstractmethod
    def drop(self, key: Key) -> None:
        """Gives a state up; it may be removed at the next safe point.

        Args:
            key: its name. A key that is not there is no error.
        """

    @abstractmethod
    def keys(self) -> Collection[Key]:
        """The names of all states that are kept, those that are given up and not removed yet included."""

    @abstractmethod
    def mark(self, milestone: Milestone) -> None:
        """Replaces the milestone.

        Args:
            milestone: how far the reversal has come.
        """

    @abstractmethod
    def settle(self) -> None:
        """A safe point: the states that are given up may be removed."""

    @abstractmethod
    def latest(self) -> Milestone | None:
        """The newest milestone, or None before the first."""

    @abstractmethod
    def end(self) -> None:
        """Closes the store. Everything it holds stays, and a later `begin` finds it."""


class MemoryStore(StateStore):
    """Keeps states in this process's memory, as copies.

    Args:
        copy: makes the copies, when a state is kept and when it is loaded. By default `copy.deepcopy`, so that a step
            may change its state in place; None keeps references, for states that nobody changes, such as JAX arrays.

    Raises:
        StateError: when a state is kept, and `copy` cannot copy it.

    Cost: one copy for each store and for each restore, and one of the cotangent for each turn. It holds as many states
        as the schedule has slots.

    >>> from adjoint import Binomial, reverse
    >>> reverse(Binomial(3), 10, lambda i, x: 2 * x, lambda i, x, bar: 2 * bar, 1.0, 1.0, store=MemoryStore()).cotangent
    1024.0
    """

    def __init__(self, copy: Callable[[Any], Any] | None = copy.deepcopy) -> None:
        self.copy = copy
        self.identity: Identity | None = None
        self.held: dict[Key, Any] = {}
        self.given_up: set[Key] = set()
        self.newest: Milestone | None = None

    def is_due(self, turns: int, dropped: int) -> bool:
        """After each turn: a milestone in memory costs little."""
        return turns > 0

    def begin(self, identity: Identity, sample: Sample, is_new: bool) -> None:
        """See `StateStore.begin`. A new run throws away what an earlier one has left."""
        if is_new or self.identity is None:
            self.held, self.given_up, self.newest = {}, set(), None
        elif self.identity != identity:
            raise StoreError(
                "MemoryStore",
                f"it holds a run of {self.identity.schedule} with steps={self.identity.steps}, not of "
                f"{identity.schedule} with steps={identity.steps}",
                "resume that one, or call reverse to start afresh",
            )
        self.identity = identity
        # Where a run goes on, it may need what it had given up before.
        self.given_up.clear()

    def keep(self, key: Key, value: Any) -> None:
        """See `StateStore.keep`."""
        # Here a slot is the memory of a state: what is given up goes first, so that no more are held than slots exist.
        self.settle()
        self.held[key] = self.copied(value)

    def load(self, key: Key) -> Any:
        """See `StateStore.load`."""
        if key not in self.held:
            raise StoreError("MemoryStore", f"it holds no {key}", "keep it first")
        return self.copied(self.held[key])

    def drop(self, key: Key) -> None:
        """See `StateStore.drop`."""
        self.given_up.add(key)

    def keys(self) -> Collection[Key]:
        """See `StateStore.keys`."""
        return tuple(self.held)

    def mark(self, milestone: Milestone) -> None:
        """See `StateStore.mark`."""
        self.newest = Milestone(milestone.steps, milestone.turned, self.copied(milestone.cotangent), milestone.last)

    def settle(self) -> None:
        """See `StateStore.settle`."""
        for key in self.given_up:
            self.held.pop(key, None)
        self.given_up.clear()

    def latest(self) -> Milestone | None:
        """See `StateStore.latest`."""
        if self.newest is None:
            return None
        return Milestone(self.newest.steps, self.newest.turned, self.copied(self.newest.cotangent), self.newest.last)

    def end(self) -> None:
        """See `StateStore.end`."""

    def copied(self, value: Any) -> Any:
        return copied("MemoryStore", self.copy, value)


def copied(owner: str, copy: Callable[[Any], Any] | None, value: Any) -> Any:
    """What the function makes of a value for the store `owner`; the value itself without a function."""
    if copy is None:
        return value
    try:
        return copy(value)
    except Exception as error:
        given = f"a {type(value).__name__} that could not be copied ({type(error).__name__}: {error})"
        raise StateError(owner, given, "what its argument copy can copy: give another copy=") from error
