"""Claims about real crashes: processes killed at random moments, full disks, folders that cannot be written."""

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from adjoint import Asynchronous, Binomial, Codec, DiskStore, StoreError, resume, reverse
from adjoint.journal import Journal
from tests.adjoint.chains import SEED, START, step, turn, unrolled
from tests.adjoint.killed_run import STEPS
from tests.user_process import ROOT, user_environment

KINDS = ("disk", "tiers", "online", "asynchronous")
# Three kills of each kind by default, and with --full fifty.
FEW, MANY = 3, 50


def start(folder: Path, kind: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.adjoint.killed_run", str(folder), kind]
    return subprocess.Popen(command, cwd=ROOT, env=user_environment(), stdout=subprocess.PIPE, text=True)


def expected() -> str:
    return " ".join(number.hex() for number in unrolled(STEPS)[1])


def named(folder: Path) -> set[str]:
    """The state files that the journal names. Reading cuts off an unfinished line, so a copy is read."""
    shutil.copyfile(folder / "journal", folder.with_name("copy"))
    journal = Journal(folder.with_name("copy"))
    held = set[str]()
    for entry in journal.read():
        if entry[0] in ("keep", "drop"):
            name = f"slot-{entry[1]}-state-{entry[2]}"
            (held.add if entry[0] == "keep" else held.discard)(name)
    journal.close()
    return held


def written(folder: Path) -> int:
    """How long the journal is: how far a run has come, on a fast machine and on a slow one."""
    journal = folder / "journal"
    return journal.stat().st_size if journal.exists() else 0


def killed(folder: Path, kind: str, size: float, delay: float = 0.0) -> str:
    """Kills a run when its journal has this size, after a short delay; returns what it had printed by then."""
    process = start(folder, kind)
    while written(folder) < size and process.poll() is None:
        time.sleep(0.0005)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    return process.communicate()[0]


def kill_and_resume(folder: Path, kind: str, size: float, delay: float) -> bool:
    """Kills a run, checks what is there, and lets it end; says whether the kill came before the end."""
    printed = killed(folder, kind, size, delay)
    is_lost = (folder / "journal").exists() and named(folder) - {path.name for path in folder.iterdir()}
    assert not is_lost, "a snapshot that the journal names is lost"
    again, _ = start(folder, kind).communicate(timeout=60)
    assert again.strip() == expected()
    assert {path.name for path in folder.iterdir()} == {"journal", "last", f"cotangent-{STEPS}"}
    return printed == ""


def kill_many(folder: Path, kind: str, kills: int) -> int:
    """Kills and resumes so many runs; returns how many of the kills came before the run's end."""
    draw = random.Random(f"{kills} {kind}")
    printed, _ = start(folder / "whole", kind).communicate(timeout=60)
    assert printed.strip() == expected()
    longest = written(folder / "whole")
    # The delay is about as long as a step and its writes, so that a kill may fall between any two of them.
    moments = [(draw.uniform(0, longest), draw.uniform(0, 0.02)) for _ in range(kills)]
    return sum(kill_and_resume(folder / str(i), kind, *moment) for i, moment in enumerate(moments))


@pytest.mark.parametrize("kind", KINDS)
def test_killed_runs_give_the_same_adjoint(kind: str, tmp_path: Path) -> None:
    assert kill_many(tmp_path, kind, FEW) > 0


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_many_killed_runs_give_the_same_adjoint(kind: str, tmp_path: Path) -> None:
    in_time = kill_many(tmp_path, kind, MANY)
    print(f"{kind}: {in_time} of {MANY} runs were killed before their end")
    assert in_time > MANY // 2


class Full:
    """A disk that takes so many flushes more, and then is full."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.flush = os.fsync

    def __call__(self, descriptor: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("is_asynchronous", [False, True])
@pytest.mark.parametrize("left", range(0, 50, 2))
def test_a_full_disk_is_told_and_loses_nothing(
    left: int, is_asynchronous: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = (Binomial(3), 9, step, turn, START, SEED)
    disk = DiskStore(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", Full(left))
        with pytest.raises(StoreError, match=r"the disk is full; free some room and resume") as caught:
            reverse(*run, store=Asynchronous(disk) if is_asynchronous else disk)
        assert str(tmp_path) in str(caught.value.place)
    assert not list((tmp_path / "run").glob("*.part"))
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    assert resume(*run, store=DiskStore(tmp_path / "run")).cotangent == unrolled(9)[1]


def test_too_little_room_is_told_before_the_first_step(tmp_path: Path) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("a step ran")

    with pytest.raises(StoreError, match=r"the run needs \d+ bytes more, and \d+ are free"):
        reverse(Binomial(64), 10**6, never, never, START, SEED, store=DiskStore(tmp_path / "run", Huge()))
    assert list(tmp_path.iterdir()) == []


class Length(bytes):
    """Bytes that say that they are many."""

    def __len__(self) -> int:
        return 1 << 40


class Huge(Codec):
    """A codec of states that are too large to be made."""

    def name(self) -> str:
        return "Huge"

    def encode(self, value: Any) -> bytes:
        return Length()

    def decode(self, data: bytes) -> Any:
        return None


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may write anywhere; as nobody it may not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_cannot_be_made_is_told_before_the_first_step(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with without_privileges(), pytest.raises(StoreError, match="Permission denied; give a folder that this user may"):
        reverse(Binomial(3), 9, step, turn, START, SEED, store=DiskStore(tmp_path / "run"))
    tmp_path.chmod(0o755)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_is_read_only_is_told_before_the_first_step(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr("adjoint.journal.FileIO", refuse)
        with pytest.raises(StoreError, match="give a folder that this user may write to"):
            reverse(Binomial(3), 9, step, turn, START, SEED, store=DiskStore(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert reverse(Binomial(3), 9, step, turn, START, SEED, store=DiskStore(tmp_path)).cotangent == unrolled(9)[1]


def test_a_missing_snapshot_would_be_seen(tmp_path: Path) -> None:
    killed(tmp_path / "run", "disk", size=200)
    for path in (tmp_path / "run").glob("slot-*"):
        path.unlink()
    assert named(tmp_path / "run") - {path.name for path in (tmp_path / "run").iterdir()}
