"""Claims about `adjoint.multitier`: never slower than the schedules of checkpoint_schedules, and as described."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoint import (
    Binomial,
    DiskRevolve,
    HRevolve,
    Multistage,
    Restore,
    Schedule,
    ScheduleError,
    Store,
    Tier,
    advances,
    replay,
)
from adjoint.multitier import moved
from tests.adjoint import peers
from tests.adjoint.peers import Costs, makespan

LENGTHS = (4, 9, 20, 35, 60)
CAPACITIES = ((1, 1), (2, 2), (3, 1), (2, 5), (4, 4))
TRANSFERS = ((0.5, 0.5), (2, 2), (1, 5), (10, 2))
STEPS = ((1, 1), (1, 3))
GRID = list(product(LENGTHS, CAPACITIES, TRANSFERS, STEPS))


def time_of(schedule: Schedule, tiers: tuple[Tier, ...], n: int, costs: Costs) -> float:
    counts = replay(schedule, n, tiers=tiers, step_cost=costs.step, adjoint_cost=costs.adjoint)
    assert counts.makespan is not None
    return counts.makespan


def test_the_grid_has_two_hundred_settings():
    assert len(GRID) == 200


@pytest.mark.parametrize(("n", "capacities", "transfer", "step"), GRID)
def test_checkpoint_schedules_is_never_faster(n: int, capacities, transfer, step):
    costs = Costs(*step, *transfer)
    memory, disk = capacities
    tiers = (Tier("memory", memory), Tier("disk", disk, *transfer))
    theirs = [
        makespan(peers.hrevolve(n, memory, disk, costs), costs),
        makespan(peers.corrected_hrevolve(n, memory, disk, costs), costs),
        makespan(peers.multistage(n, memory, disk), costs),
    ]
    assert time_of(HRevolve(tiers, costs.step, joined=True), tiers, n, costs) <= min(theirs)


@pytest.mark.parametrize(("n", "capacities", "transfer", "step"), GRID)
def test_checkpoint_schedules_is_never_faster_on_an_unlimited_disk(n: int, capacities, transfer, step):
    costs = Costs(*step, *transfer)
    write, read = transfer
    ours = DiskRevolve(capacities[0], write, read, costs.step, joined=True)
    theirs = [
        makespan(peers.disk_revolve(n, capacities[0], costs), costs),
        makespan(peers.periodic_disk_revolve(n, capacities[0], costs), costs),
    ]
    assert time_of(ours, ours.tiers, n, costs) <= min(theirs)


@pytest.mark.parametrize(("capacities", "transfer"), list(product(CAPACITIES, TRANSFERS)))
@pytest.mark.parametrize("n", [9, 60, 100])
def test_their_multistage_is_never_faster(n: int, capacities, transfer):
    costs = Costs(1, 1, *transfer)
    memory, disk = capacities
    tiers = (Tier("memory", memory), Tier("disk", disk, *transfer))
    theirs = makespan(peers.multistage(n, memory, disk), costs)
    assert time_of(Multistage(tiers, joined=True), tiers, n, costs) <= theirs


def test_their_swapped_arguments_cost_time():
    costs = Costs(step=1, adjoint=9, write=4, read=4)
    swapped = peers.hrevolve(40, 2, 3, costs)
    assert makespan(peers.corrected_hrevolve(40, 2, 3, costs), costs) < makespan(swapped, costs)


@given(n=st.integers(0, 60), fast=st.integers(1, 6), slow=st.integers(1, 6), write=st.sampled_from([0, 1, 9]))
def test_multistage_runs_the_steps_of_binomial(n: int, fast: int, slow: int, write: float):
    tiers = (Tier("memory", fast), Tier("disk", slow, write, 1))
    counts = replay(Multistage(tiers), n, tiers=tiers)
    assert counts.evaluations == Binomial(fast + slow).cost(n).evaluations


@given(n=st.integers(2, 60), fast=st.integers(1, 5), slow=st.integers(1, 5), write=st.integers(0, 3))
def test_multistage_gives_the_faster_tier_to_the_busiest_slots(n: int, fast: int, slow: int, write: int):
    tiers = (Tier("memory", fast), Tier("disk", slow, write, 1))
    cost = Multistage(tiers).cost(n)
    used = [0] * cost.slots
    for action in Binomial(fast + slow).actions(n):
        match action:
            case Store(_, slot):
                used[slot] += write
            case Restore(_, slot):
                used[slot] += 1
            case _:
                pass
    assert cost.traffic[1].stores * write + cost.traffic[1].restores == sum(sorted(used)[: max(cost.slots - fast, 0)])


@given(n=st.integers(0, 60), slots=st.integers(1, 8), joined=st.booleans())
def test_one_free_tier_is_binomial(n: int, slots: int, joined: bool):
    schedule = HRevolve((Tier("memory", slots),), joined=joined)
    assert schedule.cost(n).evaluations == Binomial(slots, joined).cost(n).evaluations


@given(n=st.integers(1, 60), fast=st.integers(1, 4), slow=st.integers(1, 4), write=st.integers(0, 6))
def test_weighing_transfers_is_never_slower_than_counting_steps(n: int, fast: int, slow: int, write: int):
    tiers = (Tier("memory", fast), Tier("disk", slow, write, write))
    costs = Costs(1, 1, write, write)
    assert time_of(HRevolve(tiers), tiers, n, costs) <= time_of(Multistage(tiers), tiers, n, costs)


@given(n=st.integers(1, 80), slots=st.integers(1, 4), write=st.integers(0, 6))
def test_disk_revolve_is_hrevolve_without_a_limit(n: int, slots: int, write: int):
    schedule = DiskRevolve(slots, write, write)
    assert list(schedule.actions(n)) == list(HRevolve(schedule.tiers).actions(n))


def test_a_disk_that_is_too_slow_is_left_alone():
    cost = DiskRevolve(3, write=10**6, read=10**6).cost(100)
    assert cost.traffic[1].stores == 0
    assert cost.advances == advances(101, 3)


def test_multistage_cost_is_exact_where_nobody_could_run_it():
    cost = Multistage((Tier("memory", 32), Tier("disk", 32, write=5, read=5))).cost(10**8)
    assert cost.evaluations == advances(10**8 + 1, 64) + 10**8
    assert sum(tier.stores for tier in cost.traffic) == cost.stores


def test_a_plan_for_two_thousand_steps_is_made_at_all():
    tiers = (Tier("memory", 10), Tier("disk", 10, write=2, read=2))
    assert HRevolve(tiers).cost(2000).turns == 2000


def test_moved_actions_keep_their_order():
    inner = list(Binomial(2, joined=True).actions(4))
    outer = list(moved(iter(inner), 7, lambda slot: (1, slot + 3)))
    assert [type(action) for action in outer] == [type(action) for action in inner]
    assert outer[0] == Store(7, 3, tier=1)


@pytest.mark.parametrize("make", [Multistage.for_budget, HRevolve.for_budget])
def test_a_budget_for_no_state_is_refused(make):
    slower = Tier("disk", 5, 1, 1)
    with pytest.raises(ScheduleError, match=r"^bytes: got 9, expected at least 10"):
        make(9, 10, slower=slower if make == Multistage.for_budget else [slower])
