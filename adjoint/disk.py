"""A store of files, from which a reversal goes on after its process was killed.

Each state is a file of its own, written whole or not at all (`adjoint.snapshot`), and a journal (`adjoint.journal`)
names the files that count, with their checksums. A state counts once its line in the journal is flushed; it stops to
count by a line as well, before its file is removed. So at every moment the journal and the files it names are a run
that can be resumed, and any other file of the store's own naming is left over from a killed process: it is removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from adjoint.codec import Codec, Pickle
from adjoint.errors import StoreError, checked_integer
from adjoint.journal import Journal
from adjoint.lock import Lock
from adjoint.snapshot import PART, Seal, read, refused, unlink, write
from adjoint.store import Identity, Key, Milestone, Sample, StateStore

FORMAT = 1
OWN = re.compile(r"(?:journal|last|cotangent-\d+|slot-\d+-(?:state|tape)-\d+)(?:\.part)?")
# A line of the journal is about this long; it is written anew when it is four times as long as it need be.
LINE_BYTES = 80
SHORT_BYTES = 1 << 16
START_AFRESH = "resume that run, give another folder, or call remove() on this store to throw it away"


class DiskStore(StateStore):
    """Keeps states as files in a folder, for more of them than memory holds, and for runs that outlive a process.

    Args:
        path: the folder; it is made if it is not there. A run has it for itself.
        codec: turns states into bytes; `Pickle` by default, which takes any state that Python can pickle.
        cotangents: turns cotangents into bytes; the same codec by default.
        every: turns from one milestone to the next, 1 by default. A killed process loses at most so many turns; a
            milestone costs the writing of one cotangent. There is one earlier when as many given-up states as the
            schedule has slots wait for it.

    Raises:
        StoreError: when a run begins, the folder cannot be written, has too little room, is in use, or belongs to
            another run; later on, when the disk is full or a file is damaged. Nothing that was kept is lost.
        StateError: the codec does not take the state.
        ScheduleError: every is below 1.

    Cost: a store writes and flushes one file and one line. The disk holds one state more than the schedule has slots
        (twice as many if every is above 1), the last state, and up to two cotangents.

    >>> import tempfile
    >>> from adjoint import Binomial, resume
    >>> run = (Binomial(3), 10, lambda i, x: 2 * x, lambda i, x, bar: 2 * bar, 1.0, 1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     resume(*run, store=DiskStore(folder)).cotangent
    1024.0
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        codec: Codec | None = None,
        cotangents: Codec | None = None,
        every: int = 1,
    ) -> None:
        self.path = Path(path)
        self.codec = codec or Pickle()
        self.cotangents = cotangents or self.codec
        self.every = checked_integer("every", every, 1, "give the turns from one milestone to the next")
        self.lock = Lock(self.path)
        self.journal = Journal(self.path / "journal")
        self.clear(None)

    def clear(self, slots: int | None) -> None:
        """Forgets what the folder holds; reading the journal finds it again."""
        self.slots = slots
        self.held: dict[Key, Seal] = {}
        self.given_up: dict[Key, None] = {}
        self.last: Seal | None = None
        # How many steps are turned, n, and the seal of the cotangent's file.
        self.newest: tuple[int, int, Seal] | None = None

    def is_due(self, turns: int, dropped: int) -> bool:
        """See `StateStore.is_due`."""
        return turns >= self.every or (turns > 0 and self.slots is not None and dropped >= self.slots)

    def begin(self, identity: Identity, sample: Sample, is_new: bool) -> None:
        """See `StateStore.begin`."""
        # What cannot be encoded is told before anything is written.
        need = self.need(sample)
        is_made = self.make_folder()
        self.lock.take()
        try:
            self.clear(sample.slots)
            self.open(self.header(identity), is_new, need)
        except BaseException:
            if is_made and not self.journal.size:
                # A run that was refused leaves nothing behind.
                unlink(self.journal.path)
                with contextlib.suppress(OSError):
                    self.path.rmdir()
            self.end()
            raise

    def keep(self, key: Key, value: Any) -> None:
        """See `StateStore.keep`."""
        self.given_up.pop(key, None)
        # A state that is there already is this one: a state's index says what it is.
        if key not in self.held:
            sealed = write(self.file(key), self.codec.encode(value))
            self.journal.append(["keep", *key, *sealed])
            self.held[key] = sealed

    def load(self, key: Key) -> Any:
        """See `StateStore.load`."""
        if key not in self.held:
            raise StoreError(self.path, f"it holds no {key}", "keep it first")
        return self.codec.decode(read(self.file(key), self.held[key]))

    def drop(self, key: Key) -> None:
        """See `StateStore.drop`."""
        if key in self.held:
            self.given_up[key] = None

    def keys(self) -> Collection[Key]:
        """See `StateStore.keys`. A state whose file was gone when the run began is not among them."""
        return tuple(self.held)

    def mark(self, milestone: Milestone) -> None:
        """See `StateStore.mark`."""
        if milestone.last is not None and self.last is None:
            last = write(self.path / "last", self.codec.encode(milestone.last))
            self.journal.append(["last", *last])
            self.last = last
        before = self.newest
        sealed = write(self.cotangent(milestone.turned), self.cotangents.encode(milestone.cotangent))
        self.journal.append(["turned", milestone.turned, milestone.steps, *sealed])
        self.newest = (milestone.turned, milestone.steps, sealed)
        if before is not None and before[0] != milestone.turned:
            unlink(self.cotangent(before[0]))

    def settle(self) -> None:
        """See `StateStore.settle`."""
        for key in self.given_up:
            # Not flushed: should the line be lost with the power, a state without a file counts as gone.
            self.journal.append(["drop", *key], is_flushed=False)
            del self.held[key]
            unlink(self.file(key))
        self.given_up.clear()
        if self.journal.size > max(SHORT_BYTES, 4 * LINE_BYTES * (len(self.held) + 3)):
            self.journal.replace([self.run, *self.entries()])

    def latest(self) -> Milestone | None:
        """See `StateStore.latest`."""
        if self.newest is None:
            return None
        turned, steps, sealed = self.newest
        afresh = "bring it back from a copy, or call remove() on this store to start afresh"
        cotangent = self.cotangents.decode(read(self.cotangent(turned), sealed, afresh))
        last = self.codec.decode(read(self.path / "last", self.last, afresh)) if self.last else None
        return Milestone(steps, turned, cotangent, last)

    def end(self) -> None:
        """See `StateStore.end`."""
        self.journal.close()
        self.lock.release()

    def remove(self) -> None:
        """Throws the run away: removes the store's files, and the folder if nothing else is in it.

        Raises:
            StoreError: the folder is in use by a run, or files cannot be removed.
        """
        if not self.path.exists():
            return
        self.lock.take()
        try:
            # The journal last: without it the other files would belong to nobody.
            for path in sorted(self.own_files(), key=lambda path: path.name == "journal"):
                path.unlink()
            if not any(self.path.iterdir()):
                self.path.rmdir()
        except OSError as error:
            raise refused(error, self.path, "it could not be removed") from error
        finally:
            self.lock.release()

    def open(self, run: list[Any], is_new: bool, need: int) -> None:
        """Reads the journal, checks whose it is and whether there is room, and removes what a killed process left."""
        self.check_files()
        entries = self.journal.read()
        self.run = run
        if entries and is_new:
            raise StoreError(self.path, f"it holds {run_in_words(entries[0])}", START_AFRESH)
        if entries and entries[0] != run:
            words = f"it holds {run_in_words(entries[0])}, and this is {run_in_words(run)}"
            raise StoreError(self.path, words, START_AFRESH)
        for entry in entries[1:]:
            self.take(entry)
        self.check_room(need)
        if not entries:
            self.journal.append(run)
        for key in [key for key in self.held if not self.file(key).exists()]:
            # Its user removed it, being damaged: it is computed again.
            self.journal.append(["drop", *key])
            del self.held[key]
        names = self.names()
        for path in self.own_files():
            if path.name not in names:
                unlink(path)

    def take(self, entry: list[Any]) -> None:
        """Takes one line of the journal over."""
        match entry:
            case ["keep", slot, state, is_tape, size, checksum]:
                self.held[Key(slot, state, is_tape)] = Seal(size, checksum)
            case ["drop", slot, state, is_tape]:
                self.held.pop(Key(slot, state, is_tape), None)
            case ["last", size, checksum]:
                self.last = Seal(size, checksum)
            case ["turned", turned, steps, size, checksum]:
                self.newest = (turned, steps, Seal(size, checksum))
            case _:
                raise StoreError(self.journal.path, f"it holds an unknown line {entry}", "resume with the same version")

    def entries(self) -> list[list[Any]]:
        """The lines that say what there is, in the order in which they may be read."""
        lines: list[list[Any]] = [["keep", *key, *sealed] for key, sealed in self.held.items()]
        if self.last is not None:
            lines.append(["last", *self.last])
        if self.newest is not None:
            turned, steps, sealed = self.newest
            lines.append(["turned", turned, steps, *sealed])
        return lines

    def names(self) -> set[str]:
        """The names of the files that count."""
        names = {"journal", *(self.file(key).name for key in self.held)}
        if self.last is not None:
            names.add("last")
        if self.newest is not None:
            names.add(self.cotangent(self.newest[0]).name)
        return names

    def header(self, identity: Identity) -> list[Any]:
        return ["run", FORMAT, identity.schedule, identity.steps, self.codec.name(), self.cotangents.name()]

    def make_folder(self) -> bool:
        """Makes the folder if it is not there, and says whether it was not."""
        try:
            is_there = self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise refused(error, self.path, "the folder could not be made") from error
        return not is_there

    def own_files(self) -> list[Path]:
        return [path for path in self.path.iterdir() if OWN.fullmatch(path.name)]

    def check_files(self) -> None:
        """Refuses a folder without a journal that holds anything but the beginning of a run."""
        names = sorted(path.name for path in self.path.iterdir() if path.suffix != PART or not OWN.fullmatch(path.name))
        if names and "journal" not in names:
            words = f"it holds other files, such as {names[0]!r}, and no journal of a run"
            raise StoreError(self.path, words, "give a folder that is empty, or does not exist yet")

    def need(self, sample: Sample) -> int:
        """The bytes that the run needs at most, or 0 if nobody knows the number of slots."""
        state = len(self.codec.encode(sample.state))
        cotangent = state if sample.cotangent is None else len(self.cotangents.encode(sample.cotangent))
        if sample.slots is None:
            return 0
        slots = sample.slots if self.every == 1 else 2 * sample.slots
        return (slots + 2) * state + 2 * cotangent

    def check_room(self, need: int) -> None:
        used = sum(sealed.size for sealed in self.held.values())
        free = shutil.disk_usage(self.path).free
        if need - used > free:
            words = f"the run needs {need - used} bytes more, and {free} are free: {os.strerror(errno.ENOSPC)}"
            raise StoreError(self.path, words, "free some room, give another folder, or a schedule with fewer slots")

    def file(self, key: Key) -> Path:
        return self.path / f"slot-{key.slot}-{'tape' if key.is_tape else 'state'}-{key.state}"

    def cotangent(self, turned: int) -> Path:
        return self.path / f"cotangent-{turned}"


def run_in_words(header: list[Any]) -> str:
    """The run that a journal's first line names, in words."""
    match header:
        case ["run", int(version), schedule, steps, codec, cotangents]:
            by = codec if codec == cotangents else f"{codec} and {cotangents}"
            return f"a run of {schedule} with steps={steps}, written by {by}, format {version}"
        case _:
            return f"a run that starts with {header!r}"
