"""Claims about `adjoint.placement`: the fast table is the rule itself."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoint import ScheduleError, store_table
from tests.oracles import held_after, stores_of_sparse_rule

REACH = {1: 50, 2: 4000, 3: 3000, 4: 2000, 5: 1500, 8: 1200, 13: 700, 16: 600, 32: 300, 64: 250}


@cache
def plain(slots: int) -> list[tuple[int, int]]:
    return stores_of_sparse_rule(slots, REACH[slots])


@pytest.mark.parametrize("slots", REACH)
def test_the_table_equals_the_rule(slots: int):
    table = store_table(slots, REACH[slots])
    assert list(zip(table.states, table.slots, strict=True))[:-1] == plain(slots)


@pytest.mark.parametrize("slots", [1, 2, 8, 64, 128])
def test_the_table_is_ascending_int32_closed_by_a_sentinel(slots: int):
    table = store_table(slots)
    assert (table.states[-1], table.slots[-1]) == (2**31 - 1, 0)
    assert list(table.states) == sorted(set(table.states))
    assert set(table.slots) <= set(range(slots))
    assert table.states[:slots] == table.slots[:slots] == tuple(range(slots))


@pytest.mark.parametrize("slots", [2, 8, 64])
def test_state_0_is_never_overwritten(slots: int):
    assert store_table(slots).slots[1:-1].count(0) == 0


@given(slots=st.integers(1, 40), limit=st.integers(0, 5000))
def test_a_smaller_limit_gives_a_prefix(slots: int, limit: int):
    whole, part = store_table(slots, 5000), store_table(slots, limit)
    stored = len(part.states) - 1
    assert whole.states[:stored] == part.states[:stored]
    assert whole.slots[:stored] == part.slots[:stored]
    assert whole.states[stored] >= limit


@given(slots=st.sampled_from(sorted(REACH)), share=st.floats(0, 1))
def test_held_is_what_the_rule_leaves(slots: int, share: float):
    steps = round(share * REACH[slots])
    held = store_table(slots).held(steps)
    assert {slot: state for state, slot in held} == held_after(plain(slots), steps)
    assert [state for state, _ in held] == sorted(state for state, _ in held)


@pytest.mark.parametrize(("slots", "most"), [(2, 60), (8, 260), (64, 1800)])
def test_stores_are_rare(slots: int, most: int):
    assert sum(state < 100_000 for state in store_table(slots).states) < most


def test_one_slot_keeps_state_0_for_good():
    assert store_table(1).states == (0, 2**31 - 1)


def test_tables_are_remembered():
    assert store_table(8, 1000) is store_table(8, 1000)


@pytest.mark.parametrize(("slots", "limit", "name"), [(0, 10, "slots"), (2, -1, "limit"), (2, 2**31, "limit")])
def test_bad_arguments_are_refused_by_name(slots: int, limit: int, name: str):
    with pytest.raises(ScheduleError, match=rf"^{name}: got"):
        store_table(slots, limit)
