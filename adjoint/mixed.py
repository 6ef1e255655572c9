"""Slots that hold either a state or the tape of one step, whichever serves better (Maddison 2024).

A state lets the steps beyond it be run again; a tape lets one step be turned without running it again. Where a tape
takes about as much memory as a state, keeping some tapes beats keeping states alone.

M(n, s) is the least number of evaluations, the taped ones counted, that reverse n steps with s slots, when state 0 is
the working state and no slot holds anything (Maddison 2024):
M(1, s) = 1, and M(n, s) = min(1 + M(n - 1, s - 1), min over 2 <= i < n of i + M(n - i, s - 1) + M(i, s)),
the first being a tape of step 0 and the second a state 0 in a slot. No closed form is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from adjoint.actions import Action, Advance, Apply, Discard, Record, Restore, Store, Turn
from adjoint.errors import checked_integer
from adjoint.recurrence import Minorant, Row, Splits, least_split
from adjoint.replay import cost_by_replay
from adjoint.schedule import Cost, Schedule, checked_steps
from adjoint.tiers import slots_within


@dataclass(frozen=True)
class Mixed(Schedule):
    """The least step evaluations where a slot holds a state or one step's tape, the number of steps being known.

    Args:
        slots: states and tapes kept at once, state 0 included, >= 1.
        joined: whether the forward pass runs straight into the first turn, see `Binomial`; by default it does not.

    Raises:
        ScheduleError: slots is below 1.

    Cost: M(n, s) evaluations if joined, M(n + 1, s) - 1 if split; never more than `Binomial` with as many slots.
        `actions` and `cost` fill a table of n * slots entries in O(n^2 slots) additions, which is remembered.

    >>> Mixed(3, joined=True).cost(10).evaluations
    19
    >>> for action in Mixed(2).actions(2):
    ...     print(action)
    Record(step=0, slot=0)
    Record(step=1, slot=1)
    Apply(step=1, slot=1)
    Discard(state=1, slot=1)
    Apply(step=0, slot=0)
    Discard(state=0, slot=0)
    """

    slots: int
    joined: bool = False

    def __post_init__(self) -> None:
        slots = checked_integer("slots", self.slots, 1, "give at least one slot, for a state or a tape")
        object.__setattr__(self, "slots", slots)

    @classmethod
    def for_budget(cls, bytes: int, state_bytes: int, tape_bytes: int, joined: bool = False) -> Mixed:
        """The schedule with as many slots as fit; each must hold the larger of a state and a tape.

        Args:
            bytes: memory for the slots.
            state_bytes: size of one state, >= 1.
            tape_bytes: size of one step's tape, >= 1.
            joined: as for the class.

        Returns:
            A schedule.

        Raises:
            ScheduleError: not even one slot fits.

        >>> Mixed.for_budget(1000, state_bytes=80, tape_bytes=100)
        Mixed(slots=10, joined=False)
        """
        tape = checked_integer("tape_bytes", tape_bytes, 1, "give the size of one step's tape in bytes")
        state = checked_integer("state_bytes", state_bytes, 1, "give the size of one state in bytes")
        return cls(slots_within(bytes, max(state, tape)), joined)

    def actions(self, steps: int) -> Iterator[Action]:
        """Slot r holds the (r + 1)-th oldest state or tape. See `Schedule.actions`."""
        return self.run(checked_steps(steps))

    def cost(self, steps: int) -> Cost:
        """See `Schedule.cost`."""
        return cost_by_replay(self, checked_steps(steps))

    def run(self, n: int) -> Iterator[Action]:
        length = n if self.joined or n == 0 else n + 1
        for action in mixed_sweeps(length, min(self.slots, max(length - 1, 1))):
            # The turn of step n stands for the use of state n between the two passes.
            if action != Turn(n):
                yield action


def mixed_sweeps(n: int, slots: int) -> Iterator[Action]:
    """Turns steps n - 1..0 from working state 0, the slots being a stack."""
    rows = mixed_rows(n, slots)
    stack: list[tuple[int, bool]] = []
    end = n
    start = 0
    is_kept = False
    while end:
        while end - start > 1:
            offset = mixed_offset(rows, end - start, slots - len(stack) + is_kept)
            slot = len(stack)
            if offset == 0:
                if is_kept:
                    slot -= 1
                    stack.pop()
                    yield Discard(start, slot)
                yield Record(start, slot)
                stack.append((start, True))
                start += 1
            else:
                if not is_kept:
                    yield Store(start, slot)
                    stack.append((start, False))
                yield Advance(start, start + offset)
                start += offset
            is_kept = False
        if is_kept:
            stack.pop()
            yield Discard(start, len(stack))
        yield Turn(start)
        end -= 1
        while stack and stack[-1][1]:
            stack.pop()
            end -= 1
            yield Apply(end, len(stack))
            yield Discard(end, len(stack))
        if stack:
            start, is_kept = stack[-1][0], True
            yield Restore(start, len(stack) - 1)


def mixed_offset(rows: list[Row], n: int, s: int) -> int:
    """Where the next slot goes in a chain of n > 1 steps with s slots: state 0 in it and on by so many steps, or 0 for
    the tape of step 0. Of equals it is the tape, then the farthest.
    """
    if s >= n - 1:
        return 0
    if s == 1:
        return n - 1
    left, right = rows[s], rows[s - 1]
    least, offset = least_split([entry + i for i, entry in enumerate(left[:n])], right, n, first=2)
    return 0 if 1 + right[n - 1] <= least else offset


@lru_cache(maxsize=4)
def mixed_rows(n: int, slots: int) -> list[Row]:
    """M(l, s) for every l <= n and s <= slots, as rows[s][l]; rows[0] is not used."""
    rows: list[Row] = [[], [0, *(length * (length + 1) // 2 - (length > 1) for length in range(1, n + 1))]]
    for s in range(2, slots + 1):
        right = rows[s - 1]
        row: Row = list(range(min(s + 1, n) + 1))
        left = Minorant(i + entry for i, entry in enumerate(row))
        splits = Splits(left, Minorant(right), first=2)
        for length in range(s + 2, n + 1):
            row.append(min(1 + right[length - 1], splits.least(length)))
            left.append(length + row[length])
        rows.append(row)
    return rows
