"""Overlaps a slow store with the steps: a thread writes what is kept and reads what will be needed, in the background.

Everything that changes the store goes through one queue in order, so at every moment the store is as it would have been
without the thread, only earlier; what a killed process had queued was not kept yet, and is computed again.
The memory is bounded: a state that finds the queue full waits, and reading ahead stops when enough states are ready.
"""

from __future__ import annotations

import copy
from bisect import insort
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from threading import Condition, Thread
from time import perf_counter
from typing import Any, NamedTuple

from adjoint.errors import checked_integer
from adjoint.store import Identity, Key, Milestone, Sample, StateStore, copied


@dataclass(frozen=True)
class Overlap:
    """How much of a store's work was hidden behind the steps.

    Args:
        busy: seconds that the store worked.
        waited: seconds of these, or on top of them, that the steps had to wait.

    >>> print(Overlap(busy=10.0, waited=1.0))
    the store worked for 10.00 s and the steps waited 1.00 s for it: 90 % were hidden
    """

    busy: float
    waited: float

    @property
    def hidden(self) -> float:
        """The part of the store's work that the steps did not wait for, from 0 to 1."""
        return max(0.0, 1.0 - self.waited / self.busy) if self.busy else 1.0

    def __str__(self) -> str:
        return (
            f"the store worked for {self.busy:.2f} s and the steps waited {self.waited:.2f} s for it: "
            f"{self.hidden:.0%} were hidden".replace("%", " %")
        )


class Job(NamedTuple):
    """One change of the store: what to call, and the key of the state or None."""

    call: Callable[[], None]
    key: Key | None
    has_value: bool


class Asynchronous(StateStore):
    """Any store, with its writing and reading done by a thread while the steps run.

    Args:
        store: the slow store.
        room: how many values may wait to be written, and how many may be read ahead; 2 by default, one on its way and
            one waiting. Each one more hides longer bursts and takes the memory of two states.
        copy: copies a state before it waits, as a step may change its state in place. By default `copy.deepcopy`; None
            keeps references, for states that nobody changes, such as JAX arrays.

    Raises:
        ScheduleError: room is below 1.
        StateError: copy cannot copy a state.
        StoreError: whatever the slow store raises; it is raised at the next call, and what was queued behind the
            failure is not written.

    Cost: up to 2 room values of memory more than the slow store takes.

    >>> import tempfile
    >>> from adjoint import Binomial, DiskStore, reverse
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Asynchronous(DiskStore(folder))
    ...     double = lambda i, x: 2 * x
    ...     reverse(Binomial(3), 10, double, lambda i, x, bar: 2 * bar, 1.0, 1.0, store=store).cotangent
    1024.0
    >>> 0 <= store.overlap.hidden <= 1
    True
    """

    def __init__(self, store: StateStore, room: int = 2, copy: Callable[[Any], Any] | None = copy.deepcopy) -> None:
        self.store = store
        self.room = checked_integer("room", room, 1, "give the number of values that may wait")
        self.copy = copy
        self.changed = Condition()
        self.thread: Thread | None = None
        self.reset()

    def reset(self) -> None:
        self.jobs: deque[Job] = deque()
        # Values that are in the queue or just being written; a load finds them here.
        self.waiting: dict[Key, Any] = {}
        self.values = 0
        # What a load waits for, and the same if nobody reads it yet.
        self.loading: Key | None = None
        self.urgent: Key | None = None
        # What will be loaded: when, as a count of anything, and its name; the soonest first.
        self.wanted: list[tuple[int, Key]] = []
        self.reading: Key | None = None
        # Values that were read ahead, each with when it will be loaded.
        self.ready: dict[Key, tuple[int, Any]] = {}
        self.failure: BaseException | None = None
        self.is_idle = True
        self.is_ending = False
        self.busy = self.waited = 0.0

    @property
    def overlap(self) -> Overlap:
        """How much was hidden, since the run began."""
        return Overlap(self.busy, self.waited)

    def is_due(self, turns: int, dropped: int) -> bool:
        """See `StateStore.is_due`."""
        return self.store.is_due(turns, dropped)

    def begin(self, identity: Identity, sample: Sample, is_new: bool) -> None:
        """See `StateStore.begin`. Starts the thread."""
        self.store.begin(identity, sample, is_new)
        self.reset()
        self.thread = Thread(target=self.work, name="adjoint store", daemon=True)
        self.thread.start()

    def keep(self, key: Key, value: Any) -> None:
        """See `StateStore.keep`. Returns as soon as there is room in the queue."""
        held = self.copied(value)
        with self.changed:
            self.forget(key)
            self.waiting[key] = held
        self.put(Job(lambda: self.store.keep(key, held), key, has_value=True))

    def load(self, key: Key) -> Any:
        """See `StateStore.load`."""
        with self.changed:
            self.check()
            if key in self.waiting:
                self.take(key)
                return self.copied(self.waiting[key])
            self.loading = key
            if key not in self.ready and key != self.reading:
                self.take(key)
                self.urgent = key
                self.changed.notify_all()
            self.wait(lambda: key in self.ready)
            self.loading = None
            return self.ready.pop(key)[1]

    def prefetch(self, key: Key, when: int = 0) -> None:
        """Begins to read a state that will be loaded, as soon as there is time and room.

        Args:
            key: its name; the state is kept.
            when: what comes sooner has a smaller number; of equal ones, the first one asked for is read first.
        """
        with self.changed:
            insort(self.wanted, (when, key), key=lambda wish: wish[0])
            self.changed.notify_all()

    def drop(self, key: Key) -> None:
        """See `StateStore.drop`."""
        with self.changed:
            self.forget(key)
        self.put(Job(lambda: self.store.drop(key), None, has_value=False))

    def keys(self) -> Collection[Key]:
        """See `StateStore.keys`. Waits for the queue to empty."""
        self.drain()
        return self.store.keys()

    def mark(self, milestone: Milestone) -> None:
        """See `StateStore.mark`."""
        held = Milestone(milestone.steps, milestone.turned, self.copied(milestone.cotangent), milestone.last)
        self.put(Job(lambda: self.store.mark(held), None, has_value=True))

    def settle(self) -> None:
        """See `StateStore.settle`."""
        self.put(Job(self.store.settle, None, has_value=False))

    def latest(self) -> Milestone | None:
        """See `StateStore.latest`. Waits for the queue to empty."""
        self.drain()
        return self.store.latest()

    def end(self) -> None:
        """See `StateStore.end`. Waits for the queue to empty, and ends the thread."""
        if self.thread is not None:
            with self.changed:
                self.is_ending = True
                self.changed.notify_all()
            start = perf_counter()
            self.thread.join()
            self.waited += perf_counter() - start
            self.thread = None
        self.store.end()
        self.ready.clear()
        self.check()

    def put(self, job: Job) -> None:
        """Queues a job, when there is room."""
        with self.changed:
            self.check()
            if job.has_value:
                self.wait(lambda: self.values < self.room)
                self.values += 1
            self.jobs.append(job)
            self.changed.notify_all()

    def drain(self) -> None:
        """Waits until nothing is queued."""
        with self.changed:
            self.wait(lambda: not self.jobs and self.is_idle)

    def wait(self, is_so: Callable[[], bool]) -> None:
        """Waits for a condition, counting the time, unless the thread has failed."""
        start = perf_counter()
        self.changed.wait_for(lambda: is_so() or self.failure is not None)
        self.waited += perf_counter() - start
        self.check()

    def check(self) -> None:
        """Raises what the thread has failed with, in every call until the next run begins."""
        if self.failure is not None:
            raise self.failure

    def forget(self, key: Key) -> None:
        """Throws away what was read ahead of a state that changes or goes."""
        self.ready.pop(key, None)
        if self.reading == key:
            self.reading = None
        self.wanted = [wish for wish in self.wanted if wish[1] != key]

    def take(self, key: Key) -> int:
        """Takes the soonest wish for a state off the list, if there is one; answers when it will be loaded."""
        for i, (when, wanted) in enumerate(self.wanted):
            if wanted == key:
                del self.wanted[i]
                return when
        return 0

    def copied(self, value: Any) -> Any:
        return copied("Asynchronous", self.copy, value)

    def work(self) -> None:
        """The thread: a state that is waited for first, then the queue, then what will be needed."""
        while True:
            with self.changed:
                self.is_idle = True
                self.changed.notify_all()
                self.changed.wait_for(lambda: self.urgent or self.jobs or self.next_wanted() or self.is_ending)
                job, key, when = None, self.urgent, 0
                self.urgent = None
                if key is None and self.jobs:
                    job = self.jobs[0]
                elif key is None:
                    wish = self.next_wanted()
                    if wish is None or self.is_ending:
                        return
                    self.make_room()
                    key = wish[1]
                    when = self.take(key)
                self.reading = key
                self.is_idle = False
            start = perf_counter()
            try:
                value = job.call() if job else self.store.load(key) if key else None
            except BaseException as error:
                with self.changed:
                    self.failure = error
                    self.changed.notify_all()
                return
            with self.changed:
                self.busy += perf_counter() - start
                if job:
                    self.finish(job)
                elif key and self.reading == key:
                    self.ready[key] = (when, value)
                self.reading = None

    def finish(self, job: Job) -> None:
        """Takes a finished job off the queue."""
        self.jobs.popleft()
        self.values -= job.has_value
        # A newer value of the same key may be queued behind it.
        if job.key is not None and not any(other.key == job.key for other in self.jobs):
            self.waiting.pop(job.key, None)

    def next_wanted(self) -> tuple[int, Key] | None:
        """The state to read ahead next, if there is room for one more, or if one that is ready will be loaded later."""
        soonest = next((wish for wish in self.wanted if self.is_absent(wish[1])), None)
        if soonest is None or len(self.ready) < self.room:
            return soonest
        latest = max((when for key, (when, _) in self.ready.items() if key != self.loading), default=soonest[0])
        return soonest if soonest[0] < latest else None

    def is_absent(self, key: Key) -> bool:
        """Whether a state would have to be read: it is not ready, and does not wait to be written."""
        return key not in self.ready and key not in self.waiting

    def make_room(self) -> None:
        """Gives up what is ready and will be loaded last, so that what is loaded sooner can be read."""
        if len(self.ready) >= self.room:
            key = max(self.ready.keys() - {self.loading}, key=lambda key: self.ready[key][0])
            insort(self.wanted, (self.ready.pop(key)[0], key), key=lambda wish: wish[0])
