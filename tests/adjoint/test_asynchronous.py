"""Claims about `adjoint.Asynchronous`: the same store, earlier; memory is bounded; a failure stops the queue."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjoint import (
    Asynchronous,
    Binomial,
    DiskStore,
    Key,
    MemoryStore,
    Milestone,
    Periodic,
    Sample,
    Schedule,
    ScheduleError,
    StateError,
    StateStore,
    StepError,
    StoreAll,
    StoreError,
    reverse,
)
from adjoint.store import Identity
from tests.adjoint.chains import SEED, START, State, TwoTiers, apply, record, step, turn, unrolled
from tests.adjoint.strategies import schedules

RUN = Identity("made up", 9)
SAMPLE = Sample(b"", b"", 3)


class Slow(StateStore):
    """A store in memory that takes its time, and may fail at one of its calls."""

    def __init__(self, seconds: float = 0.0, fails_at: int = -1) -> None:
        self.inner = MemoryStore()
        self.seconds = seconds
        self.fails_at = fails_at
        self.log: list[tuple[str, Any]] = []
        self.gate = threading.Event()
        self.gate.set()

    def work(self, name: str, what: Any) -> None:
        self.gate.wait()
        time.sleep(self.seconds)
        if len(self.log) == self.fails_at:
            raise StoreError("Slow", "it is full", "free some room")
        self.log.append((name, what))

    def is_due(self, turns: int, dropped: int) -> bool:
        return turns > 0

    def begin(self, identity: Identity, sample: Sample, is_new: bool) -> None:
        self.inner.begin(identity, sample, is_new)

    def keep(self, key: Key, value: Any) -> None:
        self.work("keep", key)
        self.inner.keep(key, value)

    def load(self, key: Key) -> Any:
        self.work("load", key)
        return self.inner.load(key)

    def drop(self, key: Key) -> None:
        self.inner.drop(key)

    def keys(self) -> Any:
        return self.inner.keys()

    def mark(self, milestone: Milestone) -> None:
        self.inner.mark(milestone)

    def settle(self) -> None:
        self.inner.settle()

    def latest(self) -> Milestone | None:
        return self.inner.latest()

    def end(self) -> None:
        self.inner.end()


@given(schedule=schedules, steps=st.integers(0, 40), room=st.integers(1, 4))
@settings(max_examples=50)
def test_adjoint_equals_unrolled(schedule: Schedule, steps: int, room: int) -> None:
    stores = [Asynchronous(MemoryStore(), room), Asynchronous(MemoryStore(), room)]
    result = reverse(schedule, steps, step, turn, START, SEED, store=stores, record=record, apply=apply)
    assert result.cotangent == unrolled(steps)[1]


def test_a_slow_tier_gives_the_same_adjoint() -> None:
    stores = [MemoryStore(), Asynchronous(Slow(0.0005))]
    assert reverse(TwoTiers(4), 30, step, turn, START, SEED, store=stores).cotangent == unrolled(30)[1]


def test_writes_and_reads_are_hidden_behind_steps() -> None:
    def slowly(function: Any) -> Any:
        def run(*arguments: Any) -> Any:
            time.sleep(0.004)
            return function(*arguments)

        return run

    run = (TwoTiers(5), 40, slowly(step), slowly(turn), START, SEED)
    # A state is written or read in the time of five steps, and there is one of them every five steps.
    result = reverse(*run, store=[MemoryStore(), Asynchronous(Slow(0.01))])
    assert len(result.overlaps) == 1
    overlap = result.overlaps[0]
    assert overlap.busy > 0.2
    assert overlap.hidden > 0.6
    # Without steps to hide behind there is nothing hidden.
    idle = reverse(StoreAll(), 20, step, turn, START, SEED, store=Asynchronous(Slow(0.005)))
    assert idle.overlaps[0].hidden < 0.4
    assert "were hidden" in str(idle)


@pytest.mark.parametrize("room", [1, 2, 5])
def test_no_more_values_wait_than_there_is_room_for(room: int) -> None:
    slow = Slow()
    slow.gate.clear()
    store = Asynchronous(slow, room)
    store.begin(RUN, SAMPLE, is_new=True)
    kept: list[int] = []

    def keep_many() -> None:
        for i in range(10):
            store.keep(Key(i, i), i)
            kept.append(i)

    thread = threading.Thread(target=keep_many)
    thread.start()
    time.sleep(0.1)
    assert len(kept) == room
    slow.gate.set()
    thread.join()
    assert len(store.keys()) == 10
    for i in range(10):
        store.prefetch(Key(i, i))
    time.sleep(0.1)
    assert len(store.ready) == room
    assert [store.load(Key(i, i)) for i in range(10)] == list(range(10))
    store.end()
    assert [key for name, key in slow.log if name == "load"] == [Key(i, i) for i in range(10)]


def test_what_waits_to_be_written_can_be_loaded() -> None:
    slow = Slow()
    slow.gate.clear()
    store = Asynchronous(slow)
    store.begin(RUN, SAMPLE, is_new=True)
    store.keep(Key(0, 0), [1])
    first = store.load(Key(0, 0))
    first.append(2)
    assert store.load(Key(0, 0)) == [1]
    slow.gate.set()
    store.end()
    assert slow.log == [("keep", Key(0, 0))]


def test_what_was_read_ahead_and_given_up_is_forgotten() -> None:
    store = Asynchronous(Slow())
    store.begin(RUN, SAMPLE, is_new=True)
    store.keep(Key(0, 0), 1)
    store.keys()
    store.prefetch(Key(0, 0))
    store.prefetch(Key(0, 0))
    time.sleep(0.05)
    store.drop(Key(0, 0))
    assert not store.ready
    assert not store.wanted
    store.end()


@pytest.mark.parametrize("fails_at", range(0, 14, 2))
def test_a_failure_is_told_and_nothing_behind_it_is_written(fails_at: int) -> None:
    slow = Slow(0.001, fails_at)
    with pytest.raises(StoreError, match="it is full"):
        reverse(Periodic(3), 20, step, turn, START, SEED, store=Asynchronous(slow))
    assert len(slow.log) == fails_at


def test_a_failing_step_leaves_everything_written(tmp_path: Path) -> None:
    def failing(i: int, state: State) -> State:
        return step(i, state) if i < 15 else 1 / 0  # pyright: ignore

    disk = DiskStore(tmp_path)
    with pytest.raises(StepError, match="advance failed at step 15"):
        reverse(StoreAll(), 20, failing, turn, START, SEED, store=Asynchronous(disk))
    assert len(list(tmp_path.glob("slot-*"))) == 16
    assert not [thread for thread in threading.enumerate() if thread.name == "adjoint store"]


def test_bad_arguments_are_refused_by_name() -> None:
    with pytest.raises(ScheduleError, match=r"^room: got 0"):
        Asynchronous(MemoryStore(), room=0)
    with pytest.raises(StateError, match="Asynchronous: got a generator that could not be copied"):
        reverse(Binomial(2), 5, step, turn, (x for x in START), SEED, store=Asynchronous(MemoryStore()))
