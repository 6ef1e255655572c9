"""What a schedule costs on a chain, in words and numbers: evaluations, memory and traffic of each tier, and time.

Everything is counted by a replay, so a report is right about any schedule, a user's own too. The time is a prediction
from the costs that are given: transfers stop the steps, but for those of a tier with buffers, which go on beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from adjoint.binomial import advances
from adjoint.errors import checked_cost, checked_integer
from adjoint.replay import HasActions, replay
from adjoint.schedule import Schedule, Traffic, checked_steps
from adjoint.tiers import Tier, checked_tiers

# Beyond so many steps a schedule of this package is not replayed, but tells by itself what it costs.
REPLAYED = 20_000


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
        buffers: states that may be on their way besides, which lie in the memory of the steps.

    >>> Use("memory", slots=3, bytes=300, stores=7, restores=10, time=0.0).slots
    3
    """

    name: str
    slots: int
    bytes: int | None
    stores: int
    restores: int
    time: float
    buffers: int = 0


@dataclass(frozen=True)
class Report:
    """What a schedule costs on one chain, as `explain` finds it. Printing it gives a table.

    Args:
        schedule: the schedule.
        steps: n.
        evaluations: step evaluations, the taped ones of the turns included.
        least: the fewest evaluations that any split schedule with as many slots, of states, can have; one
            whose slots hold tapes may need fewer.
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
            beside = f", beside {use.buffers} buffers in memory" if use.buffers else ""
            spent = f" in {in_unit(use.time, self.unit)}" if use.time else ""
            lines.append((use.name, f"{use.slots} slots{size}; {moved}{spent}{beside}"))
        return "\n".join(f"{name:<12} {text}" for name, text in lines)


def explain(
    schedule: HasActions,
    steps: int,
    *,
    state_bytes: int | None = None,
    step_cost: float = 1.0,
    adjoint_cost: float = 1.0,
    tiers: Sequence[Tier] = (),
    unit: str = "steps",
) -> Report:
    """Says what a schedule costs on a chain, without running a step.

    Args:
        schedule: anything with `actions(steps)`.
        steps: n >= 0.
        state_bytes: the size of one state, if the memory is to be told in bytes.
        step_cost: the time of one step evaluation, 1 by default: the unit of all costs.
        adjoint_cost: the time of one step's adjoint, its taped evaluation not counted.
        tiers: the tiers by number; by default as many as it uses, with any number of slots, at no cost.
        unit: what the unit of the costs is called; "s" is told in hours and minutes.

    Returns:
        A report, which prints as a table.

    Raises:
        ScheduleError: an argument is wrong, or the schedule has no answer.
        InvariantError: the schedule is wrong, or uses tiers or slots that there are not.

    Cost: that of a replay; beyond 20,000 steps that of `schedule.cost`. Transfers beside the steps are then taken to
        hide behind them as far as their time lasts, and the slots are not checked.

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
    checked_cost("step_cost", step_cost, COST_ADVICE)
    checked_cost("adjoint_cost", adjoint_cost, COST_ADVICE)
    tiers = checked_tiers(tiers, ordered=False) if tiers else unnamed(schedule, n)
    if n > REPLAYED and isinstance(schedule, Schedule):
        cost = schedule.cost(n)
        evaluations, traffic, time = cost.evaluations, cost.traffic, None
        # Each turn restores a state, or nearly so.
        traffic = traffic or (Traffic(cost.slots, cost.stores or 0, n),)
    else:
        counts = replay(schedule, n, tiers=tiers, step_cost=step_cost, adjoint_cost=adjoint_cost)
        evaluations, traffic, time = counts.evaluations, counts.traffic, counts.makespan
    uses = tuple(use(tier, there, state_bytes) for tier, there in zip_longest(tiers, traffic[: len(tiers)]))
    if time is None:
        hidden = [use.time for use, tier in zip(uses, tiers, strict=True) if tier.buffers]
        stopping = sum(use.time for use, tier in zip(uses, tiers, strict=True) if not tier.buffers)
        time = max([evaluations * step_cost + n * adjoint_cost + stopping, *hidden])
    slots = sum(use.slots for use in uses)
    least = advances(n + 1, slots) + n if n and slots else n
    return Report(schedule, n, evaluations, least, uses, time, unit)


def unnamed(schedule: HasActions, steps: int) -> tuple[Tier, ...]:
    """As many tiers as a schedule uses, of any size and at no cost."""
    told = schedule.cost(steps) if isinstance(schedule, Schedule) else replay(schedule, steps)
    others = (Tier(f"tier {number}", None) for number in range(1, len(told.traffic)))
    return (Tier("memory", None), *others)


COST_ADVICE = "give a time in the unit of all the costs"


def use(tier: Tier, traffic: Traffic | None, state_bytes: int | None) -> Use:
    """What a schedule does with one tier."""
    there = traffic or Traffic(0, 0, 0)
    size = None if state_bytes is None else there.slots * state_bytes
    time = there.stores * tier.write + there.restores * tier.read
    return Use(tier.name, there.slots, size, there.stores, there.restores, time, tier.buffers)


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
