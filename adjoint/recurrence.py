"""The dynamic programmes' one inner loop: a row whose every entry is the least of sums with earlier entries.

Reversing a chain means to choose where to split it: f(n) = min over j of left(j) + right(n - j), where the left part is
reversed after the right one. If both rows are convex, so is the sum in j, and the best j moves by at most one from n to
n + 1 (equal steps and free stores are such a case: Griewank & Walther 2000). Costs of transfers bend the rows. So each
row carries its convex minorant, the greatest convex row below it: a j where the sum of the minorants is no better than
a split already found is ruled out, and those that are not make one short interval.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import add

Row = list[float]
"""Least costs by the number of steps, from 0."""

INFINITE = float("inf")


class Minorant:
    """A growing row with its convex minorant; the entry of index 0 belongs to neither.

    >>> Minorant([0, 1, 5, 5]).below
    [0, 1, 3.0, 5]
    """

    __slots__ = ("below", "corners", "row")

    def __init__(self, row: Iterable[float] = (0,)) -> None:
        self.row: Row = []
        self.below: Row = []
        # Where the minorant touches the row.
        self.corners: list[int] = []
        for entry in row:
            self.append(entry)

    def append(self, entry: float) -> None:
        """Lengthens the row by one entry."""
        n, row, corners = len(self.row), self.row, self.corners
        row.append(entry)
        self.below.append(entry)
        if n == 0:
            return
        while len(corners) > 1 and self.growth(corners[-1], n) < self.growth(corners[-2], corners[-1]):
            corners.pop()
        if corners and corners[-1] < n - 1:
            left, slope = corners[-1], self.growth(corners[-1], n)
            self.below[left + 1 : n] = [row[left] + slope * i for i in range(1, n - left)]
        corners.append(n)

    def growth(self, left: int, right: int) -> float:
        """The slope between two entries."""
        return (self.row[right] - self.row[left]) / (right - left)


class Splits:
    """The least left[j] + right[n - j] over first <= j < n, for one n after another; the rows may grow meanwhile.

    Args:
        left: what the split at j costs and what is left of it, by j.
        right: what lies beyond the split, by length.
        first: the least j.

    >>> row = Minorant([0, 1, 4, 9])
    >>> Splits(row, row).least(4)
    8
    """

    __slots__ = ("best", "first", "high", "left", "low", "middle", "right")

    def __init__(self, left: Minorant, right: Minorant, first: int = 1) -> None:
        self.left, self.right, self.first = left, right, first
        # The best split of the last n, the best one of the minorants, and the interval that was searched.
        self.best = self.middle = self.low = self.high = first

    def least(self, n: int) -> float:
        """The least cost for n > first; n is never less than at the call before."""
        left, right, last = self.left.row, self.right.row, n - 1
        below, beyond = self.left.below, self.right.below
        j = self.middle = self.centre(n)
        bound = left[j] + right[n - j]
        if bound <= below[j] + beyond[n - j]:
            self.best = j
            return bound
        for near in (self.best, min(self.best + 1, last)):
            bound = min(bound, left[near] + right[n - near])
        low, high = min(self.low, j), min(max(self.high, j), last)
        while low > self.first and below[low - 1] + beyond[n - low + 1] < bound:
            low -= 1
        while low < j and below[low] + beyond[n - low] >= bound:
            low += 1
        while high < last and below[high + 1] + beyond[n - high - 1] < bound:
            high += 1
        while high > j and below[high] + beyond[n - high] >= bound:
            high -= 1
        self.low, self.high = low, high
        sums = list(map(add, left[low : high + 1], right[n - low : n - high - 1 : -1]))
        least = min(sums)
        if least <= bound:
            self.best = low + sums.index(least)
        return min(least, bound)

    def centre(self, n: int) -> int:
        """Where the sum of the minorants, which is convex in j, is least."""
        below, beyond, j, last = self.left.below, self.right.below, self.middle, n - 1
        here = below[j] + beyond[n - j]
        while j < last and (there := below[j + 1] + beyond[n - j - 1]) <= here:
            j, here = j + 1, there
        while j > self.first and (there := below[j - 1] + beyond[n - j + 1]) < here:
            j, here = j - 1, there
        return j


def least_split(left: Row, right: Row, n: int, first: int = 1) -> tuple[float, int]:
    """The least left[j] + right[n - j] for first <= j < n, and the greatest such j; infinite and 0 if there is none.

    It tries every j, for a single n.
    """
    # In the order of falling j, so that of equals the greatest comes first.
    sums = list(map(add, left[n - 1 : first - 1 : -1], right[1:n]))
    least = min(sums, default=INFINITE)
    return least, n - 1 - sums.index(least) if sums else 0
