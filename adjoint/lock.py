"""A lock on a folder, so that two processes never write to one run.

The operating system releases it when its process ends, however it ends, so a killed process leaves none behind.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from adjoint.errors import StoreError
from adjoint.snapshot import refused

if sys.platform != "win32":
    import fcntl


class Lock:
    """One process's hold on a folder. Where folders cannot be locked (Windows, some network disks) it does nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor: int | None = None

    def take(self) -> None:
        """Takes the lock, or raises a `StoreError` if somebody has it."""
        if self.descriptor is not None:
            raise StoreError(self.path, IN_USE, "end that run first")
        if sys.platform == "win32":
            return
        try:
            self.descriptor = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise refused(error, self.path, "the folder could not be opened") from error
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise StoreError(self.path, IN_USE, "wait for that run to end, or give another folder") from None
        except OSError:
            # A network disk without locks: the user sees to it that one process writes.
            self.release()

    def release(self) -> None:
        """Gives the lock back."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


IN_USE = "it is in use by another run"
