"""Claims about `adjoint.hierarchy`: with ordered tiers nothing is faster, by exhaustive search and by recurrence."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjoint import HRevolve, Tier, replay
from adjoint.hierarchy import solved
from tests.tier_oracles import Rooms, cheapest_reversal, least_hierarchical_cost, least_tiered_cost


def as_tiers(rooms: Rooms) -> tuple[Tier, ...]:
    return tuple(Tier(f"tier {k}", *room) for k, room in enumerate(zip(*rooms, strict=True)))


def makespan(rooms: Rooms, n: int, step_cost: float = 1) -> float:
    """All evaluations, writes and reads of the joined schedule, as replay times them."""
    tiers = as_tiers(rooms)
    counts = replay(HRevolve(tiers, step_cost, joined=True), n, tiers=tiers, step_cost=step_cost, adjoint_cost=0)
    assert counts.makespan is not None
    return counts.makespan


@st.composite
def ordered_rooms(draw: st.DrawFn, most_tiers: int, most_slots: int) -> Rooms:
    count = draw(st.integers(1, most_tiers))
    costs = st.lists(st.sampled_from([0, 0.5, 1, 2, 3, 5, 10]), min_size=count, max_size=count).map(sorted)
    capacities = draw(st.lists(st.integers(1, most_slots), min_size=count, max_size=count))
    return Rooms(tuple(capacities), tuple(draw(costs)), tuple(draw(costs)))


SMALL = [
    Rooms((1, 1), (0, 1), (0, 1)),
    Rooms((1, 2), (0, 0.5), (0, 0.5)),
    Rooms((2, 1), (0, 3), (0, 0)),
    Rooms((1, 2), (1, 2), (0.5, 3)),
    Rooms((1, 1, 1), (0, 1, 2), (0, 0.5, 2)),
]


@pytest.mark.parametrize("rooms", SMALL, ids=repr)
@pytest.mark.parametrize("n", [5, 7])
def test_no_reversal_at_all_is_faster(rooms: Rooms, n: int):
    assert makespan(rooms, n) == cheapest_reversal([1] * n, rooms)


@pytest.mark.parametrize("rooms", SMALL, ids=repr)
def test_no_split_reversal_at_all_is_faster(rooms: Rooms):
    tiers = as_tiers(rooms)
    # The use of state n is a last step that costs nothing.
    searched = cheapest_reversal([1] * 6 + [0], rooms)
    assert replay(HRevolve(tiers), 6, tiers=tiers, adjoint_cost=0).makespan == searched


@given(rooms=ordered_rooms(most_tiers=2, most_slots=2), n=st.integers(1, 7), step_cost=st.sampled_from([0.5, 1, 3]))
@settings(max_examples=30, deadline=None)
def test_no_reversal_at_all_is_faster_anywhere(rooms: Rooms, n: int, step_cost: float):
    assert makespan(rooms, n, step_cost) == pytest.approx(cheapest_reversal([step_cost] * n, rooms))


@given(rooms=ordered_rooms(most_tiers=3, most_slots=3), n=st.integers(1, 16), step_cost=st.sampled_from([0.5, 1, 3]))
@settings(max_examples=40, deadline=None)
def test_older_states_in_slower_tiers_lose_nothing(rooms: Rooms, n: int, step_cost: float):
    assert makespan(rooms, n, step_cost) == pytest.approx(n * step_cost + least_tiered_cost(n, rooms, step_cost))


@given(rooms=ordered_rooms(most_tiers=3, most_slots=4), n=st.integers(60, 140), step_cost=st.sampled_from([0.5, 1, 3]))
@settings(max_examples=15, deadline=None)
def test_long_chains_equal_the_recurrence_that_tries_every_split(rooms: Rooms, n: int, step_cost: float):
    assert makespan(rooms, n, step_cost) == pytest.approx(n * step_cost + least_hierarchical_cost(n, rooms, step_cost))


def test_in_tiers_that_are_not_ordered_something_would_be_lost():
    rooms = Rooms((1, 2), (1, 0), (0, 0.5))
    assert cheapest_reversal([1] * 8, rooms) < cheapest_reversal([1] * 8, rooms._replace(writes=(1, 1)))
    assert least_tiered_cost(8, rooms, 1) == cheapest_reversal([1] * 8, rooms) - 8


@given(rooms=ordered_rooms(most_tiers=3, most_slots=4), n=st.integers(2, 40))
def test_the_tables_promise_what_the_actions_take(rooms: Rooms, n: int):
    levels = solved(as_tiers(rooms), 1, n)
    assert makespan(rooms, n) == pytest.approx(n + levels[-1].fresh[-1][n])


@given(rooms=ordered_rooms(most_tiers=2, most_slots=3), n=st.integers(1, 40))
def test_no_limit_is_a_limit_that_is_never_met(rooms: Rooms, n: int):
    *fast, last = as_tiers(rooms)
    unlimited = (*fast, Tier(last.name, None, last.write, last.read))
    roomy = (*fast, Tier(last.name, n, last.write, last.read))
    assert list(HRevolve(unlimited).actions(n)) == list(HRevolve(roomy).actions(n))


def test_a_limit_that_is_just_met_changes_nothing():
    fast, write = Tier("memory", 2), 3
    needed = HRevolve((fast, Tier("disk", None, write, write))).cost(60).traffic[1].slots
    times = []
    for slots in (needed, needed - 1):
        tiers = (fast, Tier("disk", slots, write, write))
        counts = replay(HRevolve(tiers), 60, tiers=tiers)
        times.append(counts.makespan)
        assert counts.traffic[1].slots <= slots
    assert times[0] < times[1]
