"""Claims about every schedule, of whatever kind: it is a value, it is valid, and it costs what it says."""

import pickle
from collections.abc import Callable
from itertools import islice, zip_longest
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoint import (
    Advance,
    Binomial,
    Blocks,
    Bounded,
    Cost,
    Discard,
    DiskRevolve,
    HRevolve,
    Mixed,
    Multistage,
    Online,
    Overlapped,
    Periodic,
    Record,
    Schedule,
    ScheduleError,
    Store,
    StoreAll,
    Tier,
    Traffic,
    TwoLevel,
    Weighted,
    advances,
    replay,
)
from tests.adjoint.strategies import rooms, schedules, split_schedules

NO_TRAFFIC = Traffic(slots=0, stores=0, restores=0)
TWO = (Tier("memory", 2), Tier("disk", 2, write=3, read=3))

EVERY = [
    Binomial(3),
    Binomial(3, joined=True),
    StoreAll(),
    Periodic(4),
    Online(3),
    Online(3, leaf=4),
    Online(0, leaf=40),
    Blocks(3, leaf=4),
    Mixed(3),
    Bounded(4, 200),
    Bounded(20, 200),
    Multistage(TWO),
    HRevolve(TWO),
    DiskRevolve(2, 3, 3),
    TwoLevel(6, 2),
    Overlapped(2, Tier("host", 3, write=3, read=3, buffers=2)),
    Overlapped(2, Tier("host", 3, write=3, read=3, buffers=2), online=True),
]
# A tier without limit may be the first one, too.
EVERY.append(HRevolve((Tier("memory", None), Tier("disk", 2, write=3, read=3))))


@given(schedule=schedules, steps=st.integers(0, 150))
def test_executed_counts_equal_the_cost(schedule: Schedule, steps: int):
    cost = schedule.cost(steps)
    counts = replay(schedule, steps, tiers=rooms(cost))
    assert (counts.advances, counts.turns, counts.stores) == (cost.advances, cost.turns, cost.stores)
    assert counts.evaluations == cost.evaluations
    assert cost.steps == cost.turns == steps
    assert counts.peak_slots <= cost.slots


@given(schedule=schedules, steps=st.integers(0, 150))
def test_executed_traffic_equals_the_cost(schedule: Schedule, steps: int):
    cost = schedule.cost(steps)
    if cost.traffic:
        assert sum(tier.slots for tier in cost.traffic) == cost.slots
        assert sum(tier.stores for tier in cost.traffic) == cost.stores
        # A tier that nothing was written to is not counted.
        for predicted, counted in zip_longest(cost.traffic, replay(schedule, steps).traffic, fillvalue=NO_TRAFFIC):
            assert (predicted.stores, predicted.restores) == (counted.stores, counted.restores)
            assert counted.slots <= predicted.slots


@given(schedule=split_schedules, steps=st.integers(0, 150))
def test_split_schedules_deliver_the_last_state_first(schedule: Schedule, steps: int):
    assert replay(schedule, steps).delivered


@given(schedule=split_schedules, steps=st.integers(1, 150))
def test_no_split_schedule_beats_the_optimum_of_its_slots(schedule: Schedule, steps: int):
    cost = schedule.cost(steps)
    assert cost.evaluations >= advances(steps + 1, cost.slots) + steps


@given(schedule=schedules, steps=st.integers(0, 150))
def test_nothing_is_left_in_a_slot_at_the_end(schedule: Schedule, steps: int):
    held: dict[tuple[int, int], int] = {}
    for action in schedule.actions(steps):
        match action:
            case Store(index, slot, tier) | Record(index, slot, tier):
                held[tier, slot] = index
            case Discard(_, slot, tier):
                del held[tier, slot]
            case _:
                pass
    assert held == {}


@given(schedule=schedules, steps=st.integers(0, 100))
def test_actions_are_the_same_every_time(schedule: Schedule, steps: int):
    assert list(schedule.actions(steps)) == list(schedule.actions(steps))


@given(schedule=schedules)
def test_schedules_compare_hash_and_pickle_as_values(schedule: Schedule):
    copy = pickle.loads(pickle.dumps(schedule))
    assert copy == schedule
    assert hash(copy) == hash(schedule)
    assert copy.cost(30) == schedule.cost(30)


@pytest.mark.parametrize("schedule", EVERY, ids=repr)
def test_two_iterators_do_not_disturb_each_other(schedule: Schedule):
    first, second = schedule.actions(20), schedule.actions(20)
    alternating = [(next(first), next(second)) for _ in range(30)]
    assert [one for one, _ in alternating] == [two for _, two in alternating] == list(islice(schedule.actions(20), 30))


@pytest.mark.parametrize("schedule", EVERY, ids=repr)
def test_a_loop_of_no_steps_has_no_turn(schedule: Schedule):
    assert list(schedule.actions(0)) == []
    cost = schedule.cost(0)
    assert cost == Cost(steps=0, advances=0, turns=0, stores=0, slots=0, traffic=cost.traffic)
    assert set(cost.traffic) <= {NO_TRAFFIC}


@pytest.mark.parametrize("schedule", EVERY, ids=repr)
@pytest.mark.parametrize("steps", [-1, 2.5, None], ids=repr)
def test_what_is_no_number_of_steps_is_refused_at_once(schedule: Schedule, steps):
    with pytest.raises(ScheduleError, match=r"^steps: got"):
        schedule.actions(steps)
    with pytest.raises(ScheduleError, match=r"^steps: got"):
        schedule.cost(steps)


@pytest.mark.parametrize("schedule", [Binomial(64), StoreAll(), Periodic(1000), Online(64)], ids=repr)
def test_actions_are_made_one_at_a_time(schedule: Schedule):
    first, second = islice(schedule.actions(10**9), 2)
    assert isinstance(first, Store)
    assert isinstance(second, Advance)


@pytest.mark.parametrize("schedule", [Binomial(2000), Binomial(2000, joined=True), Online(100), StoreAll()], ids=repr)
def test_depth_is_not_limited_by_recursion(schedule: Schedule):
    counts = replay(schedule, 5000)
    assert counts.evaluations == schedule.cost(5000).evaluations
    assert counts.turns == 5000


LONG: list[Schedule] = [
    Binomial(3),
    Online(3),
    Periodic(10**4),
    Online(8, leaf=100),
    Blocks(8, leaf=100),
    Bounded(8, 10**9),
    Multistage((Tier("memory", 8), Tier("disk", 8, write=3, read=3))),
    TwoLevel(10**4, 5),
    Overlapped(5, Tier("host", 10**4, write=3, read=3, buffers=2)),
    Overlapped(5, Tier("host", 64, write=3, read=3, buffers=2), online=True),
]


@pytest.mark.parametrize("schedule", LONG, ids=repr)
def test_cost_is_exact_where_nobody_could_run_it(schedule: Schedule):
    cost = schedule.cost(10**8)
    assert cost.turns == 10**8
    assert cost.evaluations >= advances(10**8 + 1, cost.slots) + 10**8


BUDGETS: list[Callable[[int], Schedule]] = [
    lambda bytes: Binomial.for_budget(bytes, 10),
    lambda bytes: StoreAll.for_budget(bytes, 10, steps=1),
    lambda bytes: Periodic.for_budget(bytes, 10, steps=1),
    lambda bytes: Online.for_budget(bytes, 10),
    lambda bytes: Blocks.for_budget(bytes + 20, 10, leaf=2),
    lambda bytes: Bounded.for_budget(bytes, 10, max_steps=9),
    lambda bytes: Mixed.for_budget(bytes, 10, tape_bytes=3),
    lambda bytes: Weighted.for_budget(bytes, 10, costs=[1]),
    lambda bytes: Multistage.for_budget(bytes, 10, slower=TWO[1]),
    lambda bytes: HRevolve.for_budget(bytes, 10, slower=TWO[1:]),
    lambda bytes: DiskRevolve.for_budget(bytes, 10, write=1, read=1),
    lambda bytes: TwoLevel.for_budget(bytes, 10, period=4),
    lambda bytes: Overlapped.for_budget(bytes + 20, 10, slow=Tier("host", 3, buffers=2)),
]


@pytest.mark.parametrize("make", BUDGETS)
def test_a_budget_is_filled_and_one_for_no_state_is_refused(make: Callable[[int], Schedule]):
    assert replay(make(10), 1).turns == 1
    assert make(29) == make(20)
    with pytest.raises(ScheduleError, match=r"^bytes: got"):
        make(9)


def test_the_interface_cannot_be_used_by_itself():
    abstract: Any = Schedule
    with pytest.raises(TypeError, match="abstract"):
        abstract()
