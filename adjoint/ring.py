"""The leaf buffer of a schedule: a ring of slots that keeps the newest states, or every state of one block.

The last u steps of a chain are turned from the ring without running any again; later the ring takes the states of one
block of u steps at a time. That trades memory for fewer repetitions and for tight inner loops of known shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from adjoint.actions import Action, Advance, Discard, Restore, Store, Turn


class Ring(NamedTuple):
    """Slots `first` to `first + leaf - 1`; state i goes into the one of number i modulo leaf.

    outer: the first of the slots for the first states of blocks.
    """

    first: int
    leaf: int
    outer: int = 0

    def store(self, state: int) -> Store:
        """The store of a state."""
        return Store(state, self.first + state % self.leaf)

    def fill(self, start: int, stop: int) -> Iterator[Action]:
        """From working state `start`, stores states start..stop - 1 and runs their steps."""
        for state in range(start, stop):
            yield self.store(state)
            yield Advance(state, state + 1)

    def turn(self, start: int, stop: int) -> Iterator[Action]:
        """Turns steps stop - 1..start, whose states the ring holds."""
        for state in range(stop - 1, start - 1, -1):
            slot = self.store(state).slot
            yield Restore(state, slot)
            yield Discard(state, slot)
            yield Turn(state)

    def turn_block(self, block: int, stop: int) -> Iterator[Action]:
        """From the working state that a block begins with, turns its steps, or those of them before `stop`."""
        start = block * self.leaf
        last = min(start + self.leaf, stop) - 1
        yield from self.fill(start, last)
        yield self.store(last)
        yield from self.turn(start, last + 1)

    def in_steps(self, action: Advance | Store | Restore | Discard) -> Action:
        """An action on whole blocks, as one on steps."""
        if isinstance(action, Advance):
            return Advance(action.start * self.leaf, action.stop * self.leaf)
        return type(action)(action.state * self.leaf, self.outer + action.slot)
