"""Claims about the driver: it carries actions out on states, each checked on integers before it touches one."""

from typing import Any

import pytest

from adjoint import (
    Advance,
    Binomial,
    InvariantError,
    Key,
    MemoryStore,
    Online,
    Record,
    Restore,
    ScheduleError,
    Store,
    Turn,
)
from adjoint.chain import Chain
from adjoint.driver import Driver, Lost
from adjoint.machine import Machine
from tests.adjoint.chains import SEED, START, State, states, step, turn, unrolled


def chain(seen: list[int] | None = None, until: Any = None) -> Chain:
    """The tests' chain, noting the steps that it runs."""

    def advance(i: int, state: State) -> State:
        if seen is not None:
            seen.append(i)
        return step(i, state)

    return Chain(advance, turn, until, None, None)


def driver(steps: int, *, seen: list[int] | None = None, until: Any = None) -> Driver:
    made = Driver(chain(seen, until), [MemoryStore()], START, SEED)
    made.position = Machine(steps, None)
    return made


def test_the_working_state_is_the_one_that_the_actions_say() -> None:
    run = driver(9)
    for action, state in [
        (Store(0, 0), 0),
        (Advance(0, 5), 5),
        (Store(5, 1), 5),
        (Restore(0, 0), 0),
        (Restore(5, 1), 5),
    ]:
        run.execute(action)
        assert run.value == states(9)[state]
    assert (run.advances, run.stored, run.restored) == (5, 2, 2)


def test_a_schedule_followed_to_its_end_gives_the_adjoint() -> None:
    run = driver(20)
    run.follow(Binomial(3).actions(20))
    assert (run.last, run.cotangent) == unrolled(20)
    cost = Binomial(3).cost(20)
    assert (run.advances, run.turns, run.stored) == (cost.advances, 20, cost.stores)


def test_a_wrong_action_touches_no_state() -> None:
    seen: list[int] = []
    run = driver(9, seen=seen)
    run.execute(Store(0, 0))
    for wrong in (Advance(1, 3), Store(4, 1), Restore(3, 0), Turn(2)):
        with pytest.raises(InvariantError):
            run.execute(wrong)
    assert (run.value, run.cotangent, seen, run.stored) == (START, SEED, [], 1)
    assert run.stores[0].load(Key(0, 0)) == START


def test_a_lost_working_state_is_made_from_the_newest_older_one() -> None:
    seen: list[int] = []
    run = driver(9, seen=seen)
    run.follow([Store(0, 0), Advance(0, 4), Store(4, 1), Advance(4, 7)])
    run.value = Lost
    seen.clear()
    run.execute(Advance(7, 8))
    assert (run.value, seen, run.recomputed, run.advances) == (states(8)[8], [4, 5, 6, 7], 3, 8)


def test_the_end_is_found_by_the_states() -> None:
    run = driver(1000, until=lambda i, state: i == 17)
    assert run.discover(Online(3).actions(1000)) == 17
    assert (run.value, run.advances) == (states(17)[17], 17)


def test_a_chain_that_outlives_its_bound_is_told() -> None:
    run = driver(8, until=lambda i, state: False)
    with pytest.raises(ScheduleError, match="steps: got 'a chain of more than 8'"):
        run.discover(Online(3).actions(8))


def test_a_tier_without_a_store_is_told() -> None:
    with pytest.raises(ScheduleError, match="at least 2 stores, as a state goes to tier 1"):
        driver(9).execute(Store(0, 0, tier=1))


def test_a_tape_is_kept_in_its_slot() -> None:
    run = Driver(Chain(step, turn, None, lambda i, x: (step(i, x), ("tape", x)), None), [MemoryStore()], START, SEED)
    run.position = Machine(3, None)
    run.execute(Record(0, 0))
    assert run.value == states(1)[1]
    assert run.stores[0].load(Key(0, 0, True)) == ("tape", START)
