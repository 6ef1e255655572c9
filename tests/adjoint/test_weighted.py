"""Claims about `adjoint.weighted`: optimal where every split is tried, and `Binomial` where all steps cost the same."""

from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoint import Binomial, ScheduleError, Tier, Weighted, replay
from tests.tier_oracles import Rooms, cheapest_reversal, least_weighted_work

costs = st.lists(st.one_of(st.sampled_from([0, 1, 1, 50]), st.integers(0, 9)), min_size=1, max_size=16)


@given(costs=costs, slots=st.integers(1, 6))
def test_work_equals_the_recurrence_that_tries_every_split(costs: list[int], slots: int):
    n = len(costs)
    assert Weighted(slots, tuple(costs), joined=True).work(n) == least_weighted_work(costs, slots)
    assert Weighted(slots, tuple(costs)).work(n) == least_weighted_work([*costs, 0], slots)


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("given", [(3, 1, 4, 1, 5, 9), (9, 0, 0, 1, 7), (1, 1, 20, 1, 1, 1, 2)], ids=repr)
def test_no_reversal_at_all_is_cheaper(given: tuple[int, ...], slots: int):
    searched = cheapest_reversal(given, Rooms((slots,), (0,), (0,)))
    assert Weighted(slots, given, joined=True).work(len(given)) + sum(given) == searched


@given(costs=costs, slots=st.integers(1, 6), joined=st.booleans())
def test_executed_steps_cost_the_work(costs: list[int], slots: int, joined: bool):
    schedule = Weighted(slots, tuple(costs), joined)
    counts = replay(schedule, len(costs), tiers=[Tier("memory", slots)], step_cost=costs, adjoint_cost=0)
    assert counts.makespan == schedule.work(len(costs)) + sum(costs)


@given(steps=st.integers(1, 40), slots=st.integers(1, 8), joined=st.booleans())
def test_equal_steps_are_binomial(steps: int, slots: int, joined: bool):
    weighted = Weighted(slots, (1,) * steps, joined)
    assert weighted.cost(steps).advances == weighted.work(steps) == Binomial(slots, joined).cost(steps).advances


def test_a_dear_step_is_run_no_more_than_it_must():
    dear = (1, 1, 1, 1, 1000, 1, 1, 1, 1)
    assert Weighted(2, dear).work(9) < 1000 + 1000
    binomial = replay(Binomial(2), 9, tiers=[Tier("memory", 2)], step_cost=dear, adjoint_cost=0)
    assert binomial.makespan is not None
    assert binomial.makespan > 1000 + Weighted(2, dear).work(9)


@pytest.mark.parametrize("steps", [0, 2, 4])
def test_another_number_of_steps_is_refused(steps: int):
    schedule = Weighted(2, (1, 2, 3))
    for ask in (schedule.actions, schedule.cost, schedule.work):
        with pytest.raises(ScheduleError, match=rf"^steps: got {steps}, expected 3, the number of the costs"):
            ask(steps)


def test_no_costs_are_no_steps():
    assert list(Weighted(2, ()).actions(0)) == []
    assert Weighted(2, ()).work(0) == 0


@pytest.mark.parametrize("given", [-1, nan, "1", None], ids=repr)
def test_a_bad_cost_is_named_by_its_place(given):
    with pytest.raises(ScheduleError, match=r"^costs\[1\]: got .*, expected a finite number >= 0"):
        Weighted(2, (1, given, 1))


@pytest.mark.parametrize("given", [3, None, "abc"], ids=repr)
def test_what_are_no_costs_is_refused(given):
    with pytest.raises(ScheduleError, match=r"^costs: got .*, expected a sequence of numbers"):
        Weighted(2, given)
