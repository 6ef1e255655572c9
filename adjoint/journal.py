"""A list on disk that only grows, of which a killed process leaves every finished line.

Each line is one entry as JSON and its checksum; a line is flushed to the disk before the caller goes on if it says so.
A process that is killed while it writes leaves a last line without its end: that line never counted, and is cut off.
A wrong line that is not the last one is damage. When most lines are out of date the list is written anew, whole.
"""

from __future__ import annotations

import json
import os
import zlib
from io import FileIO
from pathlib import Path
from typing import Any

from adjoint.errors import StoreError
from adjoint.snapshot import refused, write


class Journal:
    """The open list. Entries are whatever JSON holds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: FileIO | None = None
        self.size = 0

    def read(self) -> list[Any]:
        """All entries, of which there are none if there is no file. Opens the list for appending."""
        try:
            data = self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise refused(error, self.path, "it could not be read") from error
        lines = data.split(b"\n")
        # What follows the last line's end is empty, or a line that a killed process did not finish.
        entries = [self.entry(line, number) for number, line in enumerate(lines[:-1], 1)]
        self.open()
        assert self.file is not None
        self.size = len(data) - len(lines[-1])
        self.file.truncate(self.size)
        return entries

    def append(self, entry: Any, is_flushed: bool = True) -> None:
        """Adds an entry; if flushed, it survives a power failure from here on."""
        if self.file is None:
            raise StoreError(self.path, "an unfinished line stands at its end", "resume, which cuts that line off")
        line = encoded(entry)
        try:
            written = 0
            while written < len(line):
                written += self.file.write(line[written:])
            if is_flushed:
                os.fsync(self.file.fileno())
        except OSError as error:
            self.cut()
            raise refused(error, self.path, f"{len(line)} bytes could not be written") from error
        self.size += len(line)

    def replace(self, entries: list[Any]) -> None:
        """Writes the list anew with these entries only."""
        data = b"".join(encoded(entry) for entry in entries)
        write(self.path, data)
        self.close()
        self.open()
        self.size = len(data)

    def close(self) -> None:
        """Closes the file."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def open(self) -> None:
        self.close()
        try:
            # Unbuffered: a failed write leaves nothing behind that a later one would write again.
            self.file = FileIO(self.path, "ab")
        except OSError as error:
            raise refused(error, self.path, "it could not be opened") from error

    def cut(self) -> None:
        """Takes back a line that was written in part, so that a later one does not follow upon it."""
        assert self.file is not None
        try:
            self.file.truncate(self.size)
        except OSError:
            # Nobody can write here; whoever opens the list again cuts that line off.
            self.close()

    def entry(self, line: bytes, number: int) -> Any:
        text, _, checksum = line.rpartition(b" ")
        if checksum != b"%08x" % zlib.crc32(text):
            raise StoreError(
                self.path,
                f"it is damaged: line {number} does not have its checksum",
                "bring back the file from a copy, or remove the folder to start afresh",
            )
        return json.loads(text)


def encoded(entry: Any) -> bytes:
    text = json.dumps(entry).encode()
    return b"%s %08x\n" % (text, zlib.crc32(text))
