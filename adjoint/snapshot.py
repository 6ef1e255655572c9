"""Files that are either whole or not there: how a store writes so that a killed process, or a full disk, loses nothing.

A file is written under a temporary name, flushed to the disk, and renamed; the rename is atomic, and the folder is
flushed after it. A checksum, kept elsewhere (`adjoint.journal`), is verified when the file is read.
"""

from __future__ import annotations

import errno
import os
import zlib
from pathlib import Path
from typing import NamedTuple

from adjoint.errors import StoreError

PART = ".part"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
REMOVE = "remove this file and resume: its state is computed again from an older one, and nothing else is lost"


class Seal(NamedTuple):
    """The size and the checksum (CRC-32) of a file's bytes."""

    size: int
    checksum: int


def seal(data: bytes) -> Seal:
    return Seal(len(data), zlib.crc32(data))


def write(path: Path, data: bytes) -> Seal:
    """Writes a file so that it is whole or not there, or raises a `StoreError` and leaves nothing behind."""
    part = path.with_name(path.name + PART)
    try:
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        flush_folder(path.parent)
    except OSError as error:
        unlink(part)
        raise refused(error, path, f"{len(data)} bytes could not be written") from error
    return seal(data)


def read(path: Path, expected: Seal, advice: str = REMOVE) -> bytes:
    """A file's bytes, if they are those that were written; a `StoreError` otherwise."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise refused(error, path, "it could not be read") from error
    if len(data) != expected.size:
        raise StoreError(path, f"it is damaged: {len(data)} bytes of {expected.size} are there", advice)
    if zlib.crc32(data) != expected.checksum:
        raise StoreError(path, "it is damaged: its checksum is wrong", advice)
    return data


def unlink(path: Path) -> None:
    """Removes a file that nothing needs, if it can be."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        # It is in the way of nobody: the next process that opens the folder removes what the journal does not name.
        return


def flush_folder(folder: Path) -> None:
    """Flushes a folder, so that a rename in it survives a power failure, on systems that open folders."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def refused(error: OSError, path: Path, what: str) -> StoreError:
    """What the operating system refused, in words that say what to do."""
    if error.errno in FULL:
        return StoreError(path, f"{what}: the disk is full", f"free some room and resume: {INTACT}")
    if error.errno in FORBIDDEN:
        advice = "give a folder that this user may write to; nothing that is there changed"
        return StoreError(path, f"{what}: {error.strerror}", advice)
    return StoreError(path, f"{what}: {error.strerror}", f"see to that and resume: {INTACT}")


INTACT = "what was stored before is intact"
