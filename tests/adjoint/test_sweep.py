"""Claims about `adjoint.sweep`: gaps are reversed from where they are, with what is free."""

from itertools import islice

import pytest

from adjoint import Advance, Discard, Restore, Store, Turn
from adjoint.binomial import repetition
from adjoint.sweep import reverse_gaps


def test_a_gap_is_entered_by_a_restore():
    actions = list(reverse_gaps([(0, 4, 1)], end=2, slots=1, free=[], working=None))
    assert actions == [Restore(0, 4), Advance(0, 1), Turn(1), Restore(0, 4), Discard(0, 4), Turn(0)]


def test_the_first_sweep_goes_on_from_a_working_state_and_advances():
    t = repetition(8, 3)
    gaps = [(0, 0, t)]
    first = [list(islice(reverse_gaps(list(gaps), 8, 3, [2, 1], working), 2)) for working in (0, 1, 2, 3)]
    # The optimal offsets are 2..4; the one with the fewest stores is 3.
    assert first == [[Advance(working, 3), Store(3, 1)] for working in (0, 1, 2)] + [[Advance(3, 4), Store(4, 1)]]


@pytest.mark.parametrize("free", [[1, 2], [2, 1], [7, 9]], ids=str)
def test_new_states_go_to_free_slots_only(free: list[int]):
    places = set(free) | {0}
    actions = list(reverse_gaps([(0, 0, repetition(30, 3))], 30, 3, free, 0))
    assert {action.slot for action in actions if isinstance(action, Store | Restore | Discard)} == places


@pytest.mark.parametrize("end", [1, 2, 5, 40])
def test_every_slot_is_free_again_at_the_end(end: int):
    free = [3, 2, 1]
    for _ in reverse_gaps([(0, 0, repetition(end, 4))], end, 4, free, None):
        pass
    assert sorted(free) == [0, 1, 2, 3]
