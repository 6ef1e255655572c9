"""Claims about the lock on a folder: one process at a time, and none after its end, however it ends."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from adjoint import StoreError
from adjoint.lock import Lock
from tests.user_process import ROOT

HOLD = """
import sys
from pathlib import Path
from adjoint.lock import Lock
Lock(Path(sys.argv[1])).take()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which holds the folder."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with process:
        yield process
        process.kill()


def test_another_process_is_refused_until_the_first_is_killed(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    lock = Lock(tmp_path)
    with pytest.raises(StoreError, match="it is in use by another run; wait for that run to end"):
        lock.take()
    assert lock.descriptor is None
    holder.kill()
    holder.wait()
    lock.take()
    lock.release()


def test_one_process_takes_it_once(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    lock.take()
    with pytest.raises(StoreError, match="end that run first"):
        lock.take()
    lock.release()
    lock.release()
    lock.take()
    lock.release()


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="the folder could not be opened"):
        Lock(tmp_path / "missing").take()
