"""Binomial sweeps over a stack of gaps, one action at a time: what every reversal of stored states consists of.

Between two stored states lies a *gap*. The newest gap, which ends at the last step not yet turned, is swept from its
first state: store at the optimal offset, go on in the right gap, turn its last step, restore. A gap that is split at k
leaves (k, m, t - 1) on the left and makes (l - k, m - 1, t) on the right, so its number of sweeps t is carried on the
stack and nothing is searched (Griewank & Walther 2000, Algorithm 799). Its number of slots m is its depth in the stack.
"""

from __future__ import annotations

from collections.abc import Iterator

from adjoint.actions import Advance, Basic, Discard, Restore, Store, Turn
from adjoint.binomial import first_offset

Gap = tuple[int, int, int]
"""A gap's first state, the slot that holds it, and t."""


def reverse_gaps(gaps: list[Gap], end: int, slots: int, free: list[int], working: int | None) -> Iterator[Basic]:
    """Turns steps end - 1..0.

    Args:
        gaps: the stored states in order, the first being state 0; used up.
        end: steps to turn.
        slots: all slots that the reversal may use.
        free: slots that hold nothing needed, the next one to use last; used up.
        working: the working state, if there is one: the newest gap's first state, or the newest stored one, though
            dropped, if it lies before the last optimal offset from there.

    Returns:
        An iterator of actions. Memory: O(slots), whatever the number of steps.
    """
    for last in range(end - 1, -1, -1):
        start, slot, t = gaps[-1]
        if working is None:
            yield Restore(start, slot)
            working = start
            if start == last:
                yield Discard(start, slot)
                gaps.pop()
                free.append(slot)
        while working < last:
            length = last + 1 - start
            # From a working state at or beyond the first offset the next state is still an optimal split.
            target = max(start + first_offset(length, slots + 1 - len(gaps), t), working + 1)
            yield Advance(working, target)
            working = target
            gaps[-1] = (start, slot, t - 1)
            if target < last:
                start, slot = target, free.pop()
                yield Store(start, slot)
                gaps.append((start, slot, t))
        yield Turn(last)
        working = None
