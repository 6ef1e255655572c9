"""Claims about the schedule inside compiled loops: `dynloop.on_jax.placement` computes what `adjoint` does."""

from bisect import bisect_left
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import adjoint
from dynloop.checkpoints import Layout
from dynloop.on_jax import placement
from dynloop.on_jax.placement import NEVER, UNREACHABLE, Binomials, store_events

SLOTS = [1, 2, 3, 4, 5, 6, 7, 8, 16, 33, 64]
# Every number of steps up to where plans repeat their pattern, then three around each power of two.
FEW = [*range(1, 301)]
MANY = [n for k in range(9, 25) for n in (2**k - 1, 2**k, 2**k + 1)]


class Stack(NamedTuple):
    """What a reverse sweep needs to know, with everything past the top left out."""

    states: list[int]
    slots: list[int]
    levels: list[int]
    source: int
    source_slot: int


def held(slots: int, n: int) -> dict[int, int]:
    """State -> slot when the loop has stopped after n blocks, from adjoint's table."""
    return dict(adjoint.store_table(slots).held(n))


def stored(slots: int, n: int) -> np.ndarray:
    """The same as the compiled loop has it: the state in each row, and nothing in the working row."""
    states = np.full(slots + 1, NEVER, np.int32)
    for state, slot in held(slots, n).items():
        states[slot] = state
    return states


def cost(slots: int, n: int) -> int:
    return adjoint.plan(sorted(held(slots, n)), n, slots).advances


def expected_stack(slots: int, n: int, end: int | None = None) -> Stack:
    """By `adjoint.plan`, for the first `end` of n blocks (by default all of them)."""
    end = n if end is None else end
    places = {state: slot for state, slot in held(slots, n).items() if state < end}
    plan = adjoint.plan(sorted(places), end, slots)
    gaps = zip(plan.kept, [*plan.kept[1:], end], strict=True)
    # With one slot left a gap can need more sweeps than the table has columns, and then no one reads how many.
    columns = Binomials(slots).table.shape[1]
    levels = [min(adjoint.repetition(stop - start, slots - rank), columns) for rank, (start, stop) in enumerate(gaps)]
    return Stack(
        list(plan.kept), [places[state] for state in plan.kept], levels, plan.sweep_from, places[plan.sweep_from]
    )


@cache
def stack_of(layout: Layout) -> Callable[..., placement.Stack]:
    """The library's function, compiled once for each layout."""
    return jax.jit(lambda stored, end: placement.stack_of(layout, stored, end))


def found_stack(slots: int, n: int, end: int | None = None, *, leaf: int = 0) -> Stack:
    end = n if end is None else end
    stack = jax.device_get(stack_of(Layout(slots, leaf))(stored(slots, n), np.int32(end)))
    top, source = int(stack.top) + 1, int(stack.source)
    assert sorted(stack.rows.tolist()) == list(range(slots + 1)), "every row has one place on the stack"
    states, rows, levels = (values[:top].tolist() for values in (stack.states, stack.rows, stack.levels))
    return Stack(states, rows, levels, int(stack.states[source]), int(stack.rows[source]))


@pytest.mark.parametrize("slots", SLOTS)
def test_the_plan_equals_adjoint(slots: int):
    assert [found_stack(slots, n) for n in FEW] == [expected_stack(slots, n) for n in FEW]


@pytest.mark.parametrize("slots", SLOTS)
def test_the_plan_equals_adjoint_for_long_loops(slots: int):
    lengths = [n for n in MANY if cost(slots, n) < UNREACHABLE]
    assert len(lengths) > 5
    assert [found_stack(slots, n) for n in lengths] == [expected_stack(slots, n) for n in lengths]


@pytest.mark.parametrize("slots", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("leaf", [2, 7])
def test_the_plan_of_the_blocks_before_the_leaf_equals_adjoint(slots: int, leaf: int):
    # The leaf rows hold the last states, so what is planned ends one block before the newest one, or at it.
    cases = [(n, end) for n in FEW for end in (n - 1, n) if end > 0]
    found = [found_stack(slots, n, end, leaf=leaf) for n, end in cases]
    assert found == [expected_stack(slots, n, end) for n, end in cases]


def is_legal(stack: Stack, slots: int, n: int) -> bool:
    """Whether the stack holds stored states only, state 0 among them, each in its slot, and starts from one of them."""
    places = held(slots, n)
    return (
        stack.states[0] == 0
        and stack.states == sorted(set(stack.states) & set(places))
        and stack.slots == [places[state] for state in stack.states]
        and stack.states[-1] <= stack.source < n
        and stack.source_slot == places[stack.source]
    )


@pytest.mark.parametrize("slots", SLOTS)
def test_a_plan_past_the_saturated_costs_is_legal(slots: int):
    lengths = [n for k in range(25, 31) for n in (2**k, 2**k + 12345) if cost(slots, n) >= UNREACHABLE]
    assert [n for n in [*lengths, 2**31 - 2] if not is_legal(found_stack(slots, n), slots, n)] == []


def test_an_illegal_stack_is_caught():
    places = held(3, 10)
    states = sorted(places)
    good = Stack(states, [places[state] for state in states], [1, 1, 1], states[-1], places[states[-1]])
    assert is_legal(good, 3, 10)
    assert not is_legal(good._replace(slots=good.slots[::-1]), 3, 10)
    assert not is_legal(good._replace(states=[0, 3, 99]), 3, 10)
    assert not is_legal(good._replace(source_slot=99), 3, 10)


@pytest.mark.parametrize("slots", SLOTS)
def test_nothing_stored_is_nothing_to_reverse(slots: int):
    nothing = np.full(slots + 1, NEVER, np.int32)
    assert int(stack_of(Layout(slots, 0))(nothing, np.int32(0)).top) == -1


@pytest.mark.parametrize("slots", [1, 2, 5, 64])
def test_a_complete_layout_keeps_every_block(slots: int):
    layout, place = Layout(slots, 10, is_complete=True), np.arange(slots + 1)
    cases = [np.where(place < n, place, NEVER).astype(np.int32) for n in range(1, slots + 1)]
    found = [jax.device_get(stack_of(layout)(states, np.int32(n))) for n, states in enumerate(cases, 1)]
    assert [(stack.top, stack.source) for stack in found] == [(n - 1, n - 1) for n in range(1, slots + 1)]
    assert all(stack.rows.tolist() == place.tolist() for stack in found)
    assert all(np.array_equal(stack.states, states) for stack, states in zip(found, cases, strict=True))


# ---- the integer functions, for a gap of each rank: with m = slots, slots - 1 .. 1 slots

LENGTHS = np.array([*range(700), *MANY], np.int32)


class Gaps(NamedTuple):
    """Lengths of gaps by rank, [lengths, slots], and adjoint's exact answers for them."""

    lengths: np.ndarray
    levels: np.ndarray
    slots: np.ndarray
    is_covered: np.ndarray

    def exact(self, function: Callable[[int, int], int]) -> np.ndarray:
        pairs = zip(self.lengths.ravel().tolist(), self.slots.ravel().tolist(), strict=True)
        return np.array([function(n, m) for n, m in pairs], object).reshape(self.lengths.shape)


@cache
def gaps(slots: int) -> Gaps:
    m = np.broadcast_to(slots - np.arange(slots, dtype=np.int32), (len(LENGTHS), slots))
    # Every length at a few ranks is enough where there are many.
    m = m[:, sorted({0, 1, 2, slots // 2, slots - 2, slots - 1} & set(range(slots)))]
    lengths = np.broadcast_to(LENGTHS[:, None], m.shape)
    columns = Binomials(slots).table.shape[1]
    empty = Gaps(lengths, lengths, m, lengths)
    levels = np.minimum(empty.exact(adjoint.repetition).astype(float), columns).astype(np.int32)
    return Gaps(lengths, levels, m, levels < columns)


def of_gaps(slots: int, function: Callable[..., Any]) -> np.ndarray:
    """A function of a length, a number of slots and their level, for all the gaps."""
    g = gaps(slots)
    return np.asarray(jax.jit(jax.vmap(jax.vmap(function)))(g.lengths, g.slots, g.levels))


@pytest.mark.parametrize("slots", SLOTS)
def test_levels_are_adjoints_repetition(slots: int):
    found = of_gaps(slots, lambda n, m, t: Binomials(slots).levels(n[None], m)[0])
    assert np.array_equal(found, gaps(slots).levels)


@pytest.mark.parametrize("slots", SLOTS)
def test_advances_equal_adjoint_and_saturate(slots: int):
    exact = np.minimum(gaps(slots).exact(adjoint.advances), UNREACHABLE)
    expected = np.where(gaps(slots).is_covered, exact, UNREACHABLE)
    assert np.array_equal(of_gaps(slots, Binomials(slots).advances), expected)


@pytest.mark.parametrize("slots", SLOTS)
def test_last_offsets_end_the_optimal_interval(slots: int):
    # They are asked for gaps with more states than slots only; the others are not swept.
    g = gaps(slots)
    is_meant = g.is_covered & (g.slots + 1 < g.lengths)
    expected = g.exact(lambda n, m: adjoint.first_offset_range(n, m)[1])
    assert np.array_equal(of_gaps(slots, Binomials(slots).last_offset)[is_meant], expected[is_meant])


@pytest.mark.parametrize("slots", SLOTS)
@pytest.mark.parametrize("extra", [0, 1], ids=["least level", "carried level"])
def test_first_offset_equals_adjoint(slots: int, extra: int):
    g, t = gaps(slots), gaps(slots).levels + np.int32(extra)
    # A carried level may be one more than the least only where the gap is beta(m, t - 1) long.
    is_meant = g.is_covered & (g.lengths >= 2)
    if extra:
        is_meant &= g.lengths == g.exact(lambda n, m: adjoint.beta(m, adjoint.repetition(n, m)))
    lengths, m, t = (x[is_meant] for x in (g.lengths, g.slots, t))
    found = np.asarray(jax.jit(jax.vmap(Binomials(slots).first_offset))(lengths, m, t))
    cases = zip(lengths.tolist(), m.tolist(), t.tolist(), strict=True)
    assert found.tolist() == [adjoint.first_offset(*case) for case in cases]


@pytest.mark.parametrize("slots", [1, 2, 5, 8, 64])
@pytest.mark.parametrize("leaf", [0, 3, 100])
@pytest.mark.parametrize("bound", [None, 1, 100, 5000])
def test_store_events_are_adjoints_table_in_steps(slots: int, leaf: int, bound: int | None):
    events, table = store_events(Layout(slots, leaf), bound), adjoint.store_table(slots)
    assert {x.dtype for x in events} == {np.dtype(np.int32)}
    assert events.steps[-1] == NEVER
    steps = [min(state * max(leaf, 1), NEVER) for state in table.states]
    wanted = bisect_left(steps, NEVER if bound is None else bound)
    assert events.steps[:wanted].tolist() == steps[:wanted]
    assert events.slots[:wanted].tolist() == list(table.slots[:wanted])
    assert events.freed[:wanted].tolist() == [list(freed) for freed in table.freed[:wanted]]
