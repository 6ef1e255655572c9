"""The arithmetic of binomial checkpointing: exact integer functions of n steps, s slots and t sweeps.

With s slots (state 0's included) and no step advanced more than t times, a chain of at most
beta(s, t) = C(s + t, s) steps can be reversed (Griewank 1992). Everything else follows from that:
the least number of advances, where the first checkpoint goes, how many stores it takes.
Letters are those of Griewank & Walther 2000 (Algorithm 799); `advances` here is their "joined" optimum: the
forward pass runs straight into the first turn. A loop that must deliver its last state first is "split", and
reverses n steps as a joined chain of n + 1 whose last turn costs nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from math import comb

from adjoint.errors import ScheduleError, checked_integer

SATURATED = 2**31 - 1
"""The largest int32: what a table for a compiled loop holds instead of anything greater."""

LONGEST_ROW = 4096
SHORTEST_ROW = 64


def beta(s: int, t: int) -> int:
    """The longest chain that s slots reverse with no step advanced more than t times: C(s + t, s).

    Args:
        s: slots, state 0's included; a negative number gives 0.
        t: sweeps, the most times one step is advanced; a negative number gives 0.

    Returns:
        A number of steps (Griewank 1992).

    Raises nothing: any integers have an answer.

    >>> beta(3, 2)
    10
    """
    return comb(s + t, s) if s >= 0 and t >= 0 else 0


def repetition(n: int, s: int) -> int:
    """The least t with beta(s, t) >= n: how often the most advanced step of an optimal reversal is advanced.

    Args:
        n: steps, >= 0.
        s: slots, state 0's included, >= 1 (>= 0 for n <= 1).

    Returns:
        A number of sweeps.

    Raises:
        ScheduleError: n is negative, or no number of sweeps suffices (n > 1 without a slot).

    Cost: O(log t) binomial coefficients.

    >>> repetition(10, 3), repetition(11, 3)
    (2, 3)
    """
    check(n, s)
    if n <= 1:
        return 0
    if s == 1:
        return n - 1
    high = 1
    while comb(s + high, s) < n:
        high *= 2
    low = high // 2
    # Invariant: beta(s, low) < n <= beta(s, high); it holds at low = 0 as beta(s, 0) = 1 < n.
    while high - low > 1:
        middle = (low + high) // 2
        if comb(s + middle, s) < n:
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=2**16)
def advances(n: int, s: int) -> int:
    """P(n, s), the least number of advances that reverse n steps with s slots, joined: t n - beta(s + 1, t - 1).

    The n taped steps of the turns come on top. A split reversal needs P(n + 1, s) advances and n turns.

    Args:
        n: steps, >= 0.
        s: slots, state 0's included, >= 1 (>= 0 for n <= 1).

    Returns:
        A number of step evaluations (Griewank & Walther 2000, section 2).

    Raises:
        ScheduleError: n is negative, or n > 1 without a slot.

    >>> advances(10, 3), advances(10, 3) + 10
    (15, 25)
    """
    t = repetition(n, s)
    return t * n - beta(s + 1, t - 1)


def fewest_stores(n: int, s: int) -> int:
    """How often `first_offset` stores in a joined reversal with the least advances, state 0 included.

    With t = repetition(n, s) it is beta(s - 1, t - 1), and one more for each step of n beyond
    beta(s, t - 1) + beta(s - 1, t - 1).

    Args:
        n: steps, >= 1.
        s: slots, state 0's included, >= 1.

    Returns:
        A number of stores.

    Raises:
        ScheduleError: n or s is below 1.

    >>> fewest_stores(100, 8)
    55
    """
    checked_integer("n", n, 1, "a chain without steps needs no store")
    checked_integer("s", s, 1, "state 0 needs a slot")
    t = repetition(n, s)
    return max(beta(s - 1, t - 1), n - beta(s, t - 1)) if t else 1


def first_offset_range(n: int, s: int) -> tuple[int, int]:
    """All optimal places of the first checkpoint after state 0, as the ends of a closed interval of offsets.

    Args:
        n: steps, >= 1.
        s: slots, state 0's included, >= 1.

    Returns:
        The least and the greatest optimal offset; (0, 0) for n = 1, where nothing is advanced
        (Griewank & Walther 2000, Fig. 4).

    Raises:
        ScheduleError: n is negative, or n > 1 without a slot. A chain of no steps passes, and gives (0, 0) too.

    >>> first_offset_range(10, 3), first_offset_range(8, 3)
    ((4, 4), (2, 4))
    """
    check(n, s)
    if n <= 2:
        return max(n - 1, 0), max(n - 1, 0)
    if s == 1:
        return n - 1, n - 1
    t = repetition(n, s)
    low = max(1, beta(s, t - 2), n - beta(s - 1, t))
    high = min(n - 1, beta(s, t - 1), n - beta(s - 1, t - 1))
    return low, high


def first_offset(n: int, s: int, t: int) -> int:
    """The optimal offset of the first checkpoint which also needs the fewest stores, t being carried.

    Carrying t means: for a gap that is split at k, the right gap is (n - k, s - 1, t) and the left gap (k, s, t - 1).
    So no loop searches for t, and t may be one more than repetition(n, s) where n equals beta(s, t - 1).
    An offset of n - 1 needs no store: the working state is turned at once.

    Args:
        n: steps of the gap, >= 2.
        s: slots of the gap, its first state's included, >= 1.
        t: sweeps of the gap: repetition(n, s) at first, then as carried.

    Returns:
        An offset, 1..n - 1 (Griewank & Walther 2000, p. 34).

    Raises nothing: n, s and t are not checked, as this is called once for each split.

    >>> first_offset(10, 3, 2)
    4
    """
    if s == 1:
        return n - 1
    # n <= 2 has one offset only; with a slot for every state each one is kept.
    if n <= 2 or s >= n - 1:
        return 1
    b1, b2 = beta(s - 1, t - 1), beta(s - 2, t - 1)
    full = beta(s, t - 1)
    if n <= full + b2:
        return beta(s, t - 2)
    if n < full + b1 + b2:
        return n - b1 - b2
    return full


@lru_cache(maxsize=64)
def beta_table(slots: int, limit: int = SATURATED) -> tuple[tuple[int, ...], ...]:
    """beta(m, t) as rows of int32, for a compiled loop that carries t and so never searches.

    Args:
        slots: the most slots of any gap, >= 0.
        limit: the most steps of any gap; it sets how many sweeps the rows reach.

    Returns:
        Rows m = 0..slots + 1, each of T entries t = 0..T - 1 saturated at 2**31 - 1;
        T = min(4096, max(64, repetition(limit, slots) + 2)). With one slot the offset needs no table.

    Raises:
        ScheduleError: slots or limit is negative.

    >>> table = beta_table(2, limit=10)
    >>> len(table), len(table[0]), table[2][:4]
    (4, 64, (1, 3, 6, 10))
    """
    slots = checked_integer("slots", slots, 0, "give the number of slots of the schedule")
    limit = checked_integer("limit", limit, 0, "give the largest number of steps")
    width = min(LONGEST_ROW, max(SHORTEST_ROW, repetition(limit, max(slots, 1)) + 2))
    return tuple(tuple(min(beta(m, t), SATURATED) for t in range(width)) for m in range(slots + 2))


class Optimum:
    """P(n, s) for one s and many n <= 2**31 - 1, by bisection in a row of binomial coefficients.

    For the placement rule, which asks for very many values: a bisection of a tuple costs less than a search for t.
    """

    __slots__ = ("lengths", "offsets", "s")

    def __init__(self, s: int) -> None:
        self.s = s
        lengths, offsets, t = [1], [0], 0
        # One slot would need a row as long as the chain, and has the closed form n (n - 1) / 2.
        while s > 1 and lengths[-1] < SATURATED:
            t += 1
            lengths.append(comb(s + t, s))
            offsets.append(comb(s + t, s + 1))
        self.lengths = tuple(lengths)
        self.offsets = tuple(offsets)

    def __call__(self, n: int) -> int:
        if self.s == 1:
            return n * (n - 1) // 2
        t = bisect_left(self.lengths, n)
        return t * n - self.offsets[t]


def check(n: int, s: int) -> None:
    """Raises a `ScheduleError` unless s slots can reverse n steps at all."""
    if n < 0:
        raise ScheduleError("n", n, "a number of steps >= 0", "count the steps of the chain from its first state")
    if s < 1 and n > 1:
        raise ScheduleError("s", s, "at least one slot", "one slot must hold state 0 to reverse more than one step")
