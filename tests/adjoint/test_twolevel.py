"""Claims about `adjoint.twolevel`: blocks are read once, and transfers beside the steps cost no time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoint import (
    Advance,
    Binomial,
    Discard,
    Overlapped,
    Prefetch,
    Restore,
    ScheduleError,
    Store,
    Tier,
    Turn,
    TwoLevel,
    advances,
    replay,
)
from adjoint.twolevel import prefetched


def host(slots: int | None = None, cost: float = 5, buffers: int = 2) -> Tier:
    return Tier("host", slots, write=cost, read=cost, buffers=buffers)


def makespan(schedule: Overlapped, n: int, adjoint_cost: float = 2) -> float:
    counts = replay(schedule, n, tiers=schedule.tiers, step_cost=schedule.step_cost, adjoint_cost=adjoint_cost)
    assert counts.makespan is not None
    return counts.makespan


def test_trace_is_as_described():
    assert list(TwoLevel(3, slots=2).actions(4)) == [
        Store(0, 0, tier=1),
        Advance(0, 3),
        Store(3, 1, tier=1),
        Advance(3, 4),
        Restore(3, 1, tier=1),
        Discard(3, 1, tier=1),
        Turn(3),
        Restore(0, 0, tier=1),
        Discard(0, 0, tier=1),
        Store(0, 0),
        Advance(0, 1),
        Store(1, 1),
        Advance(1, 2),
        Turn(2),
        Restore(1, 1),
        Discard(1, 1),
        Turn(1),
        Restore(0, 0),
        Discard(0, 0),
        Turn(0),
    ]


@given(n=st.integers(1, 150), period=st.integers(1, 20), slots=st.integers(1, 6))
def test_blocks_are_binomial_and_read_once(n: int, period: int, slots: int):
    counts = replay(TwoLevel(period, slots), n)
    lengths = [min(period, n - start) for start in range(0, n, period)]
    assert counts.advances == n + sum(advances(length, slots) for length in lengths)
    assert counts.traffic[-1].stores == counts.traffic[-1].restores == len(lengths)


@given(period=st.integers(1, 9), slots=st.integers(1, 4), n=st.integers(0, 50), more=st.integers(1, 50))
def test_the_forward_pass_does_not_know_the_number_of_steps(period: int, slots: int, n: int, more: int):
    def stores(steps: int) -> list[Store]:
        return [
            action for action in TwoLevel(period, slots).actions(steps) if isinstance(action, Store) and action.tier
        ]

    assert [store for store in stores(n + more) if store.state < n] == stores(n)


# The published model: n = 2000 steps, an adjoint of two steps' cost, eight states in memory, buffers counted.
def test_a_transfer_of_five_steps_is_hidden():
    schedule = Overlapped(6, host(cost=5))
    assert schedule.period(2000) == 5
    # Each block of 5 steps is run again but for its last one; only the first read waits.
    assert makespan(schedule, 2000) == 2000 + 400 * 4 + 3 * 2000 + 5
    assert Binomial(8).cost(2000).evaluations + 2 * 2000 == 16004


@pytest.mark.parametrize(("slots", "again"), [(8, 30), (7, 31), (6, 32)])
def test_a_transfer_of_twenty_steps_is_hidden(slots: int, again: int):
    assert makespan(Overlapped(slots, host(cost=20)), 2000) == 2000 + 100 * again + 3 * 2000 + 20


@pytest.mark.parametrize("online", [False, True])
@given(n=st.integers(1, 300), cost=st.sampled_from([0, 0.5, 3, 8]), slots=st.integers(1, 6))
def test_transfers_cost_time_only_where_the_reversal_begins(online: bool, n: int, cost: float, slots: int):
    schedule = Overlapped(slots, host(cost=cost), online=online)
    evaluations = schedule.cost(n).evaluations
    # The first read waits for the last write, and the last block may be too short to hide the second one.
    assert evaluations + 2 * n <= makespan(schedule, n) <= evaluations + 2 * n + 3 * cost


def test_without_announcements_transfers_cost_time():
    schedule = Overlapped(6, host(cost=5))

    class Silent:
        def actions(self, steps: int):
            return (action for action in schedule.actions(steps) if not isinstance(action, Prefetch))

    silent = replay(Silent(), 2000, tiers=schedule.tiers, adjoint_cost=2).makespan
    assert silent == makespan(schedule, 2000) + 399 * 5


@given(n=st.integers(0, 200), slots=st.integers(1, 5), room=st.integers(1, 12), online=st.booleans())
def test_the_slow_tier_never_overflows(n: int, slots: int, room: int, online: bool):
    schedule = Overlapped(slots, host(room, cost=4), online=online)
    counts = replay(schedule, n, tiers=schedule.tiers)
    assert counts.evaluations == schedule.cost(n).evaluations
    assert counts.delivered


def test_a_known_number_of_steps_makes_blocks_longer_where_slots_are_few():
    assert Overlapped(4, host(10, cost=3)).period(100) == 10
    assert Overlapped(4, host(10, cost=3), online=True).period(100) == 3
    assert Overlapped(4, host(10, cost=3), step_cost=0.5).period(10) == 6


def test_a_state_is_announced_once_it_has_been_stored():
    script = [Restore(2, 0, 1), Turn(2), Restore(0, 1, 1), Advance(0, 1), Store(1, 0, 1), Turn(1), Restore(1, 0, 1)]
    announced = list(prefetched(iter(script), tier=1))
    assert announced == [*script[:1], Prefetch(0, 1, 1), *script[1:5], Prefetch(1, 0, 1), *script[5:]]


def test_nothing_is_announced_right_before_it_is_restored():
    script = [Restore(2, 0, 1), Restore(0, 1, 1), Store(0, 0, 1), Restore(0, 0, 1)]
    assert list(prefetched(iter(script), tier=1)) == script


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"slots": 0}, "^slots: got 0"),
        ({"slow": Tier("host", 5)}, "^slow: got .*, expected an adjoint.Tier with at least one buffer"),
        ({"slow": 5}, "^slow: got 5"),
        ({"step_cost": 0}, "^step_cost: got 0, expected a finite number > 0; steps that take no time"),
        ({"step_cost": -1}, "^step_cost: got -1, expected a finite number >= 0"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused_by_name(arguments, words: str):
    with pytest.raises(ScheduleError, match=words):
        Overlapped(**{"slots": 3, "slow": host(), **arguments})


@pytest.mark.parametrize(("name", "given"), [("period", 0), ("slots", 0), ("period", 1.5)])
def test_two_levels_refuse_by_name(name: str, given):
    with pytest.raises(ScheduleError, match=rf"^{name}: got"):
        TwoLevel(**{"period": 3, "slots": 3, name: given})


def test_a_budget_leaves_room_for_the_buffers():
    assert Overlapped.for_budget(100, 10, host(buffers=2)).slots == 8
    with pytest.raises(ScheduleError, match=r"^bytes: got 25, expected at least 30"):
        Overlapped.for_budget(25, 10, host(buffers=2))
