"""Hears of actions before they are carried out, so that a slow store can begin to read what will be restored.

An action is a few integers, so looking a few hundred of them ahead costs no memory to speak of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from adjoint.actions import Action

AHEAD = 256


def lookahead(actions: Iterable[Action], hear: Callable[[Action], None] | None) -> Iterator[Action]:
    """The same actions; `hear` is called with each one AHEAD actions before, or as soon as the first is asked for."""
    if hear is None:
        yield from actions
        return
    coming = iter(actions)
    queue = deque(islice(coming, AHEAD))
    for action in queue:
        hear(action)
    while queue:
        yield queue.popleft()
        for action in islice(coming, 1):
            hear(action)
            queue.append(action)
