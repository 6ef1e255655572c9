"""Claims about the ring of slots: it keeps the newest states, and turns them without running a step."""

from itertools import product

import pytest

from adjoint import Advance, Discard, Restore, Store, Turn
from adjoint.ring import Ring


def test_the_newest_states_are_in_the_ring() -> None:
    ring, held = Ring(first=3, leaf=4), {}
    for action in ring.fill(0, 11):
        if isinstance(action, Store):
            held[action.slot] = action.state
    assert held == {3: 8, 4: 9, 5: 10, 6: 7}
    assert [a.state for a in ring.turn(7, 11) if isinstance(a, Restore)] == [10, 9, 8, 7]


@pytest.mark.parametrize(("leaf", "stop"), list(product([1, 3, 4], [9, 10, 12])))
def test_a_block_runs_each_of_its_steps_but_the_last_and_turns_all(leaf: int, stop: int) -> None:
    block = (stop - 1) // leaf
    actions = list(Ring(0, leaf).turn_block(block, stop))
    steps = range(block * leaf, stop)
    assert [a.start for a in actions if isinstance(a, Advance)] == list(steps)[:-1]
    assert [a.step for a in actions if isinstance(a, Turn)] == list(reversed(steps))


def test_blocks_become_steps() -> None:
    ring = Ring(0, 5, outer=5)
    assert ring.in_steps(Advance(1, 3)) == Advance(5, 15)
    assert ring.in_steps(Store(2, 1)) == Store(10, 6)
    assert ring.in_steps(Discard(2, 1)) == Discard(10, 6)
