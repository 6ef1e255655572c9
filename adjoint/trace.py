"""A reversal as strokes on paper: time across, steps down, the picture of Griewank 1992.

Time is counted in step evaluations, the taped ones included. An advance is a slanted line, and so is a recorded step; a
turn is a point, and a kept state or tape a level line for as long as its slot holds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from adjoint.actions import Advance, Apply, Discard, Record, Store, Turn
from adjoint.replay import HasActions


class Stroke(NamedTuple):
    """One line of the picture.

    Args:
        kind: "advance", "turn" or "keep".
        start: the time at which it begins, in evaluations.
        stop: the time at which it ends.
        first: the state at its beginning; a turn is at its step.
        last: the state at its end.
        tier: the tier of a kept state; 0 for the others.

    >>> Stroke("keep", start=0, stop=9, first=3, last=3, tier=0).kind
    'keep'
    """

    kind: Literal["advance", "turn", "keep"]
    start: int
    stop: int
    first: int
    last: int
    tier: int


def strokes(schedule: HasActions, steps: int) -> Iterator[Stroke]:
    """The strokes of a reversal, each when it ends.

    Args:
        schedule: anything with `actions(steps)`.
        steps: n >= 0.

    Returns:
        An iterator of strokes; what is kept at the end comes last.

    Raises:
        ScheduleError: the schedule has no answer for that many steps.

    Cost: one integer operation per action; no step runs.

    >>> from adjoint import Binomial
    >>> for stroke in strokes(Binomial(1), 2):
    ...     print(*stroke)
    advance 0 2 0 2 0
    advance 2 3 0 1 0
    turn 3 4 1 1 0
    keep 0 4 0 0 0
    turn 4 5 0 0 0
    """
    now = 0
    held: dict[tuple[int, int], tuple[int, int]] = {}

    def freed(address: tuple[int, int]) -> Iterator[Stroke]:
        if address in held:
            since, state = held.pop(address)
            yield Stroke("keep", since, now, state, state, address[0])

    for action in schedule.actions(steps):
        match action:
            case Advance(start, stop):
                yield Stroke("advance", now, now + stop - start, start, stop, 0)
                now += stop - start
            case Turn(step):
                yield Stroke("turn", now, now + 1, step, step, 0)
                now += 1
            case Record(step, slot, tier):
                yield from freed((tier, slot))
                yield Stroke("advance", now, now + 1, step, step + 1, 0)
                now += 1
                held[tier, slot] = (now, step)
            case Apply(step):
                yield Stroke("turn", now, now, step, step, 0)
            case Store(state, slot, tier):
                yield from freed((tier, slot))
                held[tier, slot] = (now, state)
            case Discard(_, slot, tier):
                yield from freed((tier, slot))
            case _:
                pass
    for address in list(held):
        yield from freed(address)
