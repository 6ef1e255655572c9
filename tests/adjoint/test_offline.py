"""Claims about `adjoint.offline`: optimal, as two other implementations count it, and as traces show."""

import tracemalloc
from time import perf_counter

import pytest
from checkpoint_schedules import Forward, MultistageCheckpointSchedule
from hypothesis import given
from hypothesis import strategies as st

from adjoint import (
    Advance,
    Binomial,
    Discard,
    Periodic,
    Restore,
    ScheduleError,
    Store,
    StoreAll,
    Turn,
    advances,
    replay,
)
from tests.adjoint.facts import FACTS, Fact, rows
from tests.oracles import shortest_split_reversal

CHAINS = [(s, n) for s in (1, 2, 3, 5, 8, 13) for n in (2, 3, 7, 13, 34, 100)]


@pytest.mark.parametrize("fact", FACTS, ids=str)
def test_joined_counts_equal_published_ones(fact: Fact):
    counts = replay(Binomial(fact.s, joined=True), fact.n, slots=fact.s)
    assert (counts.advances, counts.stores) == (fact.advances, fact.stores)
    # Every step but the last starts from a restored state.
    assert counts.restores == fact.n - 1


@pytest.mark.parametrize("row", [row for row in rows("optimal_evaluations.json") if row["n"] <= 120], ids=str)
def test_joined_and_split_cost_equal_the_table(row: dict):
    n, s = row["n"], row["s"]
    assert replay(Binomial(s, joined=True), n, slots=s).evaluations == row["joined_total"]
    assert replay(Binomial(s), n, slots=s).evaluations == row["split_total"]


@pytest.mark.parametrize("row", [row for row in rows("optimal_evaluations.json") if row["n"] > 120], ids=str)
def test_cost_of_long_chains_equals_the_table(row: dict):
    n, s = row["n"], row["s"]
    assert Binomial(s, joined=True).cost(n).evaluations == row["joined_total"]
    assert Binomial(s).cost(n).evaluations == row["split_total"]


@pytest.mark.parametrize(("s", "n"), [(1, 5), (2, 4), (2, 6), (2, 8), (3, 6), (3, 8), (4, 7)])
def test_no_split_reversal_at_all_is_cheaper(s: int, n: int):
    assert Binomial(s).cost(n).advances == shortest_split_reversal(n, s)


@given(slots=st.integers(1, 30), steps=st.integers(1, 200), joined=st.booleans())
def test_cost_names_the_slots_really_used(slots: int, steps: int, joined: bool):
    schedule = Binomial(slots, joined)
    assert replay(schedule, steps).peak_slots == schedule.cost(steps).slots <= slots


@pytest.mark.parametrize("row", rows("pyrevolve_counts.json"), ids=str)
def test_pyrevolve_advances_and_stores_as_often(row: dict):
    s, n = row["s"], row["n"]
    counts = replay(Binomial(s, joined=True), n)
    assert counts.advances == row["advances"]
    # Where every state fits, it stores the last one too; a working state that is turned at once needs no slot.
    assert counts.stores == row["stores"] or s >= n


@pytest.mark.parametrize(("s", "n"), [(s, n) for s, n in CHAINS if s < n])
def test_checkpoint_schedules_runs_as_many_steps(s: int, n: int):
    forward = [action for action in MultistageCheckpointSchedule(n, s, 0) if isinstance(action, Forward)]
    # Its Forward covers taped steps as well.
    assert replay(Binomial(s, joined=True), n).evaluations == sum(action.n1 - action.n0 for action in forward)


def test_joined_runs_straight_into_the_first_turn():
    assert list(Binomial(2, joined=True).actions(3)) == [
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
    assert not replay(Binomial(2, joined=True), 3).delivered


def test_one_joined_step_needs_no_slot():
    assert list(Binomial(1, joined=True).actions(1)) == [Turn(0)]


def test_one_slot_restarts_from_state_0_for_every_step():
    trace = [action for action in Binomial(1).actions(3) if isinstance(action, Advance | Turn)]
    assert trace == [Advance(0, 3), Advance(0, 2), Turn(2), Advance(0, 1), Turn(1), Turn(0)]


def test_slots_are_numbered_from_the_oldest_state():
    depth: dict[int, int] = {}
    for action in Binomial(5).actions(60):
        if isinstance(action, Store):
            depth[action.slot] = action.state
            older = [state for slot, state in depth.items() if slot < action.slot]
            assert all(state < action.state for state in older)
            assert len(older) == action.slot
        elif isinstance(action, Discard):
            del depth[action.slot]


@given(steps=st.integers(0, 60))
def test_store_all_redoes_nothing_but_the_taped_steps(steps: int):
    counts = replay(StoreAll(), steps, slots=steps)
    assert (counts.advances, counts.stores, counts.restores, counts.peak_slots) == (steps, steps, steps, steps)


def test_periodic_trace_is_as_described():
    assert list(Periodic(2).actions(3)) == [
        Store(0, 1),
        Advance(0, 2),
        Store(2, 2),
        Advance(2, 3),
        Restore(2, 2),
        Discard(2, 2),
        Turn(2),
        Restore(0, 1),
        Advance(0, 1),
        Store(1, 0),
        Restore(1, 0),
        Discard(1, 0),
        Turn(1),
        Restore(0, 1),
        Discard(0, 1),
        Turn(0),
    ]


@given(period=st.integers(1, 20), steps=st.integers(1, 150))
def test_periodic_runs_no_step_more_than_three_times(period: int, steps: int):
    cost = Periodic(period).cost(steps)
    assert cost.evaluations == 3 * steps - -(-steps // period)
    assert replay(Periodic(period), steps).peak_slots <= cost.slots == -(-steps // period) + period - 1


def test_the_first_action_of_a_long_chain_comes_at_once():
    def seconds() -> float:
        begun = perf_counter()
        next(Binomial(64).actions(10**6))
        return perf_counter() - begun

    # The least of several, as other processes may run.
    assert min(seconds() for _ in range(20)) < 1e-3


def test_the_actions_are_never_held_together():
    tracemalloc.start()
    count = sum(1 for _ in Binomial(16).actions(20_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count > 50_000
    assert peak < 50_000


@given(slots=st.integers(2, 20), steps=st.integers(2, 200))
def test_one_more_slot_never_costs_more(slots: int, steps: int):
    assert Binomial(slots).cost(steps).evaluations <= Binomial(slots - 1).cost(steps).evaluations


@given(slots=st.integers(1, 20), steps=st.integers(0, 200))
def test_split_costs_the_sweeps_of_one_more_step(slots: int, steps: int):
    extra = Binomial(slots).cost(steps).advances - Binomial(slots, joined=True).cost(steps).advances
    assert extra == advances(steps + 1, slots) - advances(steps, slots)


@given(slots=st.integers(1, 40), steps=st.integers(0, 300))
def test_the_shortest_period_that_fits_is_taken(slots: int, steps: int):
    fitting = [p for p in range(1, steps + 2) if Periodic(p).cost(steps).slots <= slots]
    if fitting:
        assert Periodic.for_budget(slots, 1, steps).period == min(fitting)
    else:
        with pytest.raises(ScheduleError, match=rf"^bytes: got {slots}, expected room for more than {slots} states"):
            Periodic.for_budget(slots, 1, steps)


def test_a_chain_that_does_not_fit_is_refused():
    with pytest.raises(ScheduleError, match=r"^steps: got 11, expected at most 10, as so many states fit"):
        StoreAll.for_budget(100, 10, steps=11)


@pytest.mark.parametrize("make", [Binomial, Periodic])
@pytest.mark.parametrize("given", [0, -3, 1.5, None], ids=repr)
def test_bad_arguments_are_refused_by_name(make, given):
    with pytest.raises(ScheduleError, match=r"^(slots|period): got .*, expected an integer >= 1; give"):
        make(given)
