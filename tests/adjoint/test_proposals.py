"""Claims about `adjoint.propose`: everything it names fits, and the first is the fastest."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoint import Binomial, HRevolve, ScheduleError, StoreAll, propose, replay


@given(
    steps=st.integers(1, 200),
    memory=st.integers(0, 3000),
    disk=st.integers(0, 3000),
    write=st.floats(0, 50),
    read=st.floats(0, 50),
)
def test_what_is_proposed_fits_and_the_first_is_the_fastest(
    steps: int, memory: int, disk: int, write: float, read: float
) -> None:
    size = 100
    if max(memory, disk) < size:
        with pytest.raises(ScheduleError, match=r"^memory: got"):
            propose(steps, size, memory, disk=disk, write=write, read=read)
        return
    reports = propose(steps, size, memory, disk=disk, write=write, read=read)
    assert [report.time for report in reports] == sorted(report.time for report in reports)
    room = {"memory": memory, "disk": disk}
    for report in reports:
        assert replay(report.schedule, steps).turns == steps
        assert all(use.buffers == 0 or (report.uses[0].slots + use.buffers) * size <= memory for use in report.uses)
        for use in report.uses:
            assert (use.bytes or 0) <= room[use.name]


def test_every_state_is_kept_where_there_is_room() -> None:
    (report,) = propose(100, 10, 1000)
    assert report.schedule == StoreAll()
    assert report.extra == 0


def test_a_fast_disk_beats_a_small_memory_and_a_slow_one_does_not() -> None:
    fast = propose(1000, 10, 50, disk=10_000, write=0.1, read=0.1)[0]
    slow = propose(1000, 10, 50, disk=10_000, write=1000.0, read=1000.0)[0]
    assert "disk" in [use.name for use in fast.uses if use.slots]
    assert (slow.schedule, [use.name for use in slow.uses if use.slots]) == (Binomial(5), ["memory"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": 0}, r"^steps: got 0"),
        ({"state_bytes": 0}, r"^state_bytes: got 0"),
        ({"memory": -1}, r"^memory: got -1"),
        ({"disk": -1}, r"^disk: got -1"),
        ({"write": -1.0}, r"^write: got -1.0"),
        ({"read": float("nan")}, r"^read: got nan"),
        ({"memory": 5}, r"^memory: got 'memory=5 and disk=0', expected room for one state of 10 bytes"),
    ],
)
def test_bad_arguments_are_refused_by_name(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        propose(**{"steps": 100, "state_bytes": 10, "memory": 100, **options})


def test_memory_and_disk_together_beat_either() -> None:
    both = propose(500, 10, 60, disk=10_000, write=4.0, read=4.0)[0]
    memory = propose(500, 10, 60)[0]
    disk = propose(500, 10, 0, disk=10_000, write=4.0, read=4.0)[0]
    assert both.time < min(memory.time, disk.time)
    assert len([use for use in both.uses if use.slots]) == 2


def test_the_least_time_of_transfers_that_stop_the_steps_is_among_them() -> None:
    reports = propose(300, 10, 50, disk=1000, write=3.0, read=2.0)
    (best,) = [report for report in reports if isinstance(report.schedule, HRevolve)]
    others = [report for report in reports if not any(use.buffers for use in report.uses)]
    assert best.time == min(report.time for report in others)
