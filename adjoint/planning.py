"""Which of the stored states to use, once the loop has stopped and the number of steps is known.

A stored state costs every gap on its right one slot, so dropping some can pay, the newest ones above all.
A dynamic programme over (stored state, rank) finds the best choice; rank counts the kept states on the left, so that a
gap which starts at rank i is reversed with s - i slots. Between two kept states at most one is dropped.
The cost of a gap is the closed form of Griewank & Walther 2000, so the plan's cost is exact before anything runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from adjoint.binomial import advances, first_offset_range
from adjoint.errors import ScheduleError, checked_integer


@dataclass(frozen=True, slots=True)
class Plan:
    """The stored states that a reversal keeps, where it starts, and what it costs.

    Args:
        kept: the states it keeps, ascending from 0; the others are dropped.
        sweep_from: the state from which the newest gap is swept first: the newest kept one, or a dropped one that
            still lies within the optimal interval of that gap's first checkpoint.
        advances: plain step evaluations of the whole reversal; the n turns come on top.

    >>> plan((0, 9, 13), steps=18, slots=3)
    Plan(kept=(0, 9), sweep_from=13, advances=26)
    """

    kept: tuple[int, ...]
    sweep_from: int
    advances: int


def plan(stored: Sequence[int], steps: int, slots: int) -> Plan:
    """The cheapest reversal of `steps` steps from these stored states and nothing else.

    Args:
        stored: the stored states' indices, ascending from 0, all below steps; at most `slots` of them.
        steps: n >= 1.
        slots: states kept at once, state 0 included.

    Returns:
        The plan. Of equally cheap ones, the one that keeps the newest state, then the most states.

    Raises:
        ScheduleError: the stored states are not as described.

    Cost: O(slots^2) values of `advances`.

    >>> plan([0, 1, 2], steps=3, slots=3).advances
    0
    """
    n = checked_integer("steps", steps, 1, "a loop of no steps needs no plan")
    s = checked_integer("slots", slots, 1, "give the number of slots that hold the stored states")
    c = tuple(stored)
    check(c, n, s)
    costs, drops = best_costs(c, s)
    best: tuple[int, int, int, int] | None = None
    for a in range(len(c) - 1, -1, -1):
        for i in range(a, (a + 1) // 2 - 1, -1):
            start = newest_sweep(c, a, n, s - i)
            total = costs[a][i] + advances(n - c[a], s - i) - (start - c[a])
            if best is None or total < best[0]:
                best = total, a, i, start
    assert best is not None  # the loops reach a = i = 0
    total, b, i, start = best
    kept = [c[b]]
    while b > 0:
        b -= 2 if drops[b][i] else 1
        i -= 1
        kept.append(c[b])
    return Plan(tuple(reversed(kept)), start, total)


def best_costs(c: tuple[int, ...], s: int) -> tuple[list[list[int]], list[list[bool]]]:
    """costs[b][i]: the least advances for the steps below c[b], which is kept at rank i; drops: whether b - 1 goes.

    Rank i of state b lies in ceil(b / 2)..b, since at most every second state is dropped; entries outside are unused.
    """
    costs, drops = [[0]], [[False]]
    for b in range(1, len(c)):
        costs.append([0] * (b + 1))
        drops.append([False] * (b + 1))
        for i in range((b + 1) // 2, b + 1):
            slots = s - i + 1
            options: list[tuple[int, bool]] = []
            if i - 1 >= b // 2:
                options.append((costs[b - 1][i - 1] + advances(c[b] - c[b - 1], slots), False))
            if i < b:
                options.append((costs[b - 2][i - 1] + advances(c[b] - c[b - 2], slots), True))
            # False sorts before True: of equals, the state between is kept.
            costs[b][i], drops[b][i] = min(options)
    return costs, drops


def newest_sweep(c: tuple[int, ...], a: int, n: int, m: int) -> int:
    """Where the first sweep of the newest gap, from c[a] to n with m slots, may start at no loss.

    Every stored state past c[a] is dropped; the first sweep goes through them anyway, so it may start from the last one
    that its first checkpoint may lie on or beyond.
    """
    length = n - c[a]
    if length <= m + 1:
        # Every state of the gap is stored on the way: none may be passed by.
        return c[a]
    furthest = c[a] + first_offset_range(length, m)[1]
    return max(state for state in c[a:] if state <= furthest)


def check(c: tuple[int, ...], n: int, s: int) -> None:
    """Raises a `ScheduleError` unless c can be what s slots hold after n steps."""
    ascending = all(left < right for left, right in pairwise(c))
    if not (c and c[0] == 0 and ascending and c[-1] < n and len(c) <= s):
        expected = f"at most {s} states in ascending order, from 0 to at most {n - 1}"
        raise ScheduleError("stored", c, expected, "give what the slots hold when the loop has stopped")
