"""Claims about `adjoint.reverse`: any schedule, driven with any kind of state, gives the unrolled loop's adjoint."""

import ctypes
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoint import (
    AdjointError,
    Advance,
    Apply,
    Binomial,
    InvariantError,
    MemoryStore,
    Mixed,
    Online,
    Periodic,
    Record,
    Schedule,
    ScheduleError,
    Span,
    StepError,
    Store,
    StoreAll,
    Turn,
    TwoLevel,
    forward,
    resume,
    reverse,
)
from tests.adjoint.chains import SEED, START, State, TwoTiers, apply, record, states, step, turn, unrolled
from tests.adjoint.strategies import schedules, split_schedules

online = st.one_of(
    st.builds(TwoLevel, st.integers(1, 9), st.integers(1, 4)),
    st.builds(Online, st.integers(1, 8)),
    st.builds(Online, st.integers(1, 8), leaf=st.integers(1, 10)),
    st.builds(Periodic, st.integers(1, 9)),
    st.just(StoreAll()),
)


@given(schedule=schedules, steps=st.integers(0, 80))
def test_adjoint_equals_unrolled_and_costs_what_was_predicted(schedule: Schedule, steps: int) -> None:
    result = reverse(schedule, steps, step, turn, START, SEED, record=record, apply=apply)
    last, cotangent = unrolled(steps)
    cost = schedule.cost(steps)
    assert result.cotangent == cotangent
    assert result.state in (last, None)
    assert (result.evaluations, result.stores, result.turns) == (cost.evaluations, cost.stores, steps)
    assert result.recomputed == 0


@given(schedule=split_schedules, steps=st.integers(0, 60))
def test_cotangent_may_be_made_from_the_last_state(schedule: Schedule, steps: int) -> None:
    last, _ = unrolled(steps)
    seed = lambda state: (state[0], 2 * state[1])
    result = reverse(schedule, steps, step, turn, START, seed, record=record, apply=apply)
    assert result.state == last
    assert result.cotangent == unrolled(steps, (last[0], 2 * last[1]))[1]


@given(schedule=online, steps=st.integers(0, 60))
def test_end_may_be_told_by_a_condition(schedule: Schedule, steps: int) -> None:
    asked: list[int] = []

    def until(i: int, state: State) -> bool:
        asked.append(i)
        return i == steps

    result = reverse(schedule, None, step, turn, START, SEED, until=until)
    assert (result.steps, (result.state, result.cotangent)) == (steps, unrolled(steps))
    assert asked == list(range(steps + 1))
    assert result.evaluations == schedule.cost(steps).evaluations


@given(schedule=online, steps=st.integers(0, 60))
def test_end_may_be_told_by_the_step(schedule: Schedule, steps: int) -> None:
    def ending(i: int, state: State) -> State:
        if i == steps:
            raise StopIteration
        return step(i, state)

    result = reverse(schedule, None, ending, turn, START, SEED)
    assert (result.steps, (result.state, result.cotangent)) == (steps, unrolled(steps))


@given(schedule=schedules, steps=st.integers(0, 60))
def test_a_span_runs_the_same_steps_in_fewer_calls(schedule: Schedule, steps: int) -> None:
    calls: list[tuple[int, int]] = []

    def span(start: int, stop: int, state: State) -> State:
        calls.append((start, stop))
        for i in range(start, stop):
            state = step(i, state)
        return state

    result = reverse(schedule, steps, Span(span), turn, START, SEED, record=record, apply=apply)
    assert result.cotangent == unrolled(steps)[1]
    assert calls == [(a.start, a.stop) for a in schedule.actions(steps) if isinstance(a, Advance)]


def matrix(n: int) -> Any:
    return np.random.default_rng(7).normal(size=(n, n)) / np.sqrt(n)


def test_numpy_steps_may_change_their_state_in_place() -> None:
    a = matrix(5)

    def advance(i: int, x: Any) -> Any:
        x[:] = np.tanh(a @ x)
        return x

    def back(i: int, x: Any, bar: Any) -> Any:
        y = np.tanh(a @ x)
        bar[:] = a.T @ (bar * (1 - y * y))
        return bar

    plain = [np.ones(5)]
    for _ in range(30):
        plain.append(np.tanh(a @ plain[-1]))
    expected = np.ones(5)
    for i in reversed(range(30)):
        expected = a.T @ (expected * (1 - plain[i + 1] ** 2))
    result = reverse(Binomial(3), 30, advance, back, np.ones(5), np.ones(5))
    assert np.array_equal(result.cotangent, expected)
    assert np.array_equal(result.state, plain[-1])


def test_jax_arrays_need_no_copies() -> None:
    result = reverse(
        Online(3),
        None,
        lambda i, x: jnp.sin(x),
        lambda i, x, bar: jnp.cos(x) * bar,
        jnp.float64(1.0),
        jnp.float64(1.0),
        store=MemoryStore(copy=None),
        until=lambda i, x: x < 0.4,
    )
    expected, x = 1.0, 1.0
    for _ in range(result.steps):
        expected, x = expected * np.cos(x), np.sin(x)
    assert result.steps > 10
    assert float(result.cotangent) == pytest.approx(expected, rel=1e-12)


def test_a_ctypes_library_can_be_the_step() -> None:
    library = ctypes.CDLL(None)
    for name in ("sin", "cos"):
        getattr(library, name).argtypes, getattr(library, name).restype = [ctypes.c_double], ctypes.c_double

    def advance(i: int, state: Any) -> Any:
        state[0] = library.sin(state[0])
        return state

    def back(i: int, state: Any, bar: float) -> float:
        return library.cos(state[0]) * bar

    result = reverse(Binomial(2), 12, advance, back, (ctypes.c_double * 1)(1.0), 1.0)
    expected, x = 1.0, 1.0
    for _ in range(12):
        expected, x = expected * float(np.cos(x)), float(np.sin(x))
    assert result.cotangent == pytest.approx(expected, rel=1e-14)


def test_a_process_can_be_the_step() -> None:
    program = "import sys; x = float(sys.argv[1])\nfor _ in range(int(sys.argv[2])): x = x * x - 0.5\nprint(repr(x))"

    def span(start: int, stop: int, x: str) -> str:
        command = [sys.executable, "-S", "-c", program, x, str(stop - start)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    result = reverse(Binomial(2), 5, Span(span), lambda i, x, bar: 2 * float(x) * bar, "0.3", 1.0)
    expected, x = 1.0, 0.3
    for _ in range(5):
        expected, x = expected * 2 * x, x * x - 0.5
    assert result.cotangent == pytest.approx(expected, rel=1e-15)
    assert result.state == repr(x)


def test_many_adjoints_come_from_one_reversal_as_a_list() -> None:
    seeds = [(1.0, 0.0), (0.0, 1.0), SEED]
    many = reverse(Binomial(3), 25, step, lambda i, x, bars: [turn(i, x, bar) for bar in bars], START, seeds)
    assert many.cotangent == [unrolled(25, seed)[1] for seed in seeds]


@given(schedule=split_schedules, steps=st.integers(0, 40))
def test_one_forward_run_is_reversed_many_times(schedule: Schedule, steps: int) -> None:
    seen: list[int] = []

    def advance(i: int, state: State) -> State:
        seen.append(i)
        return step(i, state)

    def taped(i: int, state: State) -> tuple[State, State]:
        return advance(i, state), state

    with forward(schedule, steps, advance, START, record=taped) as run:
        assert run.state == unrolled(steps)[0]
        assert seen == list(range(steps))
        for seed in [(1.0, 0.0), (0.0, 1.0), (1.0, 0.0)]:
            assert run.reverse(turn, seed, apply=apply).cotangent == unrolled(steps, seed)[1]
    # A turn from a state evaluates its step too; a tape does not.
    turned = sum(isinstance(action, Turn) for action in schedule.actions(steps))
    assert len(seen) == steps + 3 * (schedule.cost(steps).evaluations - turned - steps)


def test_a_forward_run_survives_a_failing_turn() -> None:
    with forward(Online(3), None, step, START, until=lambda i, x: i == 30) as run:
        with pytest.raises(StepError, match="at step 11"):
            run.reverse(failing_at(turn, 11), SEED)
        assert run.reverse(turn, lambda last: SEED).cotangent == unrolled(30)[1]


def failing_at(function: Callable[..., Any], where: int, times: int = 1) -> Callable[..., Any]:
    """A function that fails at a step, so many times."""
    left = [times]

    def fails(i: int, *arguments: Any) -> Any:
        if i == where and left[0]:
            left[0] -= 1
            raise ZeroDivisionError("no convergence")
        return function(i, *arguments)

    return fails


@given(schedule=schedules, steps=st.integers(1, 40), data=st.data())
def test_what_fails_is_named_with_its_step_and_can_be_resumed(schedule: Schedule, steps: int, data: Any) -> None:
    where = data.draw(st.integers(0, steps - 1))
    name = data.draw(st.sampled_from(["advance", "turn", "record", "apply"]))
    functions = {"advance": step, "turn": turn, "record": record, "apply": apply}
    functions[name] = failing_at(functions[name], where)
    advance, back = functions["advance"], functions["turn"]
    store = [MemoryStore(), MemoryStore()]
    run = (schedule, steps, advance, back, START, SEED)
    tapes = {"record": functions["record"], "apply": functions["apply"]}
    if calls(schedule, steps)[name].isdisjoint({where}):
        result = reverse(*run, store=store, **tapes)
    else:
        with pytest.raises(StepError) as caught:
            reverse(*run, store=store, **tapes)
        error = caught.value
        assert (error.function, error.start, error.stop) == (name, where, where + 1)
        assert f"{name} failed at step {where}: ZeroDivisionError: no convergence" in str(error)
        assert isinstance(error.__cause__, ZeroDivisionError)
        result = resume(*run, store=store, **tapes)
    assert result.cotangent == unrolled(steps)[1]
    assert result.state in (unrolled(steps)[0], None)


def calls(schedule: Schedule, steps: int) -> dict[str, set[int]]:
    """The steps with which each function is called."""
    called: dict[str, set[int]] = {"advance": set(), "turn": set(), "record": set(), "apply": set()}
    for action in schedule.actions(steps):
        match action:
            case Advance(start, stop):
                called["advance"] |= set(range(start, stop))
            case Turn(i) | Record(i) | Apply(i):
                called[type(action).__name__.lower()].add(i)
            case _:
                pass
    return called


def test_a_failing_span_is_named_with_its_steps() -> None:
    with pytest.raises(StepError, match=r"advance failed in steps 0\.\.9"):
        reverse(Binomial(1), 10, Span(lambda start, stop, x: 1 / 0), turn, START, SEED)


def test_a_failing_condition_or_cotangent_is_named() -> None:
    with pytest.raises(StepError, match="until failed at step 3"):
        reverse(Online(2), None, step, turn, START, SEED, until=failing_at(lambda i, x: False, 3))
    with pytest.raises(StepError, match="cotangent failed at step 5: IndexError"):
        reverse(Online(2), 5, step, turn, START, lambda last: last[7])


def test_an_interrupt_from_the_keyboard_passes() -> None:
    def interrupted(i: int, state: State) -> State:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reverse(Binomial(3), 5, interrupted, turn, START, SEED)


def test_tiers_go_to_their_stores() -> None:
    fast, slow = MemoryStore(), MemoryStore()
    result = reverse(TwoTiers(5), 23, step, turn, START, SEED, store=[fast, slow])
    assert (result.state, result.cotangent) == unrolled(23)
    with pytest.raises(ScheduleError, match="at least 2 stores, as a state goes to tier 1"):
        reverse(TwoTiers(5), 23, step, turn, START, SEED, store=MemoryStore())


def test_no_more_states_are_held_than_slots() -> None:
    store = MemoryStore()
    most = 0

    def watched(i: int, state: State) -> State:
        nonlocal most
        most = max(most, len(store.keys()))
        return step(i, state)

    reverse(Binomial(4), 100, watched, turn, START, SEED, store=store)
    assert most == 4
    assert store.keys() == ()


class Script:
    """Whatever actions a test makes up."""

    def __init__(self, *actions: Any) -> None:
        self.made_up = actions

    def actions(self, steps: int) -> Any:
        return iter(self.made_up)


def test_tapes_need_functions_of_their_own() -> None:
    with pytest.raises(ScheduleError, match=r"^record: got None, .* as this schedule keeps tapes"):
        reverse(Mixed(3), 5, step, turn, START, SEED)
    with pytest.raises(ScheduleError, match=r"^apply: got None, .* as this schedule keeps tapes"):
        reverse(Mixed(3), 5, step, turn, START, SEED, record=record)


def test_a_wrong_schedule_is_told_before_a_step_runs_on_its_account() -> None:
    ran: list[int] = []

    def watched(i: int, state: State) -> State:
        ran.append(i)
        return step(i, state)

    with pytest.raises(InvariantError, match="it starts at state 3, but the working state is 2"):
        reverse(Script(Store(0, 0), Advance(0, 2), Advance(3, 4)), 4, watched, turn, START, SEED)
    assert ran == [0, 1]
    with pytest.raises(InvariantError, match="the next one is step 3"):
        reverse(Script(Turn(0)), 4, step, turn, START, SEED)


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "steps": (lambda: reverse(Binomial(3), -1, step, turn, START, SEED), "^steps: got -1"),
    "advance": (lambda: reverse(Binomial(3), 5, None, turn, START, SEED), "^advance: got None"),  # pyright: ignore
    "turn": (lambda: reverse(Binomial(3), 5, step, 3, START, SEED), "^turn: got 3"),  # pyright: ignore
    "store": (lambda: reverse(Binomial(3), 5, step, turn, START, SEED, store=[]), "^store: got "),
    "until and steps": (
        lambda: reverse(Online(3), 5, step, turn, START, SEED, until=lambda i, x: True),
        "expected nothing beside steps=5",
    ),
    "offline without steps": (
        lambda: reverse(Binomial(3), None, step, turn, START, SEED, until=lambda i, x: True),
        "one whose forward pass does not depend on steps",
    ),
    "joined without a cotangent": (
        lambda: reverse(Binomial(3, joined=True), 9, step, turn, START, lambda last: SEED),
        "one that delivers the last state before a turn",
    ),
    "joined forward": (lambda: forward(Binomial(3, joined=True), 9, step, START), "one that delivers the last state"),
    "a chain longer than its schedule": (
        lambda: reverse(Online(0, leaf=7), None, step, turn, START, SEED, until=lambda i, x: False),
        "^steps: got 'a chain of more than 7'",
    ),
}


@pytest.mark.parametrize(("call", "words"), BAD.values(), ids=BAD)
def test_bad_arguments_are_refused_by_name(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(AdjointError, match=words):
        call()


def test_the_chain_is_not_linear_and_its_order_counts() -> None:
    kept = states(3)
    wrong = SEED
    for i in range(3):
        wrong = turn(i, kept[i], wrong)
    assert wrong != unrolled(3)[1]
