"""Claims about `adjoint.planning`: the plan is the best number of oldest states, and nearly as good as any choice."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoint import Plan, ScheduleError, advances, plan, store_table
from tests.adjoint.facts import rows
from tests.oracles import cheapest_plan, cheapest_prefix, price_of_keeping_all, reversal_table, shortest_reversal

SETS = rows("stored_sets.json")


@cache
def table():
    return reversal_table(500, 8)


def stored_after(slots: int, steps: int) -> tuple[int, ...]:
    return tuple(state for state, _ in store_table(slots).held(steps))


def identify(row: dict) -> str:
    return f"s{row['s']}-n{row['n']}"


@pytest.mark.parametrize("row", SETS, ids=identify)
def test_plans_of_written_down_sets_lie_between_the_search_and_keeping_all(row: dict):
    chosen, passes = plan(row["stored"], row["n"], row["s"]), 2 * row["n"]
    # The search may drop any state and may keep one for a while; those sets hold states that are in the way.
    assert row["backward_advances"] <= chosen.advances
    ends = [*row["stored"][1:], row["n"]]
    gaps = enumerate(zip(row["stored"], ends, strict=True))
    assert chosen.advances <= sum(advances(stop - start, row["s"] - rank) for rank, (start, stop) in gaps)
    assert passes + chosen.advances >= row["optimum_split"]


@pytest.mark.parametrize("slots", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("steps", [1, 5, 9, 14, 23, 37, 60, 100, 163, 270, 396, 440])
def test_keeping_the_oldest_is_as_good_as_any_choice_after_the_forward_rule(slots: int, steps: int):
    stored = stored_after(slots, steps)
    best = 2 * steps + cheapest_plan(stored, steps, slots, table())
    # Equal in all but a few cases: 5 slots and 396 steps is the worst of all up to 440 steps.
    assert best <= 2 * steps + plan(stored, steps, slots).advances <= 1.003 * best


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
def test_a_plan_is_the_best_number_of_oldest_states(situation: tuple[tuple[int, ...], int, int]):
    stored, steps, slots = situation
    price, kept, start = cheapest_prefix(stored, steps, slots, table())
    assert plan(stored, steps, slots) == Plan(stored[:kept], start, price)


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
