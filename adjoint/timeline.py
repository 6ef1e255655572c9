"""How long a schedule takes: a clock that knows what steps, adjoints and transfers cost.

Transfers of a synchronous tier stop the steps, as in Herrmann & Pallez 2020. Those of an asynchronous tier go on beside
them, one after the other over one link per tier; the steps wait only for a buffer, or for a state that has not arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from adjoint.errors import ScheduleError, checked_cost
from adjoint.tiers import Tier

Address = tuple[int, int]
"""A tier and a slot in it."""


class Clock:
    """The time of one replay, beginning at 0."""

    __slots__ = ("adjoint_cost", "announced", "links", "now", "prefix", "step_cost", "tiers", "writes")

    def __init__(
        self, steps: int, tiers: Sequence[Tier], step_cost: float | Sequence[float], adjoint_cost: float
    ) -> None:
        self.tiers = tiers
        self.step_cost, self.prefix = checked_step_cost(step_cost, steps)
        advice = "give the cost of the adjoint of one step, its taped evaluation not counted"
        self.adjoint_cost = checked_cost("adjoint_cost", adjoint_cost, advice)
        self.now: float = 0
        # When each tier's link is free, when its writes under way end, and when what is announced arrives.
        self.links: list[float] = [0 for _ in tiers]
        self.writes: list[list[float]] = [[] for _ in tiers]
        self.announced: list[dict[Address, float]] = [{} for _ in tiers]

    def run(self, start: int, stop: int) -> None:
        """Evaluates steps."""
        self.now += self.prefix[stop] - self.prefix[start] if self.prefix else self.step_cost * (stop - start)

    def apply(self) -> None:
        """Runs the adjoint of one step."""
        self.now += self.adjoint_cost

    def write(self, number: int) -> None:
        """Writes to a tier."""
        tier = self.tiers[number]
        under_way = self.writes[number] = [end for end in self.writes[number] if end > self.now]
        room = tier.buffers - len(self.announced[number])
        if room > 0:
            if len(under_way) >= room:
                self.now = sorted(under_way)[len(under_way) - room]
            under_way.append(self.occupy(number, tier.write))
        else:
            self.now = self.occupy(number, tier.write)

    def announce(self, number: int, address: Address) -> None:
        """Begins to read, where the tier has a buffer for it."""
        tier = self.tiers[number]
        if tier.buffers:
            self.announced[number][address] = self.occupy(number, tier.read)

    def read(self, number: int, address: Address) -> None:
        """Reads from a tier, or waits for what was announced."""
        arrival = self.announced[number].pop(address, None)
        self.now = max(self.now, self.occupy(number, self.tiers[number].read) if arrival is None else arrival)

    def occupy(self, number: int, cost: float) -> float:
        """Sends something over a tier's link as soon as it is free; returns when it has arrived."""
        self.links[number] = max(self.now, self.links[number]) + cost
        return self.links[number]


def checked_step_cost(step_cost: object, steps: int) -> tuple[float, list[float]]:
    """The cost of every step, or the sums of the different costs up to each step; or a `ScheduleError`."""
    if isinstance(step_cost, Iterable) and not isinstance(step_cost, str):
        costs = checked_costs("step_cost", step_cost)
        if len(costs) < steps:
            raise ScheduleError("step_cost", costs, f"a cost for each of {steps} steps", "give one number for all")
        return 0, list(accumulate(costs, initial=0))
    return checked_cost("step_cost", step_cost, "give the cost of one step, or a sequence of one cost per step"), []


def checked_costs(argument: str, costs: Iterable[object]) -> tuple[float, ...]:
    """The costs of the single steps; or a `ScheduleError` that names the first bad one."""
    return tuple(
        checked_cost(f"{argument}[{step}]", cost, "give the cost of each step, in any one unit")
        for step, cost in enumerate(costs)
    )
