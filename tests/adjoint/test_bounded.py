"""Claims about `adjoint.bounded`: optimal for every number of steps up to the bound, without knowing it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoint import Advance, Bounded, Online, Schedule, ScheduleError, Store, advances, beta, replay
from adjoint.bounded import far_stores, pillar_stores


def greatest(slots: int) -> int:
    """The greatest bound that is reversed with the least evaluations whatever the number of steps."""
    return (slots + 1) * (slots + 2) // 2 - 1


@pytest.mark.parametrize("slots", range(1, 13))
def test_every_number_of_steps_is_reversed_with_the_least_evaluations(slots: int):
    schedule = Bounded(slots, greatest(slots))
    for n in range(1, greatest(slots) + 1):
        counts = replay(schedule, n, slots=slots)
        assert counts.evaluations == advances(n + 1, slots) + n
        assert counts.delivered


@given(slots=st.integers(13, 64), data=st.data())
def test_so_is_any_number_with_many_slots(slots: int, data: st.DataObject):
    n = data.draw(st.integers(1, greatest(slots)))
    assert replay(Bounded(slots, greatest(slots)), n, slots=slots).evaluations == advances(n + 1, slots) + n


def test_the_rule_for_any_number_of_steps_is_not_optimal_there():
    assert Online(4).cost(14).evaluations > Bounded(4, 14).cost(14).evaluations


@pytest.mark.parametrize("slots", [1, 2, 5, 12])
def test_about_every_other_state_is_stored(slots: int):
    assert len(pillar_stores(slots)) <= greatest(slots) // 2 + slots


def test_the_last_states_stored_are_the_pillars():
    held = {slot: state for state, slot in pillar_stores(4)}
    assert sorted(held.values()) == [0, 5, 9, 12]


@given(slots=st.integers(1, 8), n=st.integers(1, 40), more=st.integers(0, 10))
def test_the_forward_pass_does_not_know_the_number_of_steps(slots: int, n: int, more: int):
    def stores(steps: int) -> list[Store]:
        actions = Bounded(slots, greatest(8) + 10).actions(steps)
        # The forward pass ends where an advance reaches the last state.
        found = []
        for action in actions:
            if isinstance(action, Store):
                found.append(action)
            if isinstance(action, Advance) and action.stop == steps:
                return found
        return found

    assert [store for store in stores(n + more) if store.state < n] == stores(n)


@pytest.mark.parametrize("bound", [0, 1, 4, 5])
def test_a_bound_within_the_slots_keeps_every_state(bound: int):
    assert Bounded(5, bound).cost(bound).advances == bound


def test_a_much_greater_bound_is_online():
    assert not Bounded(4, 34).is_online
    assert Bounded(4, 35).is_online
    assert list(Bounded(4, 35).actions(15)) == list(Online(4).actions(15))
    assert Bounded(4, 10**9).cost(10**8) == Online(4).cost(10**8)


# ---- bounds that want a third sweep

# The greatest ratio to the least evaluations that is accepted, by slots.
WORST = {2: 1.05, 3: 1.04, 4: 1.025, 5: 1.02, 8: 1.01, 12: 1.005}


def ratios(schedule: Schedule, slots: int, lengths: range) -> list[float]:
    return [schedule.cost(n).evaluations / (advances(n + 1, slots) + n) for n in lengths]


@pytest.mark.parametrize("slots", WORST)
def test_three_sweeps_are_nearly_the_least_and_fewer_than_online(slots: int):
    bound = beta(slots, 3) - 1
    lengths = range(1, bound + 1, 1 if slots < 12 else 7)
    found, online = (ratios(schedule, slots, lengths) for schedule in (Bounded(slots, bound), Online(slots)))
    assert 1 <= max(found) < WORST[slots]
    assert max(found) < max(online)
    assert sum(found) < sum(online)


@given(slots=st.integers(2, 12), data=st.data())
def test_they_are_what_is_executed(slots: int, data: st.DataObject):
    schedule = Bounded(slots, beta(slots, 3) - 1)
    n = data.draw(st.integers(1, schedule.max_steps))
    counts = replay(schedule, n, slots=slots)
    assert (counts.evaluations, counts.delivered) == (schedule.cost(n).evaluations, True)


@pytest.mark.parametrize("slots", [2, 3, 4, 8])
def test_the_stores_of_a_shorter_bound_come_first(slots: int):
    near, far = Bounded(slots, greatest(slots)), Bounded(slots, beta(slots, 3) - 1)
    n = greatest(slots)
    assert list(near.actions(n)) == list(far.actions(n))


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 8, 20])
def test_no_gap_between_the_last_pillars_wants_a_fourth_sweep(slots: int):
    near = pillar_stores(slots)
    stored = sorted({slot: state for state, slot in [*near, *far_stores(slots, near)]}.values())
    assert [b - a for a, b in pairwise([*stored, beta(slots, 3) - 1])] == [beta(m, 2) for m in range(slots, 0, -1)]


@pytest.mark.parametrize("ask", ["actions", "cost"])
def test_more_steps_than_the_bound_are_refused(ask: str):
    with pytest.raises(ScheduleError, match=r"^steps: got 15, expected at most max_steps = 14; give a greater"):
        getattr(Bounded(4, 14), ask)(15)


@pytest.mark.parametrize(("name", "given"), [("slots", 0), ("max_steps", -1), ("max_steps", None)])
def test_bad_arguments_are_refused_by_name(name: str, given):
    with pytest.raises(ScheduleError, match=rf"^{name}: got"):
        Bounded(**{"slots": 3, "max_steps": 3, name: given})
