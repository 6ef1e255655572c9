"""Which schedule to take: every one that fits into the memory and on the disk that there are, the fastest first."""

from __future__ import annotations

from adjoint.errors import ScheduleError, checked_cost, checked_integer
from adjoint.multitier import HRevolve
from adjoint.offline import Binomial, StoreAll
from adjoint.online import Online
from adjoint.report import COST_ADVICE, Report, explain
from adjoint.schedule import Schedule, checked_steps
from adjoint.tiers import Tier
from adjoint.twolevel import Overlapped, TwoLevel

# The table of an online schedule is made in a time that grows as the square of its slots (time `store_table(256)`).
MOST_ONLINE = 128
# The tables of HRevolve have so many entries at most: steps times slots in memory (time `HRevolve.cost`).
MOST_ENTRIES = 100_000
BUFFERS = 2


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
    """Reports on the schedules that fit, of the six kinds tried, the fastest first.

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
    checked_cost("write", write, COST_ADVICE)
    checked_cost("read", read, COST_ADVICE)
    checked_cost("step_cost", step_cost, COST_ADVICE)
    if room < 1 and space < 1:
        given = f"memory={memory} and disk={disk}"
        raise ScheduleError("memory", given, f"room for one state of {size} bytes", f"give at least {size} bytes")
    fitting = [(schedule, (Tier("memory", room),)) for schedule in within(n, room)]
    fitting += [(schedule, (Tier("disk", space, write, read),)) for schedule in within(n, space)]
    fitting += on_both(n, room, space, write, read, step_cost)
    reports = [
        explain(
            schedule,
            n,
            state_bytes=size,
            step_cost=step_cost,
            adjoint_cost=adjoint_cost,
            tiers=tiers,
            unit=unit,
        )
        for schedule, tiers in fitting
    ]
    return tuple(sorted(reports, key=lambda report: report.time))


def within(steps: int, slots: int) -> list[Schedule]:
    """The schedules of one tier for so many slots."""
    if slots < 1:
        return []
    if slots >= steps:
        return [StoreAll()]
    return [Binomial(slots), Online(min(slots, MOST_ONLINE))]


def on_both(
    steps: int, room: int, space: int, write: float, read: float, step_cost: float
) -> list[tuple[Schedule, tuple[Tier, ...]]]:
    """The schedules of two tiers for so many slots in memory and on the disk."""
    if min(room, space) < 1 or room >= steps:
        return []
    memory, disk = Tier("memory", room), Tier("disk", space, write, read)
    fitting: list[tuple[Schedule, tuple[Tier, ...]]] = []
    if steps * room <= MOST_ENTRIES:
        fitting.append((HRevolve((memory, disk), step_cost), (memory, disk)))
    periods = [period for period in lengths(steps) if -(-steps // period) <= space]
    if periods:
        levels = [TwoLevel(period, room) for period in periods]
        fitting.append((min(levels, key=lambda level: time(level, steps, disk, step_cost)), (memory, disk)))
    if room > BUFFERS and step_cost > 0:
        # Written and read beside the steps, as `Asynchronous` does; what is on its way lies in memory.
        beside = Overlapped(room - BUFFERS, Tier("disk", space, write, read, buffers=BUFFERS), step_cost)
        fitting.append((beside, beside.tiers))
    return fitting


def lengths(steps: int) -> list[int]:
    """Periods to try, from one step to all of them, a few in each octave."""
    found, period = [1], 1
    while period < steps:
        period = min(max(period + 1, period * 5 // 4), steps)
        found.append(period)
    return found


def time(schedule: Schedule, steps: int, disk: Tier, step_cost: float) -> float:
    """The time of a schedule of two tiers whose transfers stop the steps, but for the turns."""
    cost = schedule.cost(steps)
    slow = cost.traffic[1]
    return cost.advances * step_cost + slow.stores * disk.write + slow.restores * disk.read
