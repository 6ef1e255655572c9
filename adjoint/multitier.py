"""Schedules for a known number of steps and several synchronous tiers: who lives where.

`Multistage` runs the steps that binomial checkpointing runs, and gives the busiest slots to the faster tier (Stumm &
Walther 2009). `HRevolve` takes the least time of all, weighing steps against transfers (Herrmann & Pallez 2020), and
`DiskRevolve` is the same with any number of slots on the slower of two tiers (Aupy et al. 2016).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from adjoint.actions import Action, Advance, Apply, Discard, Prefetch, Record, Restore, Store, Turn
from adjoint.errors import ScheduleError, checked_cost
from adjoint.hierarchy import solved, sweeps
from adjoint.offline import Binomial
from adjoint.replay import cost_by_replay
from adjoint.schedule import Cost, Schedule, Traffic, checked_steps
from adjoint.stack import traffic_by_place
from adjoint.tiers import Tier, checked_tiers

STEP_COST_ADVICE = "give the cost of one step in the unit of the tiers' costs"


@dataclass(frozen=True)
class Multistage(Schedule):
    """The steps of `Binomial` with the slots of two tiers together, the busiest slots lying in the faster tier.

    It has the least step evaluations for that many slots. Where transfers are dear `HRevolve` takes less time, by
    writing less and running more steps.

    Args:
        tiers: two tiers, the faster first, both with a number of slots; state 0's slot is counted.
        joined: whether the forward pass runs straight into the first turn, see `Binomial`; by default it does not.

    Raises:
        ScheduleError: not two ordered tiers, or one without limit.

    Cost: as `Binomial(slots of both)`; the traffic of each tier is exact too, in O(s (s + t)) operations.

    >>> schedule = Multistage((Tier("memory", 3), Tier("disk", 2, write=5, read=5)))
    >>> schedule.cost(20).evaluations == Binomial(5).cost(20).evaluations
    True
    >>> next(schedule.actions(20))
    Store(state=0, slot=0, tier=1)
    """

    tiers: tuple[Tier, ...]
    joined: bool = False

    def __post_init__(self) -> None:
        tiers = checked_tiers(self.tiers, least=2, most=2)
        for tier in tiers:
            if tier.slots is None:
                advice = "give the number of slots, or use adjoint.DiskRevolve"
                raise ScheduleError("tiers", tier, "a number of slots in each tier", advice)
        object.__setattr__(self, "tiers", tiers)

    @classmethod
    def for_budget(cls, bytes: int, state_bytes: int, slower: Tier, joined: bool = False) -> Multistage:
        """The schedule with as many slots in memory as fit.

        Args:
            bytes: memory for stored states, in the tier of number 0.
            state_bytes: size of one state, >= 1.
            slower: the other tier.
            joined: as for the class.

        Returns:
            A schedule.

        Raises:
            ScheduleError: not even one state fits, or `slower` is no such tier.

        >>> Multistage.for_budget(1000, 90, slower=Tier("disk", 50, write=1, read=1)).tiers[0].slots
        11
        """
        return cls((Tier.for_budget(bytes, state_bytes, "memory"), slower), joined)

    def actions(self, steps: int) -> Iterator[Action]:
        """See `Schedule.actions`."""
        n = checked_steps(steps)
        addresses = self.addresses(n)
        return moved(Binomial(self.slots, self.joined).actions(n), 0, addresses.__getitem__)

    def cost(self, steps: int) -> Cost:
        """See `Schedule.cost`."""
        n = checked_steps(steps)
        cost = Binomial(self.slots, self.joined).cost(n)
        tiers = [[0, 0, 0] for _ in self.tiers]
        traffic_there = traffic_by_place(self.chain(n), self.slots)
        for (tier, _), (stores, restores) in zip(self.addresses(n), traffic_there, strict=True):
            for entry, amount in enumerate((1, stores, restores)):
                tiers[tier][entry] += amount
        traffic = tuple(Traffic(*tier) for tier in tiers)
        return Cost(cost.steps, cost.advances, cost.turns, cost.stores, cost.slots, traffic)

    @property
    def slots(self) -> int:
        """The slots of both tiers."""
        return sum(tier.slots or 0 for tier in self.tiers)

    def chain(self, n: int) -> int:
        """See `Binomial.chain`."""
        return Binomial(self.slots, self.joined).chain(n)

    def addresses(self, n: int) -> list[tuple[int, int]]:
        """The tier and the slot for each place of the stack: what costs most to move lies in the faster tier."""
        fast, slow = self.tiers
        write, read = slow.write - fast.write, slow.read - fast.read
        if write == read == 0:
            write = read = 1
        traffic = traffic_by_place(self.chain(n), self.slots)
        saved = [write * stores + read * restores for stores, restores in traffic]
        # Of equals the newer states lie in the faster tier.
        busiest = set(sorted(range(len(saved)), key=lambda place: (-saved[place], -place))[: fast.slots])
        numbers = [0, 0]
        addresses: list[tuple[int, int]] = []
        for place in range(len(saved)):
            tier = 0 if place in busiest else 1
            addresses.append((tier, numbers[tier]))
            numbers[tier] += 1
        return addresses


@dataclass(frozen=True)
class HRevolve(Schedule):
    """The least time for any number of synchronous tiers, each with its slots and its costs of a write and a read.

    Args:
        tiers: one tier or more, ordered from the fastest both to write and to read; state 0's slot is counted.
        step_cost: the cost of one step in the unit of the tiers' costs; by default 1, the unit itself.
        joined: whether the forward pass runs straight into the first turn, see `Binomial`; by default it does not.

    Raises:
        ScheduleError: tiers that are not ordered, or no finite cost above 0.

    Cost: the least of step_cost times advances, plus writes, plus reads; n turns. `actions` and `cost` fill tables of n
        entries per slot, which are remembered, in about O(n) operations for each; a slower tier without limit takes one
        such row. Costs of transfers bend the rows, and may make a row O(n^2).

    >>> from adjoint import replay
    >>> tiers = (Tier("memory", 2), Tier("disk", 2, write=6, read=6))
    >>> HRevolve(tiers).cost(20).traffic
    (Traffic(slots=2, stores=8, restores=19), Traffic(slots=1, stores=1, restores=1))
    >>> [replay(schedule, 20, tiers=tiers).makespan for schedule in (HRevolve(tiers), Multistage(tiers))]
    [106.0, 136.0]
    """

    tiers: tuple[Tier, ...]
    step_cost: float = 1.0
    joined: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "tiers", checked_tiers(self.tiers))
        object.__setattr__(self, "step_cost", checked_cost("step_cost", self.step_cost, STEP_COST_ADVICE))

    @classmethod
    def for_budget(
        cls, bytes: int, state_bytes: int, slower: Sequence[Tier], step_cost: float = 1.0, joined: bool = False
    ) -> HRevolve:
        """The schedule with as many slots in memory as fit.

        Args:
            bytes: memory for stored states, in the tier of number 0.
            state_bytes: size of one state, >= 1.
            slower: the other tiers.
            step_cost, joined: as for the class.

        Returns:
            A schedule.

        Raises:
            ScheduleError: not even one state fits, or the tiers are not ordered.

        >>> HRevolve.for_budget(1000, 90, slower=[Tier("disk", None, write=1, read=1)]).tiers[0].slots
        11
        """
        return cls((Tier.for_budget(bytes, state_bytes, "memory"), *slower), step_cost, joined)

    def actions(self, steps: int) -> Iterator[Action]:
        """Slot r of a tier holds the (r + 1)-th oldest state in that tier. See `Schedule.actions`."""
        return fastest(self.tiers, self.step_cost, checked_steps(steps), self.joined)

    def cost(self, steps: int) -> Cost:
        """See `Schedule.cost`."""
        return cost_by_replay(self, checked_steps(steps), len(self.tiers))


@dataclass(frozen=True)
class DiskRevolve(Schedule):
    """The least time with so many slots in memory and any number of them on a disk, a write or a read costing time.

    Args:
        slots: states kept in memory at once, >= 1; moving them costs nothing.
        write: the cost of writing one state to the disk, in the unit of `step_cost`.
        read: the cost of reading one.
        step_cost: the cost of one step; by default 1, the unit itself.
        joined: whether the forward pass runs straight into the first turn, see `Binomial`; by default it does not.

    Raises:
        ScheduleError: slots is below 1, or a cost is no finite number >= 0.

    Cost: as `HRevolve` with a second tier without limit.

    >>> cost = DiskRevolve(3, write=5, read=5).cost(1000)
    >>> cost.evaluations, cost.traffic[1].slots
    (3499, 98)
    """

    slots: int
    write: float
    read: float
    step_cost: float = 1.0
    joined: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", self.tiers[0].slots)
        object.__setattr__(self, "step_cost", checked_cost("step_cost", self.step_cost, STEP_COST_ADVICE))

    @classmethod
    def for_budget(
        cls, bytes: int, state_bytes: int, write: float, read: float, step_cost: float = 1.0, joined: bool = False
    ) -> DiskRevolve:
        """The schedule with as many slots in memory as fit.

        Args:
            bytes: memory for stored states.
            state_bytes: size of one state, >= 1.
            write, read, step_cost, joined: as for the class.

        Returns:
            A schedule.

        Raises:
            ScheduleError: not even one state fits, or a cost is no finite number >= 0.

        >>> DiskRevolve.for_budget(1000, 90, write=5, read=5).slots
        11
        """
        slots = Tier.for_budget(bytes, state_bytes, "memory").slots
        assert slots is not None
        return cls(slots, write, read, step_cost, joined)

    @property
    def tiers(self) -> tuple[Tier, Tier]:
        """Memory and disk."""
        return Tier("memory", self.slots), Tier("disk", None, self.write, self.read)

    def actions(self, steps: int) -> Iterator[Action]:
        """See `HRevolve.actions`."""
        return fastest(self.tiers, self.step_cost, checked_steps(steps), self.joined)

    def cost(self, steps: int) -> Cost:
        """See `Schedule.cost`."""
        return cost_by_replay(self, checked_steps(steps), tiers=2)


def fastest(tiers: tuple[Tier, ...], step_cost: float, n: int, joined: bool) -> Iterator[Action]:
    """The actions that take the least time; the tables are made when the first action is asked for."""
    length = n if joined or n == 0 else n + 1
    for action in sweeps(solved(tiers, step_cost, length), length, step_cost):
        # The turn of step n stands for the use of state n between the two passes.
        if action != Turn(n):
            yield action


def moved(actions: Iterator[Action], shift: int, address: Callable[[int], tuple[int, int]]) -> Iterator[Action]:
    """Actions on a part of a longer chain that begins at state `shift`, each slot moved to a tier and a slot there."""
    for action in actions:
        match action:
            case Advance(start, stop):
                yield Advance(start + shift, stop + shift)
            case Turn(step):
                yield Turn(step + shift)
            case Record(index, slot) | Apply(index, slot) | Prefetch(index, slot):
                tier, slot = address(slot)
                yield type(action)(index + shift, slot, tier)
            case Store(index, slot) | Restore(index, slot) | Discard(index, slot):
                tier, slot = address(slot)
                yield type(action)(index + shift, slot, tier)
