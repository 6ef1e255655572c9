"""Claims about evaluations: a compiled gradient runs the very steps that its schedule says, in that order."""

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import pytest

import adjoint
from adjoint import Advance, Online, Turn
from tests.on_jax.counting import (
    CountedGradient,
    Evaluation,
    counted_gradient,
    counted_gradient_of_fori_loop,
    counted_gradient_of_scan,
)

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


# ---- a number of steps that is known at the start

KNOWN = [1, 2, 3, 5]
KNOWN_LENGTHS = [*range(41), 64, 100, 299]
KNOWN_CASES = [(slots, n) for slots, n in product(KNOWN, KNOWN_LENGTHS) if n <= 64 * slots]


@cache
def known(checkpoints: Any) -> CountedGradient:
    return counted_gradient_of_fori_loop(checkpoints=checkpoints)


@pytest.mark.parametrize(("slots", "n"), KNOWN_CASES)
def test_a_known_number_of_steps_takes_the_least_evaluations(slots: int, n: int):
    seen = known(slots)(n)
    assert len(seen) == adjoint.Binomial(slots).cost(n).evaluations == adjoint.advances(n + 1, slots) + n
    assert seen == list(evaluations(adjoint.Binomial(slots), n))


def least_with_a_leaf(slots: int, leaf: int, n: int) -> int:
    """Forward; over whole blocks, the least advances of a reversal of those outside of the leaf rows; within each of
    these blocks once more, up to its last state; and the turns."""
    first = max(n - leaf, 0)
    blocks = -(-first // leaf)
    return n + leaf * (adjoint.advances(blocks + 1, slots) - blocks) + (first - blocks) + n


@pytest.mark.parametrize(("schedule", "n"), [(s, n) for s, n in LEAF_CASES if n < 35 or n == 100], ids=str)
def test_a_known_number_of_steps_with_a_leaf_takes_the_least_block_advances(schedule: Online, n: int):
    seen = known(schedule)(n)
    assert len(seen) == least_with_a_leaf(schedule.slots, schedule.leaf, n) <= schedule.cost(n).evaluations
    assert seen == list(evaluations(adjoint.Blocks(schedule.slots, schedule.leaf), n))


@pytest.mark.parametrize(("schedule", "n"), [(3, 40), (Online(2, 3), 20), ("all", 7)])
def test_a_scan_of_all_rows_evaluates_what_a_known_number_of_steps_does(schedule: Any, n: int):
    seen = counted_gradient_of_scan(n, stops=False, checkpoints=schedule)(n)
    assert seen == (list(evaluations(adjoint.StoreAll(), n)) if schedule == "all" else known(schedule)(n))


@cache
def stopping(checkpoints: Any) -> CountedGradient:
    return counted_gradient_of_scan(300, stops=True, checkpoints=checkpoints)


@pytest.mark.parametrize(("checkpoints", "n"), list(product([2, 5, Online(2, 3), "all"], [0, 1, 7, 40, 100, 299])))
def test_a_scan_that_stops_evaluates_what_the_online_schedule_does(checkpoints: Any, n: int):
    schedule = {2: Online(2), 5: Online(5), "all": adjoint.StoreAll()}.get(checkpoints, checkpoints)
    assert stopping(checkpoints)(n) == list(evaluations(schedule, n))
