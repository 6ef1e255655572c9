"""Claims about the machine that schedules are replayed on: what each action changes, and what it refuses."""

import pytest

from adjoint import (
    Action,
    Advance,
    Apply,
    Discard,
    InvariantError,
    Prefetch,
    Record,
    Restore,
    Store,
    Turn,
)
from adjoint.machine import Content, Machine


def after(*actions: Action, steps: int = 5, limits: tuple[int | None, ...] | None = (2,)) -> Machine:
    machine = Machine(steps, limits)
    for action in actions:
        machine.execute(action)
    return machine


def test_actions_change_the_working_state_and_the_slots() -> None:
    machine = after(Store(0, 0), Advance(0, 3), Store(3, 1), Restore(0, 0), Discard(3, 1))
    assert (machine.working, machine.held) == (0, {(0, 0): Content(0, is_tape=False)})
    assert (machine.advances, machine.discards, machine.position) == (3, 1, 5)
    assert (machine.writes, machine.reads, machine.peaks, machine.peak) == ({0: 2}, {0: 1}, {0: 2}, 2)


def test_a_turn_takes_the_working_state() -> None:
    machine = after(Store(0, 0), Advance(0, 4), Turn(4))
    assert (machine.working, machine.left, machine.delivered) == (None, 4, False)


def test_the_last_state_is_delivered_if_nothing_was_turned_before() -> None:
    assert after(Store(0, 0), Advance(0, 5)).delivered
    assert not after(Store(0, 0), Advance(0, 4), Turn(4), Restore(0, 0), Advance(0, 4)).delivered


def test_a_tape_serves_its_step_only() -> None:
    machine = after(Advance(0, 4), Record(4, 0), Apply(4, 0))
    assert (machine.recorded, machine.applied, machine.left, machine.working) == (1, 1, 4, 5)
    with pytest.raises(InvariantError, match="it applies the tape of step 4, but slot 0 holds state 4"):
        after(Advance(0, 4), Store(4, 0), Apply(4, 0))


REFUSED: dict[str, tuple[list[Action], str]] = {
    "advance from elsewhere": ([Advance(1, 2)], "it starts at state 1, but the working state is 0"),
    "advance past the end": ([Advance(0, 6)], "it runs past the end: the chain's last state is 5"),
    "store of another state": ([Store(1, 0)], "it stores state 1, but the working state is 0"),
    "store into no slot": ([Store(0, 2)], "there are 2 slots, numbered from 0: slot 2 is not one of them"),
    "store into no tier": ([Store(0, 0, 1)], "there are 1 tiers, numbered from 0: tier 1 is not one of them"),
    "restore of nothing": ([Restore(0, 0)], "it restores state 0, but slot 0 holds nothing"),
    "restore of another": ([Store(0, 0), Restore(1, 0)], "it restores state 1, but slot 0 holds state 0"),
    "discard of nothing": ([Discard(0, 0)], "it discards state 0, but slot 0 holds nothing"),
    "turn out of order": ([Turn(0)], "steps are turned from the last to the first, and the next one is step 4"),
    "turn from elsewhere": ([Turn(4)], "step 4 starts from state 4, but the working state is 0"),
    "no working state": (
        [Advance(0, 4), Turn(4), Advance(4, 5)],
        "it starts at state 4, but there is no working state",
    ),
    "tape of a turned step": (
        [Store(0, 0), Advance(0, 4), Turn(4), Restore(0, 0), Advance(0, 4), Record(4, 1)],
        "step 4 is turned already",
    ),
    "announced twice": ([Store(0, 0), Prefetch(0, 0), Prefetch(0, 0)], "state 0 is announced already, by action 1"),
    "announced and lost": ([Store(0, 0), Prefetch(0, 0), Discard(0, 0)], "state 0 was announced by action 1"),
}


@pytest.mark.parametrize(("actions", "words"), REFUSED.values(), ids=REFUSED)
def test_a_broken_invariant_is_told_with_its_place(actions: list[Action], words: str) -> None:
    machine = after(*actions[:-1])
    with pytest.raises(InvariantError) as caught:
        machine.execute(actions[-1])
    assert words in str(caught.value)
    assert (caught.value.position, caught.value.action) == (len(actions) - 1, actions[-1])


def test_an_end_before_the_end_is_told() -> None:
    with pytest.raises(InvariantError, match=r"steps 0\.\.3 are not turned yet"):
        after(Store(0, 0), Advance(0, 4), Turn(4)).finish()
    with pytest.raises(InvariantError, match="slot 0 holds state 0, which action 1 announced"):
        after(Store(0, 0), Prefetch(0, 0), Turn(0), steps=1).finish()
