"""Schedules for chains whose end nobody knows: how far one reaches, and whether its forward pass can be run ahead.

A schedule is online if its forward pass is the same for every number of steps, as far as that number lets it go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from adjoint.actions import Action, Advance, Apply, Restore, Turn
from adjoint.binomial import SATURATED
from adjoint.errors import ScheduleError
from adjoint.replay import HasActions

COMPARED = 64


def longest(schedule: HasActions) -> int:
    """The greatest number of steps, up to the largest int32, for which a schedule has an answer."""
    low, high = 0, SATURATED + 1
    if accepts(schedule, SATURATED):
        return SATURATED
    # Invariant: it accepts low and refuses high.
    while high - low > 1:
        middle = (low + high) // 2
        if accepts(schedule, middle):
            low = middle
        else:
            high = middle
    return low


def accepts(schedule: HasActions, steps: int) -> bool:
    try:
        schedule.actions(steps)
    except ScheduleError:
        return False
    return True


def checked_online(schedule: HasActions, bound: int) -> None:
    """Raises a `ScheduleError` if the first actions for two numbers of steps tell that a schedule is not online."""
    half = bound // 2
    pairs = zip(islice(schedule.actions(bound), COMPARED), schedule.actions(half), strict=False)
    for longer, shorter in pairs:
        if isinstance(shorter, Advance) and shorter.stop == half:
            break
        if clipped(longer, half) != shorter:
            raise not_online(schedule)


def not_online(schedule: HasActions) -> ScheduleError:
    """The error that says so of a schedule."""
    advice = "give an online schedule, such as Online(slots), or give steps"
    return ScheduleError("schedule", schedule, "one whose forward pass does not depend on steps", advice)


def clipped(action: Action, steps: int) -> Action:
    """An advance as a shorter chain would have it."""
    return Advance(action.start, min(action.stop, steps)) if isinstance(action, Advance) else action


def forward_pass(actions: Iterable[Action]) -> Iterator[Action]:
    """The actions before the first restore, apply or turn."""
    for action in actions:
        if isinstance(action, Restore | Apply | Turn):
            return
        yield action
