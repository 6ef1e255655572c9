"""Claims about `adjoint.DiskStore`: what the folder holds, what it costs, and whose folder it takes."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adjoint import (
    Binomial,
    Buffers,
    Bytes,
    DiskStore,
    Identity,
    Key,
    Online,
    Sample,
    ScheduleError,
    StateError,
    StoreError,
    resume,
    reverse,
)
from tests.adjoint.chains import SEED, START, State, step, turn, unrolled
from tests.user_process import ROOT

RUN = (Binomial(3), 20, step, turn, START, SEED)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture(autouse=True)
def quick_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flushing to a real disk takes milliseconds, and nothing here is about a power failure."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    reverse(*RUN, store=DiskStore(tmp_path / "run"))
    return tmp_path / "run"


@pytest.mark.parametrize("every", [1, 4, 1000])
def test_the_disk_holds_no_more_states_than_promised(every: int, tmp_path: Path) -> None:
    most = 0

    def watched(i: int, state: State) -> State:
        nonlocal most
        most = max(most, sum(name.startswith("slot") for name in files(tmp_path)))
        return step(i, state)

    reverse(Binomial(4), 40, watched, turn, START, SEED, store=DiskStore(tmp_path, every=every))
    assert 4 <= most <= (5 if every == 1 else 9)


@pytest.mark.parametrize("every", [1, 5])
def test_a_kill_loses_as_many_turns_as_lie_between_milestones(every: int, tmp_path: Path) -> None:
    def back(i: int, state: State, bar: State) -> State:
        if i == 3:
            raise KeyboardInterrupt
        return turn(i, state, bar)

    run = (Online(20), 20, step)
    with pytest.raises(KeyboardInterrupt):
        reverse(*run, back, START, SEED, store=DiskStore(tmp_path, every=every))
    result = resume(*run, turn, START, SEED, store=DiskStore(tmp_path, every=every))
    assert result.cotangent == unrolled(20)[1]
    # Sixteen steps were turned.
    assert result.turns == 4 + 16 % every


def test_a_new_run_does_not_take_a_folder_with_a_run(finished: Path) -> None:
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    with pytest.raises(StoreError, match=r"it holds a run of Binomial\(slots=3, joined=False\) with steps=20"):
        reverse(*RUN, store=DiskStore(finished))
    assert {path.name: path.read_bytes() for path in finished.iterdir()} == before


OTHERS: dict[str, Callable[[Path], Any]] = {
    "schedule": lambda path: resume(Binomial(4), *RUN[1:], store=DiskStore(path)),
    "steps": lambda path: resume(Binomial(3), 21, *RUN[2:], store=DiskStore(path)),
    "codec": lambda path: resume(*RUN[:4], b"", b"", store=DiskStore(path, Bytes())),
}


@pytest.mark.parametrize("call", OTHERS.values(), ids=OTHERS)
def test_another_run_does_not_resume_it(call: Callable[[Path], Any], finished: Path) -> None:
    with pytest.raises(StoreError, match=r"it holds a run of .*, and this is a run of .*; resume that run"):
        call(finished)
    assert resume(*RUN, store=DiskStore(finished)).cotangent == unrolled(20)[1]


def test_a_folder_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("chapter one")
    with pytest.raises(StoreError, match=r"it holds other files, such as 'thesis.tex', and no journal"):
        resume(*RUN, store=DiskStore(tmp_path))
    assert files(tmp_path) == {"thesis.tex"}


def test_other_files_beside_a_run_are_left_alone(finished: Path) -> None:
    (finished / "notes").write_text("mine")
    (finished / "slot-3-state-9.part").write_text("left by a kill")
    resume(*RUN, store=DiskStore(finished))
    assert files(finished) == {"journal", "last", "cotangent-20", "notes"}
    DiskStore(finished).remove()
    assert files(finished) == {"notes"}


def test_remove_takes_the_folder_away(finished: Path) -> None:
    DiskStore(finished).remove()
    assert not finished.exists()
    DiskStore(finished).remove()


def test_two_processes_do_not_write_to_one_folder(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    store.begin(Identity("here", 3), Sample(START, SEED, 2), is_new=True)
    program = f"import adjoint; adjoint.DiskStore({str(tmp_path)!r}).remove()"
    there = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert "it is in use by another run; wait for that run to end" in there.stderr
    with pytest.raises(StoreError, match="it is in use by another run"):
        store.remove()
    store.end()
    store.remove()


def test_a_state_that_no_codec_takes_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"accepts what pickle\.dumps accepts"):
        reverse(*RUN[:4], lambda: 0, SEED, store=DiskStore(tmp_path / "run"))
    with pytest.raises(StateError, match="accepts bytes"):
        reverse(*RUN, store=DiskStore(tmp_path / "run", cotangents=Bytes()))
    assert not (tmp_path / "run").exists()


def test_numpy_states_go_through_buffers(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, Buffers(np.zeros(3)))
    advance = lambda i, x: np.sin(x)
    run = (Binomial(2), 9, advance, lambda i, x, bar: np.cos(x) * bar, np.ones(3), np.ones(3))
    expected = reverse(*run)
    assert np.array_equal(reverse(*run, store=store).cotangent, expected.cotangent)


def test_a_snapshot_of_another_shape_is_told(tmp_path: Path) -> None:
    class Growing:
        calls = 0

        def __call__(self, i: int, x: Any) -> Any:
            return np.ones(4) if i == 2 else np.sin(x)

    with pytest.raises(StateError, match=r"got format 'd' shape \(4,\), and accepts states like the first: format 'd'"):
        reverse(
            Online(9), 9, Growing(), lambda i, x, bar: bar, np.ones(3), np.ones(3),
            store=DiskStore(tmp_path, Buffers(np.zeros(3))),
        )  # fmt: skip


def test_the_journal_of_a_long_run_stays_short(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    store.begin(Identity("long", 2000), Sample(b"", b"", 3), is_new=True)
    longest = 0
    for i in range(3000):
        store.keep(Key(i % 3, i), b"")
        store.drop(Key(i % 3, i - 3))
        store.settle()
        longest = max(longest, store.journal.size)
    store.end()
    assert longest < 70_000
    store.begin(Identity("long", 2000), Sample(b"", b"", 3), is_new=False)
    assert sorted(store.keys(), key=lambda key: key.state) == [Key(i % 3, i) for i in range(2997, 3000)]
    store.end()


@pytest.mark.parametrize("every", [0, -1, 1.5])
def test_a_wrong_interval_is_refused(every: Any, tmp_path: Path) -> None:
    with pytest.raises(ScheduleError, match=r"^every: got"):
        DiskStore(tmp_path, every=every)
