"""Claims about `adjoint.journal`: cut anywhere, it keeps every finished line; anything else that is wrong is told."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adjoint import StoreError
from adjoint.journal import Journal

ENTRIES = [["run", 1], ["keep", 0, 0, "Zürich\n"], ["drop", 0, 0], []]


def written(path: Path, entries: list[Any]) -> bytes:
    path.unlink(missing_ok=True)
    journal = Journal(path)
    assert journal.read() == []
    for entry in entries:
        journal.append(entry, is_flushed=False)
    journal.close()
    return path.read_bytes()


def read(path: Path) -> list[Any]:
    journal = Journal(path)
    try:
        return journal.read()
    finally:
        journal.close()


def test_cut_at_any_byte_it_keeps_the_finished_lines_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    whole = written(path, ENTRIES)
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        finished = whole[:length].count(b"\n")
        journal = Journal(path)
        assert journal.read() == ENTRIES[:finished]
        journal.append(["more"])
        journal.close()
        assert read(path) == [*ENTRIES[:finished], ["more"]]


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_changed_byte_is_told_or_makes_an_unfinished_line(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    whole = bytearray(written(path, ENTRIES))
    where = data.draw(st.integers(0, len(whole) - 1))
    whole[where] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(whole))
    if where == len(whole) - 1:
        assert read(path) == ENTRIES[:-1]
    else:
        with pytest.raises(StoreError, match=r"damaged: line \d does not have its checksum"):
            read(path)


def test_a_line_that_could_not_be_written_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    path = tmp_path / "journal"
    journal = Journal(path)
    journal.read()
    journal.append(["one"])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match="the disk is full"):
            journal.append(["two"])
    journal.append(["three"])
    journal.close()
    assert read(path) == [["one"], ["three"]]


def test_a_list_written_anew_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    written(path, ENTRIES)
    journal = Journal(path)
    journal.read()
    journal.replace([["run", 1]])
    journal.append(["more"])
    journal.close()
    assert read(path) == [["run", 1], ["more"]]
    assert journal.size == path.stat().st_size


def test_a_journal_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    with pytest.raises(StoreError, match="could not be read"):
        read(tmp_path / "journal")
