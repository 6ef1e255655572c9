"""Claims about `adjoint.placement`: the fast table is the rule itself."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoint import ScheduleError, store_table
from tests.oracles import held_after, stores_of_sparse_rule

# Far enough for stores that drop another state, and for some that drop two.
REACH = {1: 50, 2: 400_000, 3: 4000, 4: 11_000, 5: 12_000, 8: 24_000, 13: 9000, 16: 6000, 32: 5400, 64: 2000}


@cache
def plain(slots: int) -> list[tuple[int, int, list[int]]]:
    return stores_of_sparse_rule(slots, REACH[slots])


@pytest.mark.parametrize("slots", REACH)
def test_the_table_equals_the_rule(slots: int):
    table = store_table(slots, REACH[slots])
    freed = [[slot for slot in pair if slot >= 0] for pair in table.freed]
    assert list(zip(table.states, table.slots, freed, strict=True))[:-1] == plain(slots)


def test_the_reach_of_the_comparison_covers_every_kind_of_store():
    dropped = {slots: {len(freed) for _, _, freed in plain(slots)} for slots in REACH}
    assert {slots for slots, kinds in dropped.items() if 1 in kinds} == {4, 5, 8, 13, 16, 32}
    assert {slots for slots, kinds in dropped.items() if 2 in kinds} == {8, 13, 16, 32}


@pytest.mark.parametrize("slots", [1, 2, 8, 64, 128])
def test_the_table_is_ascending_int32_closed_by_a_sentinel(slots: int):
    table = store_table(slots)
    assert (table.states[-1], table.slots[-1], table.freed[-1]) == (2**31 - 1, 0, (-1, -1))
    assert list(table.states) == sorted(set(table.states))
    assert set(table.slots) <= set(range(slots))
    assert {slot for pair in table.freed for slot in pair} <= set(range(-1, slots))
    assert table.states[:slots] == table.slots[:slots] == tuple(range(slots))


@pytest.mark.parametrize("slots", [2, 8, 64])
def test_state_0_is_never_overwritten(slots: int):
    table = store_table(slots)
    assert table.slots[1:-1].count(0) == 0
    assert sum(pair.count(0) for pair in table.freed) == 0


@pytest.mark.parametrize("slots", [2, 3, 4, 8, 64])
def test_a_freed_slot_held_an_older_state_and_the_one_freed_last_is_taken_first(slots: int):
    table = store_table(slots)
    held, free = set[int](), list(range(slots - 1, -1, -1))
    for slot, freed in zip(table.slots[:-1], table.freed, strict=False):
        assert slot == free.pop() if free else slot in held
        held.add(slot)
        gone = [place for place in freed if place >= 0]
        assert set(gone) <= held - {0, slot}
        assert freed == (*gone, -1, -1)[:2]
        held -= set(gone)
        free += gone


@given(slots=st.integers(1, 40), limit=st.integers(0, 5000))
def test_a_smaller_limit_gives_a_prefix(slots: int, limit: int):
    whole, part = store_table(slots, 5000), store_table(slots, limit)
    stored = len(part.states) - 1
    assert whole.states[:stored] == part.states[:stored]
    assert whole.slots[:stored] == part.slots[:stored]
    assert whole.freed[:stored] == part.freed[:stored]
    assert whole.states[stored] >= limit


@given(slots=st.sampled_from(sorted(REACH)), share=st.floats(0, 1))
def test_held_is_what_the_rule_leaves(slots: int, share: float):
    steps = round(share * REACH[slots])
    held = store_table(slots).held(steps)
    assert {slot: state for state, slot in held} == held_after(plain(slots), steps)
    assert [state for state, _ in held] == sorted(state for state, _ in held)


@pytest.mark.parametrize(("slots", "most"), [(2, 120), (8, 600), (64, 4000)])
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
