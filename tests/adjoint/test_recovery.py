"""Claims about `adjoint.resume`: killed at any point whatever, a run goes on and gives the same adjoint bit for bit.

Here a kill is an exception that no code of the library catches, raised at one call to the operating system or to the
user's functions after the other: every point at which a process can stop and leave another folder behind.
`tests/adjoint/test_crash.py` kills real processes.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adjoint import (
    Advance,
    Apply,
    Asynchronous,
    Binomial,
    Bytes,
    Discard,
    DiskStore,
    HRevolve,
    MemoryStore,
    Mixed,
    Online,
    Periodic,
    Record,
    Restore,
    StateStore,
    StepError,
    Store,
    StoreAll,
    StoreError,
    Tier,
    Turn,
    resume,
    reverse,
)
from tests.adjoint.chains import SEED, START, State, TwoTiers, apply, record, step, turn, unrolled

STEPS = 6


class Killed(BaseException):
    """The process ends here."""


class Killer:
    """Counts calls, and kills at one of them."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            raise Killed

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with a possible kill before it and one behind it."""

        def watched(*arguments: Any, **options: Any) -> Any:
            self()
            answer = function(*arguments, **options)
            self()
            return answer

        return watched


RUNS: dict[str, tuple[Any, int | None, Callable[[int, State], bool] | None]] = {
    "binomial": (Binomial(3), STEPS, None),
    "joined": (Binomial(2, joined=True), STEPS, None),
    "store all": (StoreAll(), STEPS, None),
    "two tiers": (TwoTiers(3), STEPS, None),
    "least time": (HRevolve((Tier("memory", 1), Tier("disk", 2, write=1, read=1))), STEPS, None),
    "tapes": (Mixed(3), STEPS, None),
    "online": (Online(3), STEPS, None),
    "online, end unknown": (Online(2), None, lambda i, state: i == STEPS),
    "periodic, end unknown": (Periodic(3), None, lambda i, state: i == STEPS),
}


def stores(folder: Path, schedule: Any, every: int) -> list[StateStore]:
    disk = DiskStore(folder, every=every)
    return [MemoryStore(), disk] if isinstance(schedule, TwoTiers | HRevolve) else [disk]


def attempt(folder: Path, name: str, every: int, killer: Killer | None) -> Any:
    """One process's part of a run; None if it was killed."""
    schedule, steps, until = RUNS[name]
    watch = killer.around if killer else lambda function: function
    with pytest.MonkeyPatch.context() as patch:
        # Nothing here outlives a power failure, so flushing, which takes milliseconds, is only a place to be killed at.
        patch.setattr(os, "fsync", watch(lambda descriptor: None))
        patch.setattr(os, "replace", watch(os.replace))
        patch.setattr(Path, "unlink", watch(Path.unlink))
        run = (schedule, steps, watch(step), watch(turn), START, SEED)
        try:
            tapes = {"record": watch(record), "apply": watch(apply)}
            return resume(*run, store=stores(folder, schedule, every), until=until, **tapes)
        except Killed:
            return None


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


OFTEN = [(name, 1) for name in RUNS]


@pytest.mark.parametrize(("name", "every"), [*OFTEN, ("binomial", 3), ("two tiers", 3), ("tapes", 3)])
def test_a_run_killed_anywhere_gives_the_same_adjoint(name: str, every: int, tmp_path: Path) -> None:
    count = Killer(at=0)
    attempt(tmp_path / "whole", name, every, count)
    assert count.calls > 50
    for at in range(1, count.calls + 1):
        folder = tmp_path / str(at)
        assert attempt(folder, name, every, Killer(at)) is None
        result = attempt(folder, name, every, None)
        assert result.cotangent == unrolled(STEPS)[1]
        assert result.state in (unrolled(STEPS)[0], None)
        assert files(folder) - {"last"} == {"journal", f"cotangent-{STEPS}"}


@given(data=st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_run_killed_again_and_again_gets_there(data: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("run")
    name = data.draw(st.sampled_from(sorted(RUNS)))
    for at in data.draw(st.lists(st.integers(1, 60), max_size=8)):
        attempt(folder, name, 2, Killer(at))
    assert attempt(folder, name, 2, None).cotangent == unrolled(STEPS)[1]


def test_what_was_turned_is_not_turned_again(tmp_path: Path) -> None:
    run = (Binomial(3), 50, step, turn, START, SEED)
    turned: list[int] = []

    def until_step(last: int) -> Callable[..., State]:
        def back(i: int, state: State, bar: State) -> State:
            if i == last:
                raise Killed
            turned.append(i)
            return turn(i, state, bar)

        return back

    for last in (40, 20, -1):
        try:
            result = resume(*run[:3], until_step(last), START, SEED, store=DiskStore(tmp_path))
        except Killed:
            continue
        assert result.turns == 21
        assert result.recomputed == 0
    assert turned == list(reversed(range(50)))


def test_states_in_memory_are_made_again_in_one_sweep(tmp_path: Path) -> None:
    def back(i: int, state: State, bar: State) -> State:
        if i == 17:
            raise Killed
        return turn(i, state, bar)

    run = (TwoTiers(10), 30)
    with pytest.raises(Killed):
        reverse(*run, step, back, START, SEED, store=[MemoryStore(), DiskStore(tmp_path)])
    result = resume(*run, step, turn, START, SEED, store=[MemoryStore(), DiskStore(tmp_path)])
    assert result.cotangent == unrolled(30)[1]
    # State 10 is on disk; 11..17 were in memory, and interval 0 is run by the schedule itself.
    assert (result.recomputed, result.advances, result.turns) == (7, 9, 18)


def test_a_finished_run_gives_its_answer_again_without_a_step(tmp_path: Path) -> None:
    run = (Binomial(3), 20, step, turn, START, SEED)
    first = reverse(*run, store=DiskStore(tmp_path))
    again = resume(*run, store=DiskStore(tmp_path))
    assert (again.cotangent, again.state) == (first.cotangent, first.state) == tuple(reversed(unrolled(20)))
    assert again.evaluations == 0


def test_a_failing_step_leaves_a_run_that_another_process_resumes(tmp_path: Path) -> None:
    run = (Binomial(3), 20, step)
    with pytest.raises(StepError, match="turn failed at step 7"):
        reverse(*run, failing, START, SEED, store=DiskStore(tmp_path))
    result = resume(*run, turn, START, SEED, store=DiskStore(tmp_path))
    assert (result.cotangent, result.turns) == (unrolled(20)[1], 8)


def stopped(folder: Path) -> Path:
    """Makes a run of 20 steps that was stopped in the middle; gives the file of its newest state."""
    with pytest.raises(StepError):
        reverse(Binomial(4), 20, step, failing, START, SEED, store=DiskStore(folder))
    return max(folder.glob("slot-*"), key=lambda path: int(path.name.rpartition("-")[2]))


def failing(i: int, state: State, bar: State) -> State:
    return turn(i, state, bar) if i != 7 else 1 / 0  # pyright: ignore


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a flipped bit": (lambda data: data[:9] + bytes([data[9] ^ 4]) + data[10:], "its checksum is wrong"),
    "cut short": (lambda data: data[:-3], "bytes of .* are there"),
    "emptied": (lambda data: b"", "0 bytes of .* are there"),
}


@pytest.mark.parametrize(("harm", "words"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_state_is_told_and_its_removal_loses_nothing(
    harm: Callable[[bytes], bytes], words: str, tmp_path: Path
) -> None:
    run = (Binomial(4), 20, step, turn, START, SEED)
    path = stopped(tmp_path)
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(StoreError, match=words) as caught:
        resume(*run, store=DiskStore(tmp_path))
    assert caught.value.place == path
    assert "remove this file and resume" in str(caught.value)
    path.unlink()
    result = resume(*run, store=DiskStore(tmp_path))
    assert result.cotangent == unrolled(20)[1]
    assert result.recomputed > 0


@pytest.mark.parametrize("name", ["cotangent-12", "last", "journal"])
def test_damage_to_what_cannot_be_made_again_is_told(name: str, tmp_path: Path) -> None:
    stopped(tmp_path)
    path = tmp_path / name
    data = path.read_bytes()
    path.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
    with pytest.raises(StoreError, match=r"damaged.*bring (it )?back") as caught:
        resume(Binomial(4), 20, step, turn, START, SEED, store=DiskStore(tmp_path))
    assert caught.value.place == path
    path.write_bytes(data)
    assert resume(Binomial(4), 20, step, turn, START, SEED, store=DiskStore(tmp_path)).cotangent == unrolled(20)[1]


def test_an_asynchronous_run_is_resumed_as_well(tmp_path: Path) -> None:
    def back(i: int, state: State, bar: State) -> State:
        if i == 9:
            raise Killed
        return turn(i, state, bar)

    with pytest.raises(Killed):
        reverse(Binomial(3), 30, step, back, START, SEED, store=Asynchronous(DiskStore(tmp_path)))
    result = resume(Binomial(3), 30, step, turn, START, SEED, store=Asynchronous(DiskStore(tmp_path)))
    assert (result.cotangent, result.turns) == (unrolled(30)[1], 10)


def test_another_codec_is_another_run(tmp_path: Path) -> None:
    stopped(tmp_path)
    with pytest.raises(StoreError, match=r"a run of Binomial.* written by Pickle, .* written by Pickle and Bytes"):
        resume(Binomial(4), 20, step, turn, START, b"", store=DiskStore(tmp_path, cotangents=Bytes()))


def test_tapes_in_memory_are_made_again(tmp_path: Path) -> None:
    """A schedule with tapes in tier 0 and states in tier 1: the tapes do not survive, the states do."""

    class Tapes:
        def actions(self, steps: int) -> Any:
            yield Store(0, 0, tier=1)
            for i in range(steps):
                yield Record(i, i)
            for i in reversed(range(steps)):
                yield Apply(i, i)
                yield Discard(i, i)

    def interrupted(i: int, tape: State, bar: State) -> State:
        if i == 5:
            raise Killed
        return apply(i, tape, bar)

    run = (Tapes(), 9, step, turn, START, SEED)
    with pytest.raises(Killed):
        reverse(*run, store=[MemoryStore(), DiskStore(tmp_path)], record=record, apply=interrupted)
    result = resume(*run, store=[MemoryStore(), DiskStore(tmp_path)], record=record, apply=apply)
    assert result.cotangent == unrolled(9)[1]
    assert (result.recomputed, result.turns, result.taped) == (6, 6, 0)


def test_a_working_state_that_goes_on_after_a_tape_is_made_again(tmp_path: Path) -> None:
    """After an apply the working state stays; a schedule may advance it without a restore."""

    class Onward:
        def actions(self, steps: int) -> Any:
            yield Store(0, 0)
            yield Advance(0, 3)
            yield Record(3, 1)
            yield Restore(0, 0)
            yield Advance(0, 1)
            yield Apply(3, 1)
            yield Advance(1, 2)
            yield Turn(2)
            for i in (1, 0):
                yield Restore(0, 0)
                if i:
                    yield Advance(0, i)
                yield Turn(i)

    def interrupted(i: int, state: State, bar: State) -> State:
        raise Killed

    run = (Onward(), 4, step)
    with pytest.raises(Killed):
        reverse(*run, interrupted, START, SEED, store=DiskStore(tmp_path), record=record, apply=apply)
    result = resume(*run, turn, START, SEED, store=DiskStore(tmp_path), record=record, apply=apply)
    assert (result.cotangent, result.turns, result.recomputed) == (unrolled(4)[1], 3, 1)
