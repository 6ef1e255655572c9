"""Two levels, for any number of steps, known or not: block starts on a slow tier, binomial sweeps within a block.

The chain is cut into blocks of p steps. The forward pass writes states at the starts of blocks to tier 1; then one
block after the other, the newest first, is read once and reversed by binomial checkpointing in the slots of tier 0.
With a fixed p nothing is asked of the number of steps (Pringle et al. 2016; Aupy & Herrmann 2017 give the best p).
Where transfers go on beside the steps, the slow tier costs no time if a block takes as long to run as its start takes
to write: `Overlapped` chooses p so, and announces each read one block ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from adjoint.actions import Action, Advance, Discard, Prefetch, Restore, Store, Turn
from adjoint.binomial import advances, fewest_stores
from adjoint.errors import ScheduleError, checked_cost, checked_integer
from adjoint.multitier import moved
from adjoint.offline import Binomial, StoreAll
from adjoint.online import Online
from adjoint.schedule import Cost, Schedule, Traffic, checked_steps
from adjoint.tiers import Tier, slots_within

SLOTS_ADVICE = "give at least one slot in tier 0, for the first state of a block"


@dataclass(frozen=True)
class TwoLevel(Schedule):
    """Every `period`-th state on a slow tier of any size, and binomial checkpointing in between, for unknown lengths.

    Args:
        period: p, the steps of a block, >= 1. What is on tier 1 grows as n / p.
        slots: states kept at once in tier 0 while a block is reversed, the block's first one included, >= 1.

    Raises:
        ScheduleError: period or slots is below 1.

    Cost: n advances forward, and P(p, slots) for each block; ceil(n / p) writes to tier 1, and as many reads.

    >>> TwoLevel(10, slots=3).cost(100)
    Cost(steps=100, advances=250, turns=100, stores=70, slots=13, traffic=(Traffic(slots=3, stores=60, restores=90), \
Traffic(slots=10, stores=10, restores=10)))
    """

    period: int
    slots: int

    def __post_init__(self) -> None:
        period = checked_integer("period", self.period, 1, "give the number of steps of a block")
        slots = checked_integer("slots", self.slots, 1, SLOTS_ADVICE)
        object.__setattr__(self, "period", period)
        object.__setattr__(self, "slots", slots)

    @classmethod
    def for_budget(cls, bytes: int, state_bytes: int, period: int) -> TwoLevel:
        """The schedule with as many slots in tier 0 as fit.

        Args:
            bytes: memory for stored states in tier 0.
            state_bytes: size of one state, >= 1.
            period: as for the class.

        Returns:
            A schedule.

        Raises:
            ScheduleError: not even one state fits, or period is below 1.

        >>> TwoLevel.for_budget(1000, 90, period=50)
        TwoLevel(period=50, slots=11)
        """
        return cls(period, slots_within(bytes, state_bytes))

    def actions(self, steps: int) -> Iterator[Action]:
        """Slot q of tier 1 holds the first state of block q. See `Schedule.actions`."""
        return in_blocks(StoreAll(), checked_steps(steps), self.period, self.slots)

    def cost(self, steps: int) -> Cost:
        """See `Schedule.cost`."""
        return cost_in_blocks(StoreAll(), checked_steps(steps), self.period, self.slots)


@dataclass(frozen=True)
class Overlapped(Schedule):
    """Block starts on a slow tier whose transfers go on beside the steps, at no cost if blocks are long enough.

    A block has p = max(ceil(w / c), ceil(r / c)) steps, for a write of cost w, a read of cost r and steps of cost c.
    If n is known and the slow tier has few slots, it has ceil(n / slots) steps, where that is more. If n is unknown, p
    is fixed, and when the slots of the slow tier run out, the rule of `Online` decides which block starts to give up.

    Args:
        slots: states kept at once in tier 0 while a block is reversed, the block's first one included, >= 1. The
            buffers of the slow tier come on top.
        slow: tier 1, with at least one buffer; two let a write wait for the one before it.
        step_cost: the cost of one step in the unit of the tier's costs, > 0; by default 1, the unit itself.
        online: whether the number of steps is unknown until the loop stops; by default it is known.

    Raises:
        ScheduleError: no slot, no tier with a buffer, or no cost above 0.

    Cost: n advances forward, and P(p, slots) for each block; online and beyond p times the slow tier's slots, those of
        `Online` on the blocks besides.

    >>> from adjoint import replay
    >>> host = Tier("host", slots=None, write=5, read=5, buffers=2)
    >>> replay(Overlapped(6, host), 2000, tiers=Overlapped(6, host).tiers, adjoint_cost=2).makespan
    9605.0
    """

    slots: int
    slow: Tier
    step_cost: float = 1.0
    online: bool = False

    def __post_init__(self) -> None:
        slots = checked_integer("slots", self.slots, 1, SLOTS_ADVICE)
        object.__setattr__(self, "slots", slots)
        if not isinstance(self.slow, Tier) or self.slow.buffers < 1:
            advice = 'give for example adjoint.Tier("host", 1000, write=5, read=5, buffers=2)'
            raise ScheduleError("slow", self.slow, "an adjoint.Tier with at least one buffer", advice)
        cost = checked_cost("step_cost", self.step_cost, "give the cost of one step in the unit of the tier's costs")
        if cost == 0:
            advice = "steps that take no time hide no transfer: use adjoint.HRevolve"
            raise ScheduleError("step_cost", self.step_cost, "a finite number > 0", advice)
        object.__setattr__(self, "step_cost", cost)

    @classmethod
    def for_budget(
        cls, bytes: int, state_bytes: int, slow: Tier, step_cost: float = 1.0, online: bool = False
    ) -> Overlapped:
        """The schedule with as many slots in tier 0 as fit beside the slow tier's buffers.

        Args:
            bytes: memory for stored states in tier 0 and for the buffers.
            state_bytes: size of one state, >= 1.
            slow, step_cost, online: as for the class.

        Returns:
            A schedule.

        Raises:
            ScheduleError: not even one state fits beside the buffers, or `slow` is no tier with a buffer.

        >>> Overlapped.for_budget(1000, 90, Tier("host", None, write=5, read=5, buffers=2)).slots
        9
        """
        # The class says what is wrong with something else.
        buffers = slow.buffers if isinstance(slow, Tier) else 0
        return cls(slots_within(bytes, state_bytes, buffers), slow, step_cost, online)

    @property
    def tiers(self) -> tuple[Tier, Tier]:
        """Tier 0 and the slow one."""
        return Tier("memory", self.slots), self.slow

    def period(self, steps: int) -> int:
        """p, the steps of a block.

        Args:
            steps: n >= 0; it does not matter online.

        Returns:
            A number of steps, >= 1.

        Raises:
            ScheduleError: steps is no such number.
        """
        n = checked_steps(steps)
        hidden = max(1, ceil(max(self.slow.write, self.slow.read) / self.step_cost))
        return hidden if self.online or self.slow.slots is None else max(hidden, -(-n // self.slow.slots))

    @property
    def outer(self) -> Schedule:
        """The schedule of the block starts."""
        return Online(self.slow.slots) if self.online and self.slow.slots is not None else StoreAll()

    def actions(self, steps: int) -> Iterator[Action]:
        """See `Schedule.actions`."""
        n = checked_steps(steps)
        return prefetched(in_blocks(self.outer, n, self.period(n), self.slots), tier=1)

    def cost(self, steps: int) -> Cost:
        """See `Schedule.cost`."""
        n = checked_steps(steps)
        return cost_in_blocks(self.outer, n, self.period(n), self.slots)


def in_blocks(outer: Schedule, n: int, p: int, slots: int) -> Iterator[Action]:
    """The actions of a schedule on blocks of p steps, in tier 1, each turn of which is a block's reversal in tier 0."""
    for action in outer.actions(-(-n // p)):
        match action:
            case Advance(start, stop):
                yield Advance(start * p, min(stop * p, n))
            case Turn(block):
                start = block * p
                within = Binomial(slots, joined=True).actions(min(p, n - start))
                yield from moved(within, start, lambda slot: (0, slot))
            case Store(block, slot) | Restore(block, slot) | Discard(block, slot):
                yield type(action)(block * p, slot, tier=1)


def cost_in_blocks(outer: Schedule, n: int, p: int, slots: int) -> Cost:
    """The cost of `in_blocks`, exactly."""
    if n == 0:
        return Cost(0, 0, 0, 0, 0, (Traffic(0, 0, 0),) * 2)
    blocks = -(-n // p)
    last = n - (blocks - 1) * p
    above = outer.cost(blocks)
    assert above.stores is not None
    # The last block is advanced over in the forward pass alone.
    again = p * above.advances - (p - last)
    within = (blocks - 1) * advances(p, slots) + advances(last, slots)
    lengths = [(blocks - 1, p), (1, last)]
    stores = sum(count * fewest_stores(length, slots) for count, length in lengths if length > 1)
    longest = p if blocks > 1 else last
    fast = Traffic(min(slots, longest - 1), stores, n - blocks)
    # The reversal of each block begins with one read, be it of its own first state or of an earlier one.
    slow = Traffic(above.slots, above.stores, blocks)
    return Cost(n, again + within, n, stores + above.stores, fast.slots + slow.slots, (fast, slow))


def prefetched(actions: Iterator[Action], tier: int) -> Iterator[Action]:
    """The same actions, with each restore from a tier announced as early as it can be; that of the first one is not.

    A restore is announced right after the one before it, or once its state has been stored. What lies between two
    restores is held back until the second one is known.
    """
    waiting: list[Action] = []
    # Where the next announcement may stand in `waiting`, for each slot that was stored to.
    earliest: dict[int, int] = {}
    reversing = False
    for action in actions:
        if isinstance(action, Restore) and action.tier == tier:
            index = earliest.get(action.slot, 0)
            if reversing and index < len(waiting):
                waiting.insert(index, Prefetch(action.state, action.slot, tier))
            yield from waiting
            yield action
            waiting.clear()
            earliest.clear()
            reversing = True
        elif reversing:
            waiting.append(action)
            if isinstance(action, Store | Discard) and action.tier == tier:
                earliest[action.slot] = len(waiting)
        else:
            yield action
    yield from waiting
