"""Claims about `adjoint.recurrence`: nothing is ruled out that is best, however the rows are bent."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoint.recurrence import INFINITE, Minorant, Splits, least_split

entries: st.SearchStrategy[list[float]] = st.lists(st.integers(0, 40), min_size=2, max_size=40)


def plain_minorant(row: list[float]) -> list[float]:
    """The least of all chords over each entry but that of index 0."""
    below: list[float] = [row[0]]
    for i in range(1, len(row)):
        chords = [
            row[a] + (row[b] - row[a]) * (i - a) / (b - a) for a in range(1, i + 1) for b in range(i, len(row)) if a < b
        ]
        below.append(min([row[i], *chords]))
    return below


@given(row=entries)
def test_the_minorant_is_the_greatest_convex_row_below(row: list[float]):
    below = Minorant(row).below
    assert below == pytest.approx(plain_minorant(row))
    growth = [later - now for now, later in pairwise(below[1:])]
    assert all(later >= now - 1e-9 for now, later in pairwise(growth))


@given(left=entries, right=entries, first=st.integers(1, 3))
def test_the_least_split_of_given_rows_is_found(left: list[float], right: list[float], first: int):
    size = min(len(left), len(right))
    splits = Splits(Minorant(left[:size]), Minorant(right[:size]), first)
    for n in range(first + 1, size):
        assert splits.least(n) == min(left[j] + right[n - j] for j in range(first, n))


@given(bends=st.lists(st.integers(0, 9), min_size=3, max_size=40), price=st.integers(0, 9))
def test_the_least_split_of_a_growing_row_is_found(bends: list[float], price: int):
    """The row is made of its own sums, bent by what another way costs."""
    row = Minorant([0, price])
    splits = Splits(row, row)
    plain: list[float] = [0, price]
    for n, bend in enumerate(bends, 2):
        plain.append(min(bend * n, n + min(plain[j] + plain[n - j] for j in range(1, n))))
        row.append(min(bend * n, n + splits.least(n)))
    assert row.row == plain


@given(left=entries, right=entries, first=st.integers(1, 2))
def test_of_equal_splits_the_greatest_is_told(left: list[float], right: list[float], first: int):
    n = min(len(left), len(right)) - 1
    sums = {j: left[j] + right[n - j] for j in range(first, n)}
    least, split = least_split(left, right, n, first)
    if sums:
        assert (least, split) == (min(sums.values()), max(j for j in sums if sums[j] == least))
    else:
        assert (least, split) == (INFINITE, 0)
