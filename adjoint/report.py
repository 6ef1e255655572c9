"""What a schedule costs on a chain, in words and numbers: evaluations, memory and traffic of each tier, and time.

Everything is counted from the actions themselves, so a report is right about any schedule, a user's own too. The time
is a prediction from the costs that are given: steps, adjoints and transfers one after the other, but for the transfers
of a tier with buffers, which go on beside the steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

from adjoint.actions import Advance, Discard, Restore, Store, Turn
from adjoint.binomial import advances
from adjoint.errors import ScheduleError, checked_integer
from adjoint.replay import HasActions
from adjoint.schedule import Schedule, checked_steps

# Beyond so many steps the actions are not run through if the schedule itself can tell what they cost.
COUNTED = 20_000


class Priced(Protocol):
    """A tier's name, what one write and one read cost, and how many states may be under way beside the steps."""

    @property
    def name(self) -> str: ...
    @property
    def write(self) -> float: ...
    @property
    def read(self) -> float: ...
    @property
    def buffers(self) -> int: ...


@dataclass(frozen=True)
class Medium:
    """What states are kept in, and what moving one costs.

    Args:
        name: what reports call it.
        write: the cost of writing one state, >= 0, in the unit of `step_cost`; by default 0, as in memory.
        read: the cost of reading one, >= 0.
        buffers: states that may be under way while steps run; by default 0, where a transfer stops the steps.

    Raises:
        ScheduleError: a cost is negative, infinite or NaN.

    >>> Medium("disk", write=0.02, read=0.01).name
    'disk'
    """

    name: str
    write: float = 0.0
    read: float = 0.0
    buffers: int = 0

    def __post_init__(self) -> None:
        checked_price("write", self.write)
        checked_price("read", self.read)


@dataclass(frozen=True)
class Use:
    """What a schedule does with one tier.

    Args:
        name: the tier's name.
        slots: the most states that are kept there at once.
        bytes: their size, or None if the size of a state is not known.
        stores: states written.
        restores: states read.
        time: what that costs, in the unit of the costs.

    >>> Use("memory", slots=3, bytes=300, stores=7, restores=10, time=0.0).slots
    3
    """

    name: str
    slots: int
    bytes: int | None
    stores: int
    restores: int
    time: float


@dataclass(frozen=True)
class Report:
    """What a schedule costs on one chain, as `explain` finds it. Printing it gives a table.

    Args:
        schedule: the schedule.
        steps: n.
        evaluations: step evaluations, the taped ones of the turns included.
        least: the fewest evaluations that any split schedule with as many slots in all can have.
        uses: what it does with each tier.
        time: predicted time, in the unit of the costs.
        unit: what that unit is called.

    >>> from adjoint import Binomial
    >>> report = explain(Binomial(8), 1000, state_bytes=8_000_000)
    >>> report.evaluations, report.extra, report.uses[0].bytes
    (5290, 3290, 64000000)
    """

    schedule: HasActions
    steps: int
    evaluations: int
    least: int
    uses: tuple[Use, ...]
    time: float
    unit: str

    @property
    def extra(self) -> int:
        """Evaluations beyond those of keeping every state, two for each step."""
        return max(self.evaluations - 2 * self.steps, 0)

    def __str__(self) -> str:
        times = f"{self.evaluations / self.steps:.2f}" if self.steps else "no"
        lines = [
            ("schedule", f"{self.schedule}"),
            ("steps", f"{self.steps}"),
            ("evaluations", f"{self.evaluations}, {times} for each step"),
            ("  extra", f"{self.extra}, beyond keeping every state"),
            ("  least", f"{self.least}, for as many slots in all"),
            ("time", in_unit(self.time, self.unit)),
        ]
        for use in self.uses:
            size = "" if use.bytes is None else f", {in_bytes(use.bytes)}"
            moved = f"{use.stores} stores and {use.restores} restores"
            spent = f" in {in_unit(use.time, self.unit)}" if use.time else ""
            lines.append((use.name, f"{use.slots} slots{size}; {moved}{spent}"))
        return "\n".join(f"{name:<12} {text}" for name, text in lines)


def explain(
    schedule: HasActions,
    steps: int,
    *,
    state_bytes: int | None = None,
    step_cost: float = 1.0,
    adjoint_cost: float = 1.0,
    tiers: Sequence[Priced] = (),
    unit: str = "steps",
) -> Report:
    """Says what a schedule costs on a chain, without running a step.

    Args:
        schedule: anything with `actions(steps)`.
        steps: n >= 0.
        state_bytes: the size of one state, if the memory is to be told in bytes.
        step_cost: the time of one step evaluation, 1 by default: the unit of all costs.
        adjoint_cost: the time of one step's adjoint, its taped evaluation not counted.
        tiers: names and costs of the tiers, the fastest first; by default one, the memory, which costs nothing.
        unit: what the unit of the costs is called; "s" is told in hours and minutes.

    Returns:
        A report, which prints as a table.

    Raises:
        ScheduleError: an argument is wrong, the schedule has no answer, or it uses more tiers than are given.

    Cost: one integer operation per action; beyond 20,000 steps that of `schedule.cost`, where there is one tier.

    >>> from adjoint import Online
    >>> print(explain(Online(8), 100, state_bytes=1000, step_cost=0.5, adjoint_cost=1.0, unit="s"))
    schedule     Online(slots=8, leaf=0)
    steps        100
    evaluations  349, 3.49 for each step
      extra      149, beyond keeping every state
      least      348, for as many slots in all
    time         4 min 34 s
    memory       8 slots, 8.0 kB; 90 stores and 100 restores
    """
    n = checked_steps(steps)
    if state_bytes is not None:
        state_bytes = checked_integer("state_bytes", state_bytes, 1, "give the size of one state in bytes")
    checked_price("step_cost", step_cost)
    checked_price("adjoint_cost", adjoint_cost)
    tally = Tally()
    if n > COUNTED and isinstance(schedule, Schedule) and len(tiers) <= 1:
        tally.predict(schedule, n)
    else:
        tally.count(schedule, n)
    media = list(tiers) or [Medium("memory")]
    if max(tally.peaks, default=0) >= len(media):
        used = max(tally.peaks) + 1
        raise ScheduleError("tiers", [tier.name for tier in media], f"{used} of them", "name every tier it uses")
    uses = tuple(tally.use(tier, medium, state_bytes) for tier, medium in enumerate(media))
    hidden = [use.time for use, medium in zip(uses, media, strict=True) if medium.buffers]
    stopping = sum(use.time for use, medium in zip(uses, media, strict=True) if not medium.buffers)
    running = tally.evaluations * step_cost + n * adjoint_cost + stopping
    slots = sum(use.slots for use in uses)
    least = advances(n + 1, slots) + n if n and slots else n
    return Report(schedule, n, tally.evaluations, least, uses, max([running, *hidden]), unit)


class Tally:
    """Counts of a schedule's actions."""

    def __init__(self) -> None:
        self.evaluations = 0
        self.stores: Counter[int] = Counter()
        self.restores: Counter[int] = Counter()
        self.peaks: dict[int, int] = {}

    def count(self, schedule: HasActions, steps: int) -> None:
        """Counts action by action."""
        held: dict[int, set[int]] = {}
        for action in schedule.actions(steps):
            match action:
                case Advance():
                    self.evaluations += action.stop - action.start
                case Turn():
                    self.evaluations += 1
                case Store():
                    tier = getattr(action, "tier", 0)
                    self.stores[tier] += 1
                    here = held.setdefault(tier, set())
                    here.add(action.slot)
                    self.peaks[tier] = max(self.peaks.get(tier, 0), len(here))
                case Restore():
                    self.restores[getattr(action, "tier", 0)] += 1
                case Discard():
                    held.get(getattr(action, "tier", 0), set()).discard(action.slot)
                case _:
                    pass

    def predict(self, schedule: Schedule, steps: int) -> None:
        """Takes the schedule's word. Each step but the last is turned from a restored state, or nearly so."""
        cost = schedule.cost(steps)
        self.evaluations, self.stores[0], self.peaks[0] = cost.evaluations, cost.stores or 0, cost.slots
        self.restores[0] = steps

    def use(self, tier: int, medium: Priced, state_bytes: int | None) -> Use:
        slots, stores, restores = self.peaks.get(tier, 0), self.stores[tier], self.restores[tier]
        size = None if state_bytes is None else slots * state_bytes
        return Use(medium.name, slots, size, stores, restores, stores * medium.write + restores * medium.read)


def checked_price(argument: str, given: object) -> float:
    """A finite cost >= 0, or a `ScheduleError`."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < inf:
        raise ScheduleError(argument, given, "a finite number >= 0", "give a time in the unit of all the costs")
    return given


def in_bytes(size: int) -> str:
    """A number of bytes in words."""
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError("the last unit takes any amount")


def in_unit(time: float, unit: str) -> str:
    """A time in words."""
    if unit != "s":
        return f"{time:.6g} {unit}"
    if time < 100:
        return f"{time:.3g} s"
    minutes, seconds = divmod(round(time), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    first = next(index for index, (amount, _) in enumerate(parts) if amount)
    # Two units say enough: nobody needs the seconds of a day.
    return " ".join(f"{amount} {name}" for amount, name in parts[first : first + 2])
