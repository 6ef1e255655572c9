"""Which of the stored states to use, once the loop has stopped and the number of steps is known.

A stored state costs every gap on its right one slot, so dropping some can pay. The forward pass has dropped what is in
the way between others (`adjoint.placement`), for any number of steps still to come; the number of steps itself decides
about the newest states. So a plan is one number, how many of the oldest states to keep, and every one is tried.
After the forward pass's drops that is as cheap as any choice of states in all but a few cases
(`tests/adjoint/test_planning.py` compares with an exhaustive search); for other sets of states it need not be.
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
        kept: the states it keeps, the oldest of the stored ones, ascending from 0; the others are dropped.
        sweep_from: the state from which the newest gap is swept first: the newest kept one, or the newest stored one,
            though dropped, if it lies before the last optimal place of that gap's first checkpoint.
        advances: plain step evaluations of the whole reversal; the n turns come on top.

    >>> plan((0, 9, 13), steps=18, slots=3)
    Plan(kept=(0, 9), sweep_from=13, advances=26)
    """

    kept: tuple[int, ...]
    sweep_from: int
    advances: int


def plan(stored: Sequence[int], steps: int, slots: int) -> Plan:
    """The cheapest reversal of `steps` steps that keeps the oldest of these stored states, as many as it likes.

    Args:
        stored: the stored states' indices, ascending from 0, all below steps; at most `slots` of them.
        steps: n >= 1.
        slots: states kept at once, state 0 included.

    Returns:
        The plan: the cheapest that keeps the oldest states, which need not be the cheapest of all subsets. Of equally
        cheap ones, the one that keeps the most states.

    Raises:
        ScheduleError: the stored states are not as described.

    Cost: O(slots) values of `advances`.

    >>> plan([0, 1, 2], steps=3, slots=3).advances
    0
    """
    n = checked_integer("steps", steps, 1, "a loop of no steps needs no plan")
    s = checked_integer("slots", slots, 1, "give the number of slots that hold the stored states")
    c = tuple(stored)
    check(c, n, s)
    below = 0
    best = Plan((), 0, 0)
    for a, state in enumerate(c):
        if a:
            below += advances(state - c[a - 1], s - a + 1)
        start = newest_sweep(c, a, n, s - a)
        total = below + advances(n - state, s - a) - (start - state)
        if a == 0 or total <= best.advances:
            best = Plan(c[: a + 1], start, total)
    return best


def newest_sweep(c: tuple[int, ...], a: int, n: int, m: int) -> int:
    """Where the first sweep of the newest gap, from c[a] to n with m slots, may start at no loss.

    Every stored state past c[a] is dropped, but the newest may still serve once: the first sweep may start from it if
    it lies before the last optimal place of the sweep's first checkpoint. Before, so that the sweep always advances.
    """
    length = n - c[a]
    if length <= m + 1:
        # Every state of the gap is stored on the way: none may be passed by.
        return c[a]
    return c[-1] if c[-1] - c[a] < first_offset_range(length, m)[1] else c[a]


def check(c: tuple[int, ...], n: int, s: int) -> None:
    """Raises a `ScheduleError` unless c can be what s slots hold after n steps."""
    ascending = all(left < right for left, right in pairwise(c))
    if not (c and c[0] == 0 and ascending and c[-1] < n and len(c) <= s):
        expected = f"at most {s} states in ascending order, from 0 to at most {n - 1}"
        raise ScheduleError("stored", c, expected, "give what the slots hold when the loop has stopped")
