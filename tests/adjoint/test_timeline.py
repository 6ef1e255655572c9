"""Claims about `adjoint.timeline`: times that one can add up by hand, with transfers before, beside and after steps."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import nan
from typing import Any

import pytest

from adjoint import Advance, Apply, Prefetch, Record, Restore, ScheduleError, Store, Tier, Turn, replay


@dataclass
class Script:
    """Whatever actions a test makes up."""

    made_up: list[Any]

    def actions(self, steps: int) -> Iterator[Any]:
        return iter(self.made_up)


def makespan(
    actions: list[Any], steps: int, buffers: int = 0, write: float = 7, read: float = 5, **costs: Any
) -> float:
    tiers = [Tier("memory", 9), Tier("disk", 9, write, read, buffers)]
    taken = replay(Script(actions), steps, tiers=tiers, **costs).makespan
    assert taken is not None
    return taken


# The forward pass stores states 0 and 3, the reversal reads them both.
THREE_AND_ONE = [
    Store(0, 0, tier=1),
    Advance(0, 3),
    Store(3, 1, tier=1),
    Advance(3, 4),
    Restore(3, 1, tier=1),
    Turn(3),
    Restore(0, 0, tier=1),
    Record(0, 0),
    Record(1, 1),
    Turn(2),
    Apply(1, 1),
    Apply(0, 0),
]
ANNOUNCED = [*THREE_AND_ONE[:5], Prefetch(0, 0, tier=1), *THREE_AND_ONE[5:]]


def test_synchronous_transfers_stop_the_steps():
    # 4 steps forward and 4 taped, 4 adjoints, 2 writes, 2 reads.
    assert makespan(THREE_AND_ONE, 4, step_cost=1, adjoint_cost=2) == 8 + 8 + 2 * 7 + 2 * 5


def test_announcements_change_nothing_there():
    assert makespan(ANNOUNCED, 4, step_cost=1, adjoint_cost=2) == 8 + 8 + 2 * 7 + 2 * 5


def test_writes_beside_the_steps_delay_only_what_needs_them():
    # The writes end at 7 and 14; then state 3 is read until 19. Step 3 is turned, state 0 read, and the rest turned.
    assert makespan(THREE_AND_ONE, 4, buffers=2, adjoint_cost=2) == 14 + 5 + 3 + 5 + 9


def test_an_announced_read_goes_on_beside_the_steps():
    # State 0 arrives 5 after state 3, of which the turn of step 3 takes 3.
    assert makespan(ANNOUNCED, 4, buffers=2, adjoint_cost=2) == 14 + 5 + 5 + 9


def test_one_buffer_makes_a_write_wait_for_the_one_before():
    actions = [Store(0, 0, tier=1), Advance(0, 1), Store(1, 1, tier=1), Turn(1), Restore(0, 0, tier=1), Turn(0)]
    # With one buffer the second store waits until 7; with two it does not, and the step goes on at 1.
    assert makespan(actions, 2, buffers=1, read=0, adjoint_cost=10) == 7 + 11 + 11
    assert makespan(actions, 2, buffers=2, read=0, adjoint_cost=10) == 14 + 11
    assert makespan(actions, 2, buffers=2, read=0, adjoint_cost=20) == 1 + 21 + 21


def test_unequal_steps_are_taken_at_their_cost():
    actions = [Store(0, 0), Advance(0, 2), Turn(2), Restore(0, 0), Advance(0, 1), Turn(1), Restore(0, 0), Turn(0)]
    assert makespan(actions, 3, step_cost=[1, 10, 100], adjoint_cost=0) == (1 + 10 + 100) + (1 + 10) + 1


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        ({"step_cost": nan}, "^step_cost: got nan, expected a finite number >= 0"),
        ({"step_cost": [1, -1]}, r"^step_cost\[1\]: got -1"),
        ({"step_cost": [1]}, "^step_cost: got .*, expected a cost for each of 2 steps"),
        ({"step_cost": "11"}, "^step_cost: got '11'"),
        ({"adjoint_cost": -2}, "^adjoint_cost: got -2"),
    ],
    ids=str,
)
def test_bad_costs_are_refused_by_name(costs: dict[str, Any], words: str):
    with pytest.raises(ScheduleError, match=words):
        makespan([Turn(1), Turn(0)], 2, **costs)
