"""Claims about `adjoint.binomial`: closed forms equal a dynamic programme, a search, written-down rows."""

from functools import cache
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoint import (
    ScheduleError,
    advances,
    beta,
    beta_table,
    fewest_stores,
    first_offset,
    first_offset_range,
    repetition,
)
from adjoint.binomial import Optimum
from tests.adjoint.facts import FACTS, Fact, rows
from tests.oracles import optimal_first_offsets, reversal_table, shortest_reversal

STEPS, SLOTS = 160, 9


@cache
def table():
    return reversal_table(STEPS, SLOTS)


def identify(row: dict) -> str:
    return f"s{row['s']}-n{row['n']}"


@pytest.mark.parametrize("row", rows("optimal_evaluations.json"), ids=identify)
def test_written_down_optima_are_met(row: dict):
    n, s = row["n"], row["s"]
    assert repetition(n, s) == row["t"]
    assert advances(n, s) == row["advances"] == row["joined_total"] - n
    assert advances(n + 1, s) + n == row["split_total"]
    assert first_offset_range(n, s) == (row["first_offset_min"], row["first_offset_max"])


@pytest.mark.parametrize("fact", FACTS, ids=str)
def test_published_counts_are_met(fact: Fact):
    assert advances(fact.n, fact.s) == fact.advances
    assert fewest_stores(fact.n, fact.s) == fact.stores


@pytest.mark.parametrize("s", range(1, SLOTS + 1))
def test_closed_form_equals_dynamic_programme(s: int):
    assert [advances(n, s) for n in range(STEPS + 1)] == table()[s]


@pytest.mark.parametrize(("s", "longest"), [(1, 10), (2, 10), (3, 9), (4, 8)])
def test_no_reversal_at_all_is_cheaper(s: int, longest: int):
    searched = [shortest_reversal(n, s) for n in range(1, longest + 1)]
    assert searched == [advances(n, s) for n in range(1, longest + 1)]


@pytest.mark.parametrize("s", range(1, SLOTS + 1))
def test_the_interval_holds_every_optimal_offset_and_no_other(s: int):
    for n in range(2, STEPS + 1):
        low, high = first_offset_range(n, s)
        assert list(range(low, high + 1)) == optimal_first_offsets(table(), n, s), n


@pytest.mark.parametrize("s", range(1, SLOTS + 1))
def test_stores_are_the_fewest_at_the_least_advances(s: int):
    # An advance is priced above all the stores there can be, so the advances are least first, then the stores.
    price = 4 * STEPS
    priced = reversal_table(STEPS, s, advance_price=price, store_price=1)[s]
    assert [divmod(total, price)[0] for total in priced] == table()[s]
    assert [total % price for total in priced[1:]] == [fewest_stores(n, s) - 1 for n in range(1, STEPS + 1)]


@given(s=st.integers(1, 80), n=st.integers(2, 10**9))
def test_repetition_is_the_least_that_reaches(s: int, n: int):
    t = repetition(n, s)
    assert beta(s, t - 1) < n <= beta(s, t)


@given(s=st.integers(1, 80), n=st.integers(1, 10**9))
def test_advances_are_convex_with_repetition_as_their_slope(s: int, n: int):
    slope, steeper = advances(n + 1, s) - advances(n, s), advances(n + 2, s) - advances(n + 1, s)
    assert slope <= steeper
    assert slope == repetition(n + 1, s)


@given(s=st.integers(1, 80), n=st.integers(2, 10**9))
def test_the_offset_with_the_fewest_stores_is_optimal(s: int, n: int):
    low, high = first_offset_range(n, s)
    k = first_offset(n, s, repetition(n, s))
    assert low <= k <= high
    right = advances(n - k, s - 1) if n - k > 1 else 0
    assert k + right + advances(k, s) == advances(n, s)


@given(s=st.integers(2, 40), n=st.integers(2, 10**7), turns=st.lists(st.booleans(), max_size=60))
def test_carried_sweeps_need_no_search(s: int, n: int, turns: list[bool]):
    t = repetition(n, s)
    for right in turns:
        if n < 2 or s < 2:
            return
        k = first_offset(n, s, t)
        assert k == first_offset(n, s, repetition(n, s))
        n, s, t = (n - k, s - 1, t) if right else (k, s, t - 1)
        # At most one more than needed, and then only where the shorter sweep is filled exactly.
        assert t == repetition(n, s) or n == beta(s, t - 1) or n <= 2 or s == 1


@given(s=st.integers(1, 60), n=st.integers(1, 2**31 - 1))
def test_tabulated_optimum_equals_closed_form(s: int, n: int):
    assert Optimum(s)(n) == advances(n, s)


@pytest.mark.parametrize("slots", [0, 1, 2, 8, 64])
def test_the_table_is_saturated_int32(slots: int):
    table = beta_table(slots)
    assert len(table) == slots + 2
    assert all(table[m][t] == min(comb(m + t, t), 2**31 - 1) for m in range(slots + 2) for t in range(len(table[0])))


@pytest.mark.parametrize(("slots", "limit", "width"), [(1, 2**31 - 1, 4096), (8, 100, 64), (3, 10**7, 392), (3, 0, 64)])
def test_the_table_reaches_every_sweep_of_the_limit(slots: int, limit: int, width: int):
    lengths = {len(row) for row in beta_table(slots, limit)}
    assert lengths == {width}
    assert slots == 1 or beta(slots, width - 1) >= limit


@pytest.mark.parametrize(("s", "t"), [(-1, 3), (3, -1), (-1, -1)])
def test_negative_arguments_reach_nothing(s: int, t: int):
    assert beta(s, t) == 0


@pytest.mark.parametrize("function", [repetition, advances, first_offset_range])
@pytest.mark.parametrize(("n", "s", "name"), [(-1, 3, "n"), (2, 0, "s")])
def test_impossible_chains_are_refused(function, n: int, s: int, name: str):
    with pytest.raises(ScheduleError, match=rf"^{name}: got {n if name == 'n' else s}"):
        function(n, s)


@pytest.mark.parametrize(("n", "s"), [(0, 1), (1, 0)])
def test_stores_need_a_chain_and_a_slot(n: int, s: int):
    with pytest.raises(ScheduleError):
        fewest_stores(n, s)
