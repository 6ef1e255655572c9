"""Claims about `adjoint.online`: near the optimum for every length, and exactly as described."""

from math import exp, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjoint import Advance, Binomial, Discard, Online, Restore, ScheduleError, Store, StoreAll, Turn, plan, replay
from adjoint.binomial import advances
from tests.oracles import held_after, stores_of_sparse_rule

# The greatest ratio to the split optimum that is accepted, by slots.
WORST = {2: 1.11, 4: 1.06, 8: 1.045, 16: 1.03, 32: 1.025, 64: 1.02}


def log_spaced(first: int, last: int, count: int) -> list[int]:
    return sorted({round(exp(log(first) + i * log(last / first) / (count - 1))) for i in range(count)})


def ratios(slots: int, lengths: list[int]) -> list[float]:
    """Evaluations relative to the least possible when n is known: P(n + 1, s) + n."""
    return [Online(slots).cost(n).evaluations / (advances(n + 1, slots) + n) for n in lengths]


@pytest.mark.parametrize("slots", [8, 16, 32, 64])
def test_the_mean_overhead_is_below_one_percent(slots: int):
    values = ratios(slots, log_spaced(slots + 1, 20_000, 120))
    assert min(values) >= 1
    assert exp(sum(map(log, values)) / len(values)) < 1.01


@pytest.mark.parametrize(("slots", "worst"), list(WORST.items()))
def test_the_worst_overhead_on_long_loops_is_small(slots: int, worst: float):
    assert 1 <= max(ratios(slots, log_spaced(slots + 1, 100_000, 300))) < worst


@pytest.mark.parametrize(("slots", "worst"), WORST.items())
def test_the_worst_overhead_on_short_loops_is_small(slots: int, worst: float):
    assert 1 <= max(ratios(slots, list(range(1, 3001, 7 if slots < 16 else 37)))) < worst


@pytest.mark.full
@pytest.mark.parametrize(("slots", "worst"), WORST.items())
def test_the_worst_overhead_on_every_short_loop_is_small(slots: int, worst: float):
    assert 1 <= max(ratios(slots, list(range(1, 3001)))) < worst


@given(slots=st.integers(1, 30), steps=st.integers(1, 400))
def test_evaluations_are_two_passes_and_the_plan(slots: int, steps: int):
    stored = sorted(held_after(stores_of_sparse_rule(slots, steps), steps).values())
    chosen = plan(stored, steps, slots)
    counts = replay(Online(slots), steps, slots=slots)
    assert counts.evaluations == 2 * steps + chosen.advances


@settings(max_examples=40)
@given(slots=st.integers(5, 24), steps=st.integers(1000, 5000), leaf=st.integers(0, 3))
def test_executed_counts_equal_the_cost_where_states_were_dropped(slots: int, steps: int, leaf: int):
    schedule = Online(slots, leaf)
    cost = schedule.cost(steps)
    counts = replay(schedule, steps, slots=cost.slots)
    assert (counts.advances, counts.turns, counts.stores) == (cost.advances, cost.turns, cost.stores)


@pytest.mark.parametrize(("slots", "steps"), [(5, 4400), (8, 3610), (16, 2900)])
def test_states_in_the_way_are_discarded_with_the_store(slots: int, steps: int):
    held: dict[int, int] = {}
    discards = 0
    for action in Online(slots).actions(steps):
        if isinstance(action, Store):
            held[action.slot] = action.state
        elif isinstance(action, Discard):
            assert held.pop(action.slot) == action.state
            discards += 1
        elif isinstance(action, Advance) and action.stop == steps:
            break
    assert discards > 0
    assert held == held_after(stores_of_sparse_rule(slots, steps), steps)


@given(slots=st.integers(1, 30), steps=st.integers(0, 300))
def test_the_forward_pass_does_not_know_the_number_of_steps(slots: int, steps: int):
    def forward(n: int) -> list[tuple[int, int]]:
        stores: list[tuple[int, int]] = []
        for action in Online(slots).actions(n):
            if isinstance(action, Store):
                stores.append((action.state, action.slot))
            elif action == Advance(stores[-1][0], n):
                return stores
        return stores

    longer = forward(2 * steps + 1)
    assert forward(steps) == [(state, slot) for state, slot in longer if state < steps]


@pytest.mark.parametrize("slots", [3, 8, 40])
def test_short_loops_keep_every_state(slots: int):
    assert list(Online(slots).actions(slots)) == list(StoreAll().actions(slots))


@pytest.mark.parametrize("steps", [1, 2, 7, 30])
def test_one_slot_is_as_good_as_knowing_the_length(steps: int):
    assert Online(1).cost(steps).evaluations == Binomial(1).cost(steps).evaluations


def test_the_first_sweep_starts_from_a_dropped_state():
    actions = list(Online(3).actions(18))
    backward = actions[actions.index(Advance(13, 18)) + 1 :]
    # State 9 is kept and 13 dropped, but the first checkpoint may lie beyond it: the sweep starts from 13.
    assert [action for action in backward if not isinstance(action, Store | Discard)][:3] == [
        Restore(13, 2),
        Advance(13, 14),
        Advance(14, 17),
    ]


@given(leaf=st.integers(1, 12), slots=st.integers(1, 6), steps=st.integers(0, 150))
def test_the_ring_receives_every_state_of_the_forward_pass(leaf: int, slots: int, steps: int):
    ring: list[int] = []
    for action in Online(slots, leaf).actions(steps):
        if isinstance(action, Turn):
            break
        if isinstance(action, Store) and action.slot >= slots:
            assert action.slot == slots + action.state % leaf
            ring.append(action.state)
    assert ring == list(range(steps))


@given(leaf=st.integers(1, 12), slots=st.integers(1, 6), steps=st.integers(1, 150))
def test_slots_hold_block_starts_only(leaf: int, slots: int, steps: int):
    places = [action for action in Online(slots, leaf).actions(steps) if isinstance(action, Store)]
    assert all(action.state % leaf == 0 for action in places if action.slot < slots)
    assert all(action.slot < slots + leaf for action in places)


@given(leaf=st.integers(1, 12), slots=st.integers(1, 6), steps=st.integers(0, 150))
def test_steps_turn_from_the_ring(leaf: int, slots: int, steps: int):
    actions = list(Online(slots, leaf).actions(steps))
    for position, action in enumerate(actions):
        if isinstance(action, Turn):
            slot = slots + action.step % leaf
            assert actions[position - 2 : position] == [Restore(action.step, slot), Discard(action.step, slot)]


@given(leaf=st.integers(1, 12), slots=st.integers(1, 6), steps=st.integers(0, 150))
def test_the_newest_states_are_turned_without_redoing_anything(leaf: int, slots: int, steps: int):
    turned = 0
    for action in Online(slots, leaf).actions(steps):
        if turned and isinstance(action, Advance):
            break
        turned += isinstance(action, Turn)
    assert turned >= min(leaf, steps)


@given(leaf=st.integers(1, 12), slots=st.integers(1, 6), steps=st.integers(0, 200))
def test_a_leaf_costs_its_plan_over_blocks(leaf: int, slots: int, steps: int):
    begun, earlier = -(-steps // leaf), max(steps - leaf, 0)
    whole = -(-earlier // leaf)
    stored = sorted(held_after(stores_of_sparse_rule(slots, begun), begun).values())
    again = plan([block for block in stored if block < whole], whole, slots).advances if whole else 0
    assert Online(slots, leaf).cost(steps).evaluations == 2 * steps + leaf * again + earlier - whole


@pytest.mark.parametrize("steps", [0, 1, 9, 10])
def test_a_leaf_as_long_as_the_loop_needs_no_slot(steps: int):
    counts = replay(Online(0, leaf=10), steps, slots=10)
    assert counts.evaluations == 2 * steps
    assert Online(0, leaf=10).cost(steps).evaluations == 2 * steps


@pytest.mark.parametrize("question", [Online(0, leaf=10).actions, Online(0, leaf=10).cost])
def test_a_longer_loop_without_slots_is_refused_at_once(question):
    with pytest.raises(ScheduleError, match=r"^steps: got 11, expected at most leaf = 10 without slots"):
        question(11)


@pytest.mark.parametrize("question", [Online(2).actions, Online(2).cost])
def test_more_steps_than_an_int32_counts_are_refused(question):
    with pytest.raises(ScheduleError, match=r"^steps: got"):
        question(2**31)


@pytest.mark.parametrize(
    ("slots", "leaf", "name"), [(0, 0, "slots"), (-1, 3, "slots"), (3, -1, "leaf"), (2.0, 0, "slots")]
)
def test_bad_arguments_are_refused_by_name(slots, leaf, name: str):
    with pytest.raises(ScheduleError, match=rf"^{name}: got"):
        Online(slots, leaf)
