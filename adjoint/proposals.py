"""Which schedule to take: every one that fits into the memory and on the disk that there are, the fastest first."""

from __future__ import annotations

from adjoint.errors import ScheduleError, checked_integer
from adjoint.offline import Binomial, StoreAll
from adjoint.online import Online
from adjoint.report import Medium, Report, checked_price, explain
from adjoint.schedule import Schedule, checked_steps

# The table of an online schedule is made in a time that grows as the square of its slots (time `store_table(256)`).
MOST_ONLINE = 128


def propose(
    steps: int,
    state_bytes: int,
    memory: int,
    *,
    disk: int = 0,
    write: float = 0.0,
    read: float = 0.0,
    step_cost: float = 1.0,
    adjoint_cost: float = 1.0,
    unit: str = "steps",
) -> tuple[Report, ...]:
    """Reports on every schedule that fits, the fastest first.

    Args:
        steps: n >= 1.
        state_bytes: the size of one state.
        memory: bytes of memory for stored states.
        disk: bytes of disk for stored states; by default there is no disk.
        write: the time of writing one state to the disk.
        read: the time of reading one.
        step_cost: the time of one step evaluation, 1 by default: the unit of all costs.
        adjoint_cost: the time of one step's adjoint, its taped evaluation not counted.
        unit: what the unit of the costs is called.

    Returns:
        Reports, in the order of their predicted times, at least one.

    Raises:
        ScheduleError: an argument is no such number, or not even one state fits anywhere.

    Cost: that of `explain` for each candidate.

    >>> for report in propose(1000, 8_000_000, 1_000_000_000):
    ...     print(report.schedule, report.time)
    Binomial(slots=125, joined=False) 3875.0
    Online(slots=125, leaf=0) 3875.0
    """
    n = checked_integer("steps", checked_steps(steps), 1, "give the number of steps of the chain")
    size = checked_integer("state_bytes", state_bytes, 1, "give the size of one state in bytes")
    room = checked_integer("memory", memory, 0, "give the memory for stored states in bytes") // size
    space = checked_integer("disk", disk, 0, "give the room for stored states on the disk in bytes") // size
    checked_price("write", write)
    checked_price("read", read)
    if room < 1 and space < 1:
        given = f"memory={memory} and disk={disk}"
        raise ScheduleError("memory", given, f"room for one state of {size} bytes", f"give at least {size} bytes")
    fitting = [(schedule, Medium("memory")) for schedule in within(n, room)]
    fitting += [(schedule, Medium("disk", write, read)) for schedule in within(n, space)]
    reports = [
        explain(
            schedule,
            n,
            state_bytes=size,
            step_cost=step_cost,
            adjoint_cost=adjoint_cost,
            tiers=[medium],
            unit=unit,
        )
        for schedule, medium in fitting
    ]
    return tuple(sorted(reports, key=lambda report: report.time))


def within(steps: int, slots: int) -> list[Schedule]:
    """The schedules of one tier for so many slots."""
    if slots < 1:
        return []
    if slots >= steps:
        return [StoreAll()]
    return [Binomial(slots), Online(min(slots, MOST_ONLINE))]
