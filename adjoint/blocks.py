"""Binomial checkpointing over blocks of steps, for a known number of steps and a ring of slots for the newest states.

It is what `Online` with a leaf is for an unknown number of steps. The blocks before the last ring of states are a chain
of their own, whose steps are blocks; it is reversed with the least advances (Griewank & Walther 2000).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from adjoint.actions import Action, Advance, Store, Turn
from adjoint.errors import checked_integer
from adjoint.offline import Binomial
from adjoint.ring import Ring
from adjoint.schedule import Cost, Schedule, checked_steps
from adjoint.tiers import slots_within


@dataclass(frozen=True)
class Blocks(Schedule):
    """Few step evaluations for a known number of steps, and short stretches of consecutive states in a ring.

    `Binomial` with as many slots in all runs fewer steps; this one turns most of them without a search between
    two, as a compiled loop likes it.

    Args:
        slots: states of block starts kept at once, state 0 included, >= 1.
        leaf: u, the steps of a block, >= 1; u more slots, the first ones, hold the newest states, state i in `i % u`.

    Raises:
        ScheduleError: slots or leaf is below 1.

    Cost: with e = max(n - u, 0) steps in b = ceil(e / u) blocks before the ring, n + u (P(b + 1, s) - b) + e - b
        advances and n turns; at most slots + leaf slots.

    >>> Blocks(3, leaf=8).cost(100)
    Cost(steps=100, advances=276, turns=100, stores=198, slots=11)
    >>> for action in Blocks(1, leaf=2).actions(2):
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
    leaf: int

    def __post_init__(self) -> None:
        slots = checked_integer("slots", self.slots, 1, "give at least one slot, for state 0")
        leaf = checked_integer("leaf", self.leaf, 1, "give the number of newest states to keep, or take Binomial")
        object.__setattr__(self, "slots", slots)
        object.__setattr__(self, "leaf", leaf)

    @classmethod
    def for_budget(cls, bytes: int, state_bytes: int, leaf: int) -> Blocks:
        """The schedule with as many slots as fit beside the leaf.

        Args:
            bytes: memory for stored states.
            state_bytes: size of one state, >= 1.
            leaf: as for the class.

        Returns:
            A schedule.

        Raises:
            ScheduleError: not even one state fits beside the leaf.

        >>> Blocks.for_budget(1000, 90, leaf=4)
        Blocks(slots=7, leaf=4)
        """
        beside = checked_integer("leaf", leaf, 1, "give the number of newest states to keep, or take Binomial")
        return cls(slots_within(bytes, state_bytes, beside), beside)

    def actions(self, steps: int) -> Iterator[Action]:
        """See `Schedule.actions`."""
        return self.run(checked_steps(steps))

    def cost(self, steps: int) -> Cost:
        """See `Schedule.cost`."""
        n = checked_steps(steps)
        earlier, blocks = self.before_the_ring(n)
        over = Binomial(self.slots).cost(blocks)
        # A sweep advances over whole blocks; turning a block runs it once more, but for its last step.
        advances = n + self.leaf * (over.advances - blocks) + earlier - blocks
        stores = (over.stores or 0) + n + earlier
        return Cost(steps=n, advances=advances, turns=n, stores=stores, slots=over.slots + min(n, self.leaf))

    def before_the_ring(self, n: int) -> tuple[int, int]:
        """The steps before those that the ring keeps at the end, and the blocks that hold them."""
        earlier = max(n - self.leaf, 0)
        return earlier, -(-earlier // self.leaf)

    def run(self, n: int) -> Iterator[Action]:
        ring = Ring(0, self.leaf, outer=self.leaf)
        earlier, blocks = self.before_the_ring(n)
        working, is_turned = 0, False
        for action in Binomial(self.slots).actions(blocks):
            if isinstance(action, Turn):
                yield from ring.turn_block(action.step, earlier)
            elif is_turned or isinstance(action, Store):
                yield ring.in_steps(action)
            elif isinstance(action, Advance):
                working = action.stop * self.leaf
                yield from ring.fill(action.start * self.leaf, working)
            else:
                # The first restore: the forward pass is over but for the ring's own states.
                yield from ring.fill(working, n)
                yield from ring.turn(earlier, n)
                is_turned = True
                yield ring.in_steps(action)
        if not is_turned:
            yield from ring.fill(working, n)
            yield from ring.turn(earlier, n)
