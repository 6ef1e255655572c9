"""Claims about `adjoint.stack`: the formulas count what the actions do."""

from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoint import Binomial, Restore, Store, advances, fewest_stores
from adjoint.stack import traffic_by_place


def counted(n: int, s: int) -> list[tuple[int, int]]:
    """Stores and restores of each slot, one by one."""
    counts = [[0, 0] for _ in range(min(s, n - 1))]
    for action in Binomial(s, joined=True).actions(n):
        if isinstance(action, Store):
            counts[action.slot][0] += 1
        elif isinstance(action, Restore):
            counts[action.slot][1] += 1
    return [(stores, restores) for stores, restores in counts]


@pytest.mark.parametrize("s", range(1, 9))
@pytest.mark.parametrize("n", [2, 3, 5, 9, 10, 11, 20, 21, 34, 35, 36, 56, 70, 99])
def test_traffic_equals_the_counts(n: int, s: int):
    assert traffic_by_place(n, s) == counted(n, s)


@given(n=st.integers(2, 400), s=st.integers(1, 40))
def test_traffic_equals_the_counts_anywhere(n: int, s: int):
    assert traffic_by_place(n, s) == counted(n, s)


@pytest.mark.parametrize("s", [1, 2, 8, 64])
def test_sums_are_exact_where_nobody_could_run_it(s: int):
    n = 10**8
    begun = perf_counter()
    traffic = traffic_by_place(n, s)
    assert perf_counter() - begun < 1
    assert sum(stores for stores, _ in traffic) == fewest_stores(n, s)
    # Every step but the last is turned after a restore.
    assert sum(restores for _, restores in traffic) == n - 1
    assert advances(n, s) > n


def test_one_step_needs_no_slot():
    assert traffic_by_place(1, 3) == traffic_by_place(0, 3) == []
