"""Claims about evaluations: a compiled gradient runs the very steps that its schedule says, in that order."""

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import pytest

import adjoint
from adjoint import Advance, Online, Turn
from tests.on_jax.counting import CountedGradient, Evaluation, counted_gradient

SLOTS = [1, 2, 3, 5, 8, 16]
LENGTHS = [*range(35), 47, 48, 49, 64, 65, 100, 153, 154, 299, 300]
# One slot takes n * n / 2 evaluations.
CASES = [(slots, n) for slots, n in product(SLOTS, LENGTHS) if slots > 1 or n <= 100]
LEAVES = [Online(1, 2), Online(2, 3), Online(3, 8), Online(5, 16)]
LEAF_CASES = [(schedule, n) for schedule, n in product(LEAVES, LENGTHS) if schedule.slots > 1 or n <= 100]


@cache
def gradient(checkpoints: Any, max_steps: int | None = None) -> CountedGradient:
    """Compiled once for every number of steps."""
    return counted_gradient(checkpoints=checkpoints, max_steps=max_steps)


def evaluations(schedule: adjoint.Schedule, steps: int) -> Iterator[Evaluation]:
    """What a schedule's actions evaluate."""
    for action in schedule.actions(steps):
        match action:
            case Advance(start, stop):
                yield from (Evaluation(i, False) for i in range(start, stop))
            case Turn(step):
                yield Evaluation(step, True)


@pytest.mark.parametrize(("slots", "n"), CASES)
def test_evaluations_are_those_of_the_schedule(slots: int, n: int):
    seen = gradient(slots)(n)
    assert len(seen) == Online(slots).cost(n).evaluations == adjoint.replay(Online(slots), n).evaluations
    assert seen == list(evaluations(Online(slots), n))


@pytest.mark.parametrize(("schedule", "n"), LEAF_CASES, ids=str)
def test_evaluations_with_a_leaf_are_those_of_the_schedule(schedule: Online, n: int):
    seen = gradient(schedule)(n)
    assert len(seen) == schedule.cost(n).evaluations == adjoint.replay(schedule, n).evaluations
    assert seen == list(evaluations(schedule, n))


@pytest.mark.parametrize("n", [0, 1, 2, 7, 40])
@pytest.mark.parametrize("checkpoints", ["all", adjoint.StoreAll(), 64, Online(64)], ids=str)
def test_a_loop_with_room_for_every_state_redoes_nothing(checkpoints: Any, n: int):
    seen = gradient(checkpoints, 40)(n)
    assert seen == list(evaluations(adjoint.StoreAll(), n))


@pytest.mark.parametrize("n", [0, 1, 2, 7, 8, 9, 40])
def test_a_period_redoes_no_more_than_its_schedule(n: int):
    seen = gradient(adjoint.Periodic(8), 40)(n)
    assert len(seen) <= adjoint.Periodic(8).cost(n).evaluations
    assert [e.step for e in seen if e.is_taped] == list(range(n - 1, -1, -1))


@pytest.mark.parametrize("slots", SLOTS)
def test_a_bound_changes_no_evaluation(slots: int):
    bounded = gradient(slots, 100)
    assert [bounded(n) for n in (16, 17, 50, 99)] == [gradient(slots)(n) for n in (16, 17, 50, 99)]


@pytest.mark.parametrize(("checkpoints", "n"), [(1, 20), (3, 100), (16, 300), (Online(3, 8), 100), ("auto", 300)])
def test_steps_run_forward_once_and_are_turned_from_the_last_to_the_first(checkpoints: Any, n: int):
    seen = gradient(checkpoints)(n)
    assert seen[:n] == [Evaluation(i, False) for i in range(n)]
    assert [e.step for e in seen if e.is_taped] == list(range(n - 1, -1, -1))
