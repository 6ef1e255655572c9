"""Binomial checkpointing where steps cost unequal amounts, known at the start: the optimum by dynamic programming.

F(i, j, s) is the least cost of advances that reverse steps i..j - 1 with s slots, state i's included: the least over
the next stored state k of cost(i..k - 1) + F(k, j, s - 1) + F(i, k, s). Of the best k the greatest never falls when i
or j grows, so that all k together are tried O(n^2) times for each s (Griewank & Walther 2008, chapter 12, on steps of
unequal cost; Yao 1980 on such recurrences; `tests/adjoint/test_weighted.py` tries every k).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from adjoint.actions import Action, Advance, Discard, Restore, Store, Turn
from adjoint.errors import ScheduleError, checked_integer
from adjoint.recurrence import Row
from adjoint.replay import cost_by_replay
from adjoint.schedule import Cost, Schedule, checked_steps
from adjoint.tiers import slots_within
from adjoint.timeline import checked_costs


@dataclass(frozen=True)
class Weighted(Schedule):
    """The least cost of advances where steps cost unequal amounts, the costs being known at the start.

    Args:
        slots: states kept at once, state 0 included, >= 1.
        costs: the cost of each step, finite and >= 0, in any one unit; their number is the number of steps.
        joined: whether the forward pass runs straight into the first turn, see `Binomial`; by default it does not.

    Raises:
        ScheduleError: slots is below 1, a cost is no such number, or another number of steps is asked for.

    Cost: the least sum of the costs of the steps advanced over (`work`); n turns. With equal costs, `Binomial`'s
        advances. `actions`, `cost` and `work` fill tables of n^2 slots / 2 entries in O(n^2 slots), remembered.

    >>> Weighted(2, [1, 1, 1, 1, 50, 1]).work(6), Weighted(2, [1, 1, 1, 1, 50, 1]).cost(6).advances
    (61, 12)
    """

    slots: int
    costs: tuple[float, ...]
    joined: bool = False

    def __post_init__(self) -> None:
        slots = checked_integer("slots", self.slots, 1, "give at least one slot, for state 0")
        object.__setattr__(self, "slots", slots)
        if not isinstance(self.costs, Iterable) or isinstance(self.costs, str):
            advice = "give the cost of each step, or use adjoint.Binomial for equal ones"
            raise ScheduleError("costs", self.costs, "a sequence of numbers", advice)
        object.__setattr__(self, "costs", checked_costs("costs", self.costs))

    @classmethod
    def for_budget(cls, bytes: int, state_bytes: int, costs: Iterable[float], joined: bool = False) -> Weighted:
        """The schedule with as many slots as fit.

        Args:
            bytes: memory for stored states.
            state_bytes: size of one state, >= 1.
            costs, joined: as for the class.

        Returns:
            A schedule.

        Raises:
            ScheduleError: not even one state fits, or a cost is no finite number >= 0.

        >>> Weighted.for_budget(200, 90, costs=[1, 2, 1])
        Weighted(slots=2, costs=(1, 2, 1), joined=False)
        """
        return cls(slots_within(bytes, state_bytes), tuple(costs), joined)

    def actions(self, steps: int) -> Iterator[Action]:
        """Slot r holds the (r + 1)-th oldest state. See `Schedule.actions`."""
        return self.run(self.checked(steps))

    def cost(self, steps: int) -> Cost:
        """See `Schedule.cost`."""
        return cost_by_replay(self, self.checked(steps))

    def work(self, steps: int) -> float:
        """The summed costs of all steps advanced over, each as often as it is.

        Args:
            steps: n, the number of the costs.

        Returns:
            A sum of costs; those of the n taped evaluations come on top.

        Raises:
            ScheduleError: another number of steps.
        """
        n = self.checked(steps)
        return least_work(self.chain(n), self.slots_for(n))[0][-1][0][-1] if n else 0

    def checked(self, steps: int) -> int:
        """The number of steps whose costs are known, or a `ScheduleError`."""
        n = checked_steps(steps)
        if n != len(self.costs):
            expected = f"{len(self.costs)}, the number of the costs"
            raise ScheduleError("steps", n, expected, "give one cost for each step")
        return n

    def chain(self, n: int) -> tuple[float, ...]:
        """The costs of the joined chain that this reversal is; nothing ever advances over the last of its steps."""
        return self.costs if self.joined or n == 0 else (*self.costs, 0)

    def slots_for(self, n: int) -> int:
        """Slots that can be of use."""
        return max(1, min(self.slots, len(self.chain(n)) - 1))

    def run(self, n: int) -> Iterator[Action]:
        length = len(self.chain(n))
        if length <= 1:
            yield from (Turn(step) for step in range(length))
            return
        splits = least_work(self.chain(n), self.slots_for(n))[1]
        for action in weighted_sweeps(splits, length):
            # The turn of step n stands for the use of state n between the two passes.
            if action != Turn(n):
                yield action


Table = list[Row]
"""Entries by the first step of a chain, and by its length."""


def weighted_sweeps(splits: list[list[list[int]]], n: int) -> Iterator[Action]:
    """Turns steps n - 1..0 from working state 0, the slots being a stack."""
    slots = len(splits)
    stack = [0]
    yield Store(0, 0)
    working = 0
    for last in range(n - 1, -1, -1):
        if working < 0:
            working = stack[-1]
            yield Restore(working, len(stack) - 1)
            if working == last:
                stack.pop()
                yield Discard(working, len(stack))
        while working < last:
            split = splits[slots - len(stack)][stack[-1]][last + 1 - stack[-1]]
            yield Advance(working, split)
            working = split
            if split < last:
                yield Store(split, len(stack))
                stack.append(split)
        yield Turn(last)
        working = -1


@lru_cache(maxsize=4)
def least_work(costs: tuple[float, ...], slots: int) -> tuple[list[Table], list[list[list[int]]]]:
    """F and its best splits for every number of slots, as tables[s - 1][i][l] of the chain of l steps from step i."""
    n = len(costs)
    sums = list(accumulate(costs, initial=0))
    alone: Table = []
    nearest: list[list[int]] = []
    for i in range(n):
        alone.append([0, *accumulate((sums[j] - sums[i] for j in range(i + 1, n)), initial=0)])
        # With one slot the chain is run up to its last step.
        nearest.append([i, i, *range(i + 1, n)])
    tables, splits = [alone], [nearest]
    for _ in range(1, slots):
        table, best = one_slot_more(tables[-1], sums)
        tables.append(table)
        splits.append(best)
    return tables, splits


def one_slot_more(fewer: Table, sums: list[float]) -> tuple[Table, list[list[int]]]:
    """F(., ., s) and its greatest best splits from F(., ., s - 1)."""
    n = len(fewer)
    table: Table = [[0, 0] for _ in range(n)]
    best = [[i, i] for i in range(n)]
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            # Between the best splits of the two chains that are one step shorter, at either end.
            low, high = (best[i][-1], best[i + 1][length - 1]) if length > 2 else (i + 1, i + 1)
            row, start, end = table[i], sums[i], i + length
            options = [(sums[k] - start + fewer[k][end - k] + row[k - i], -k) for k in range(low, high + 1)]
            least, k = min(options)
            row.append(least)
            best[i].append(-k)
    return table, best
