"""Claims about `adjoint.mixed`: as few evaluations as states and tapes in slots allow, by search and by others."""

import pytest
from checkpoint_schedules import Forward, MixedCheckpointSchedule
from hypothesis import given
from hypothesis import strategies as st

from adjoint import Advance, Apply, Binomial, Discard, Mixed, Record, Restore, ScheduleError, Store, Turn, replay
from tests.tier_oracles import Rooms, cheapest_reversal, fewest_mixed_evaluations


@pytest.mark.parametrize(("n", "s", "total"), [(10, 3, 19), (50, 5, 138), (100, 10, 237)])
def test_totals_equal_the_recurrence_and_published_ones(n: int, s: int, total: int):
    assert replay(Mixed(s, joined=True), n, slots=s).evaluations == total == fewest_mixed_evaluations(n, s)


@pytest.mark.parametrize(("n", "s"), [(3, 1), (5, 1), (6, 2), (8, 2), (7, 3), (8, 3)])
def test_no_reversal_at_all_is_cheaper(n: int, s: int):
    searched = cheapest_reversal([1] * n, Rooms((s,), (0,), (0,)), tapes=True)
    assert Mixed(s, joined=True).cost(n).evaluations == searched


@pytest.mark.parametrize(("n", "s"), [(3, 1), (6, 2), (7, 3)])
def test_no_split_reversal_at_all_is_cheaper(n: int, s: int):
    # The use of state n is a last step that costs nothing.
    searched = cheapest_reversal([1] * n + [0], Rooms((s,), (0,), (0,)), tapes=True)
    assert Mixed(s).cost(n).evaluations == searched


@given(steps=st.integers(1, 60), slots=st.integers(1, 8))
def test_joined_and_split_totals_equal_the_recurrence(steps: int, slots: int):
    assert replay(Mixed(slots, joined=True), steps).evaluations == fewest_mixed_evaluations(steps, slots)
    # The turn of step n, which stands for the use of state n, evaluates nothing.
    assert replay(Mixed(slots), steps).evaluations == fewest_mixed_evaluations(steps + 1, slots) - 1


@given(steps=st.integers(1, 80), slots=st.integers(1, 10), joined=st.booleans())
def test_tapes_never_cost_more_than_states_alone(steps: int, slots: int, joined: bool):
    counts = replay(Mixed(slots, joined), steps, slots=slots)
    assert counts.evaluations <= Binomial(slots, joined).cost(steps).evaluations
    assert counts.unused == 0
    assert counts.delivered or joined


@pytest.mark.filterwarnings("ignore:Numba not available")
@pytest.mark.parametrize(("n", "s"), [(2, 1), (7, 2), (13, 3), (34, 4), (60, 7)])
def test_checkpoint_schedules_runs_as_many_steps(n: int, s: int):
    forward = [action for action in MixedCheckpointSchedule(n, s) if isinstance(action, Forward)]
    assert Mixed(s, joined=True).cost(n).evaluations == sum(action.n1 - action.n0 for action in forward)


def test_trace_is_as_described():
    assert list(Mixed(2).actions(4)) == [
        Store(0, 0),
        Advance(0, 3),
        Record(3, 1),
        Apply(3, 1),
        Discard(3, 1),
        Restore(0, 0),
        Discard(0, 0),
        Record(0, 0),
        Record(1, 1),
        Turn(2),
        Apply(1, 1),
        Discard(1, 1),
        Apply(0, 0),
        Discard(0, 0),
    ]


def test_as_many_slots_as_steps_keep_tapes_alone():
    assert {type(action) for action in Mixed(9).actions(9)} == {Record, Apply, Discard}


def test_budget_counts_the_larger_of_state_and_tape():
    assert Mixed.for_budget(100, state_bytes=30, tape_bytes=10).slots == 3
    assert Mixed.for_budget(100, state_bytes=30, tape_bytes=50).slots == 2


@pytest.mark.parametrize(("state", "tape", "name"), [(0, 10, "state_bytes"), (10, 0, "tape_bytes")])
def test_sizes_are_refused_by_name(state: int, tape: int, name: str):
    with pytest.raises(ScheduleError, match=rf"^{name}: got 0"):
        Mixed.for_budget(100, state, tape)


@pytest.mark.parametrize("given", [0, -3, 1.5, None], ids=repr)
def test_bad_slots_are_refused(given):
    with pytest.raises(ScheduleError, match=r"^slots: got .*, expected an integer >= 1; give at least one slot"):
        Mixed(given)
