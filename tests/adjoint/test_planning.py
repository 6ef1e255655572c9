"""Claims about `adjoint.planning`: the plan is as good as a search over every choice, and costs what it says."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoint import Plan, ScheduleError, advances, plan, store_table
from tests.adjoint.facts import rows
from tests.oracles import cheapest_plan, price_of_keeping_all, reversal_table, shortest_reversal

SETS = rows("stored_sets.json")


@cache
def table():
    return reversal_table(500, 8)


def stored_after(slots: int, steps: int) -> tuple[int, ...]:
    return tuple(state for state, _ in store_table(slots).held(steps))


def identify(row: dict) -> str:
    return f"s{row['s']}-n{row['n']}"


@pytest.mark.parametrize("row", SETS, ids=identify)
def test_plans_of_written_down_sets_lie_between_the_search_and_the_optimum(row: dict):
    chosen = plan(row["stored"], row["n"], row["s"])
    # The search may keep a state for a while and then sweep from it, which a plan does not do: a matter of 1 %.
    assert row["backward_advances"] <= chosen.advances <= 1.01 * row["backward_advances"]
    assert row["moved"] or chosen.advances == row["backward_advances"]
    assert chosen.advances + 2 * row["n"] >= row["optimum_split"]


@pytest.mark.parametrize("slots", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("steps", [1, 5, 9, 14, 23, 37, 60, 100, 163, 270, 440])
def test_dropping_at_most_every_second_state_loses_nothing(slots: int, steps: int):
    stored = stored_after(slots, steps)
    assert plan(stored, steps, slots).advances == cheapest_plan(stored, steps, slots, table())


@st.composite
def situations(draw: st.DrawFn) -> tuple[tuple[int, ...], int, int]:
    steps = draw(st.integers(1, 200))
    slots = draw(st.integers(1, 8))
    rest = draw(st.sets(st.integers(1, steps - 1), max_size=slots - 1)) if steps > 1 else set()
    return (0, *sorted(rest)), steps, slots


@given(situation=situations())
def test_a_plan_lies_between_the_best_choice_and_keeping_all(situation: tuple[tuple[int, ...], int, int]):
    stored, steps, slots = situation
    chosen = plan(stored, steps, slots)
    assert cheapest_plan(stored, steps, slots, table()) <= chosen.advances
    assert chosen.advances <= price_of_keeping_all(stored, steps, slots, table())
    assert chosen.advances + steps >= advances(steps + 1, slots)


@given(situation=situations())
def test_a_plan_uses_stored_states_only(situation: tuple[tuple[int, ...], int, int]):
    stored, steps, slots = situation
    chosen = plan(stored, steps, slots)
    assert chosen.kept[0] == 0
    assert set(chosen.kept) <= set(stored)
    assert list(chosen.kept) == sorted(chosen.kept)
    assert chosen.sweep_from in stored
    assert chosen.sweep_from >= chosen.kept[-1]


@pytest.mark.parametrize(
    ("stored", "steps", "slots"),
    [((0,), 5, 2), ((0, 4), 7, 2), ((0, 2, 6), 8, 3), ((0, 5, 7), 9, 3), ((0, 1, 2), 8, 3), ((0, 3, 5, 6), 8, 4)],
)
def test_no_reversal_from_the_same_states_is_cheaper(stored: tuple[int, ...], steps: int, slots: int):
    assert plan(stored, steps, slots).advances == shortest_reversal(steps, slots, stored, working=None)


def test_dropping_the_newest_states_can_pay():
    assert plan((0, 9, 13), 18, 3) == Plan(kept=(0, 9), sweep_from=13, advances=26)
    assert price_of_keeping_all((0, 9, 13), 18, 3, table()) == 27


def test_of_equals_the_newest_state_is_kept():
    # A state that may be a first checkpoint costs as much kept as dropped and swept from.
    assert plan((0, 3), 8, 3) == Plan(kept=(0, 3), sweep_from=3, advances=8)


@pytest.mark.parametrize("slots", [1, 3, 8])
def test_a_loop_with_a_slot_for_every_state_advances_nothing(slots: int):
    assert plan(range(slots), slots, slots) == Plan(tuple(range(slots)), slots - 1, 0)


@pytest.mark.parametrize(
    ("stored", "steps", "slots", "name"),
    [
        ((), 5, 2, "stored"),
        ((1, 2), 5, 2, "stored"),
        ((0, 3, 2), 5, 3, "stored"),
        ((0, 2, 2), 5, 3, "stored"),
        ((0, 5), 5, 2, "stored"),
        ((0, 1, 2), 5, 2, "stored"),
        ((0,), 0, 2, "steps"),
        ((0,), 5, 0, "slots"),
    ],
)
def test_what_slots_cannot_hold_is_refused_by_name(stored: tuple[int, ...], steps: int, slots: int, name: str):
    with pytest.raises(ScheduleError, match=rf"^{name}: got"):
        plan(stored, steps, slots)
