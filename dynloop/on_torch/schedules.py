"""The schedule of a loop, carried out on its states: `adjoint` says what to keep and what to run again.

A state that is kept is kept by reference, since no step changes one in place; so a store costs nothing but memory.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import adjoint
from adjoint import Action, Advance, Discard, Restore, Store, Turn
from dynloop.checkpoints import Storage

MOST = 2**31 - 1
# How many steps the table of stores reaches at first; a longer loop takes one that reaches four times as far.
REACH = 1024


def schedule_of(storage: Storage, state_bytes: int, is_known: bool) -> adjoint.Schedule:
    """is_known: the number of steps is given when the loop starts."""
    match storage.checkpoints:
        case adjoint.Online() | adjoint.Periodic() | adjoint.StoreAll() | adjoint.Binomial() as schedule:
            return schedule
    layout = storage.layout(state_bytes)
    if not layout.slots:
        return adjoint.StoreAll()
    if is_known and not layout.leaf:
        return adjoint.Binomial(layout.slots)
    return adjoint.Online(layout.slots, layout.leaf)


# Makes of a state, its index and what is kept besides it what is to be kept.
Put = Callable[[Any, int, Iterable[tuple[int, Any]]], Any]


class Keeper:
    """The kept states of one forward pass, by slot: each with its index.

    steps: how many there will be, or None if nobody knows.   most: or at most; None if that is not known either.
    """

    def __init__(self, schedule: adjoint.Schedule, steps: int | None, most: int | None, put: Put | None = None) -> None:
        """put: where a state is to lie; as it is, if None."""
        self.schedule = schedule
        self.put = put
        self.held: dict[int, tuple[int, Any]] = {}
        # The newest states go round in a ring, and have no events; what has events are the starts of blocks, if any.
        self.slots, self.ring = 0, 0
        self.blocks: adjoint.Schedule | None = schedule
        if isinstance(schedule, adjoint.Online) and schedule.leaf:
            self.slots, self.ring = schedule.slots, schedule.leaf
            self.blocks = adjoint.Online(schedule.slots) if schedule.slots else None
        elif isinstance(schedule, adjoint.StoreAll):
            self.ring, self.blocks = MOST, None
        self.block = self.ring or 1
        self.most = steps if steps is not None else most
        self.reach = self.within(REACH) if steps is None else self.within(steps)
        self.events = self.from_block(0)
        self.due = next(self.events, None)

    def within(self, reach: int) -> int:
        """The number of blocks that the events are to reach."""
        return reach if self.most is None else min(-(-self.most // self.block), reach)

    def from_block(self, first: int) -> Iterator[Store | Discard]:
        """The stores and discards of the forward pass, from this block on."""
        block = 0
        for action in self.blocks.actions(self.reach) if self.blocks else ():
            match action:
                case Store() | Discard():
                    block = action.state if isinstance(action, Store) else block
                    if block >= first:
                        yield action
                case Restore() | Turn():
                    return

    def placed(self, i: int, state: Any) -> Any:
        if self.put is None:
            return state
        planned = [kept for slot, kept in self.held.items() if not self.slots or slot < self.slots]
        return self.put(state, i, planned)

    def see(self, i: int, state: Callable[[], Any]) -> None:
        """State i is there, and another step follows."""
        if self.ring:
            at = self.slots + i % self.ring
            # The ring of the newest states lies where the steps run.
            self.held[at] = (i, self.placed(i, state()) if self.blocks is None and not self.slots else state())
            if i % self.ring or not self.blocks:
                return
        block = i // self.block
        if block >= self.reach:
            self.reach = self.within(4 * self.reach)
            self.events = self.from_block(block)
            self.due = next(self.events, None)
        while self.due is not None and (isinstance(self.due, Discard) or self.due.state == block):
            if isinstance(self.due, Store):
                self.held.pop(self.due.slot, None)
                self.held[self.due.slot] = (i, self.placed(i, state()))
            else:
                del self.held[self.due.slot]
            self.due = next(self.events, None)


def back(schedule: adjoint.Schedule, steps: int) -> Iterator[Action]:
    """The actions after the forward pass."""
    actions = iter(schedule.actions(steps))
    state = 0
    for action in actions:
        if isinstance(action, Advance):
            state = action.stop
        elif state == steps:
            yield action
            break
    yield from actions


def reverse(
    schedule: adjoint.Schedule,
    steps: int,
    held: dict[int, tuple[int, Any]],
    advance: Callable[[int, Any], Any],
    snapshot: Callable[[Any, int], Any],
    restore: Callable[[Any], Any],
    turn: Callable[[int, Any], None],
) -> None:
    """Turns every step, the last one first.

    held: the kept states; it is used up.   advance: makes state i + 1 of state i.   snapshot: what is kept of the
    working state, which has this index; restore: the way back.
    """
    if isinstance(schedule, adjoint.StoreAll) or (isinstance(schedule, adjoint.Online) and schedule.leaf >= steps):
        first = 0 if isinstance(schedule, adjoint.StoreAll) else schedule.slots
        for i in reversed(range(steps)):
            turn(i, restore(held.pop(first + i)[1]))
        return
    carry_out(back(schedule, steps), None, held, advance, snapshot, restore, turn)


def carry_out(
    actions: Iterator[Action],
    working: Any,
    held: dict[int, tuple[int, Any]],
    advance: Callable[[int, Any], Any],
    snapshot: Callable[[Any, int], Any],
    restore: Callable[[Any], Any],
    turn: Callable[[int, Any], None],
) -> None:
    """Carries actions out, from this working state on; see `reverse`."""
    for action in actions:
        match action:
            case Restore():
                index, kept = held[action.slot]
                assert index == action.state, "the schedule and the forward pass agree"
                working = restore(kept)
                kept = None
            case Discard():
                del held[action.slot]
            case Advance():
                for i in range(action.start, action.stop):
                    working = advance(i, working)
            case Store():
                # What was there goes first, so that it takes no room any more.
                held.pop(action.slot, None)
                held[action.slot] = (action.state, snapshot(working, action.state))
            case Turn():
                state, working = working, None
                turn(action.step, state)
                state = None
