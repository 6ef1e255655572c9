"""Claims about all stores: each keeps what it is given, whatever its caller does to the state afterwards."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adjoint import (
    Asynchronous,
    Binomial,
    DiskStore,
    Identity,
    Key,
    MemoryStore,
    Milestone,
    Online,
    Sample,
    StateError,
    StateStore,
    StoreError,
    resume,
    reverse,
)
from tests.adjoint.chains import SEED, START, step, turn, unrolled

RUN = Identity("Binomial(slots=3, joined=False)", 9)
SAMPLE = Sample(np.zeros(2), np.zeros(2), 3)


@pytest.fixture(params=["memory", "disk", "asynchronous memory", "asynchronous disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StateStore:
    inner = DiskStore(tmp_path / "run") if "disk" in request.param else MemoryStore()
    return Asynchronous(inner) if "asynchronous" in request.param else inner


def test_what_is_kept_comes_back_and_is_the_callers_own(store: StateStore) -> None:
    store.begin(RUN, SAMPLE, is_new=True)
    state = np.array([1.0, 2.0])
    store.keep(Key(0, 0), state)
    state[:] = 7
    first, second = store.load(Key(0, 0)), store.load(Key(0, 0))
    first[:] = 8
    assert second.tolist() == [1.0, 2.0]
    assert store.load(Key(0, 0)).tolist() == [1.0, 2.0]
    store.end()


def test_what_is_given_up_goes_at_a_safe_point(store: StateStore) -> None:
    store.begin(RUN, SAMPLE, is_new=True)
    store.keep(Key(0, 0), np.zeros(2))
    store.keep(Key(1, 5), np.ones(2))
    store.drop(Key(1, 5))
    assert store.load(Key(1, 5)).tolist() == [1.0, 1.0]
    store.settle()
    assert list(store.keys()) == [Key(0, 0)]
    store.drop(Key(1, 5))
    store.settle()
    store.end()


def test_a_state_given_up_and_kept_again_stays(store: StateStore) -> None:
    store.begin(RUN, SAMPLE, is_new=True)
    store.keep(Key(1, 5), np.ones(2))
    store.drop(Key(1, 5))
    store.keep(Key(1, 5), np.ones(2))
    store.settle()
    assert store.load(Key(1, 5)).tolist() == [1.0, 1.0]
    store.end()


def test_the_newest_milestone_is_found_again(store: StateStore) -> None:
    store.begin(RUN, SAMPLE, is_new=True)
    assert store.latest() is None
    cotangent = np.ones(2)
    for turned in range(3):
        store.mark(Milestone(9, turned, cotangent * turned, np.full(2, 5.0)))
    store.end()
    store.begin(RUN, SAMPLE, is_new=False)
    found = store.latest()
    assert found is not None
    assert (found.steps, found.turned) == (9, 2)
    assert (found.cotangent.tolist(), found.last.tolist()) == ([2.0, 2.0], [5.0, 5.0])
    store.end()


def test_what_is_not_there_is_told(store: StateStore) -> None:
    store.begin(RUN, SAMPLE, is_new=True)
    with pytest.raises(StoreError, match="it holds no state 5 in slot 1"):
        store.load(Key(1, 5))
    with contextlib.suppress(StoreError):
        store.end()


def test_a_store_of_another_run_refuses(store: StateStore) -> None:
    store.begin(RUN, SAMPLE, is_new=True)
    store.end()
    other = Identity.of(Online(3), None)
    with pytest.raises(StoreError, match=r"it holds a run of Binomial\(slots=3.* Online\(slots=3, leaf=0\)"):
        store.begin(other, SAMPLE, is_new=False)


def test_a_state_that_cannot_be_copied_is_told() -> None:
    with pytest.raises(StateError, match=r"MemoryStore: got a generator that could not be copied.* give another copy="):
        reverse(Binomial(2), 5, step, turn, (x for x in START), SEED)


def test_an_identity_holds_no_address() -> None:
    class Made:
        def actions(self, steps: int) -> Any: ...

    assert Identity.of(Made(), 3) == Identity.of(Made(), 3)
    assert "0x" not in Identity.of(Made(), 3).schedule


class Shelf(StateStore):
    """A store of a user's own."""

    def __init__(self) -> None:
        self.shelf: dict[Any, Any] = {}
        self.newest: Milestone | None = None

    def is_due(self, turns: int, dropped: int) -> bool:
        return turns > 4

    def begin(self, identity: Identity, sample: Sample, is_new: bool) -> None: ...

    def keep(self, key: Key, value: Any) -> None:
        self.shelf[key] = value

    def load(self, key: Key) -> Any:
        return self.shelf[key]

    def drop(self, key: Key) -> None: ...

    def keys(self) -> Any:
        return self.shelf.keys()

    def mark(self, milestone: Milestone) -> None:
        self.newest = milestone

    def settle(self) -> None: ...

    def latest(self) -> Milestone | None:
        return self.newest

    def end(self) -> None: ...


def test_a_store_of_ones_own_works_and_is_resumed() -> None:
    shelf = Shelf()
    run = (Online(3), 20, step)

    def interrupted(i: int, state: Any, bar: Any) -> Any:
        if i == 6:
            raise KeyboardInterrupt
        return turn(i, state, bar)

    with pytest.raises(KeyboardInterrupt):
        reverse(*run, interrupted, START, SEED, store=shelf)
    result = resume(*run, turn, START, SEED, store=shelf)
    # Thirteen steps were turned, and the newest milestone was after ten.
    assert (result.cotangent, result.turns) == (unrolled(20)[1], 10)
