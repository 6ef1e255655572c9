"""A tier: one kind of room for states, with its capacity and the cost of a transfer.

Memory of the device, memory of the host, a disk: tiers are numbered from 0, the fastest, and an action names the tier
of its slot by that number. Costs are in the unit of one step's cost, whatever that is: steps or seconds.
A tier is *synchronous* when a transfer stops the steps, as the schedules of Aupy et al. 2016 and of Herrmann & Pallez
2020 assume, and *asynchronous* when it has buffers, in which states wait while they are transferred.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from adjoint.errors import ScheduleError, checked_cost, checked_integer


@dataclass(frozen=True)
class Tier:
    """One kind of room for states.

    Args:
        name: what reports call it, and no other tier of the same schedule.
        slots: how many states it holds, >= 1; None for any number.
        write: cost of writing one state, >= 0, in the unit of a step's cost; by default 0, as in memory.
        read: cost of reading one state, >= 0; by default 0.
        buffers: states under way at once without stopping the steps; they lie in the memory of the steps, beside the
            slots of tier 0. By default 0: a transfer stops the steps.

    Raises:
        ScheduleError: no slot, or a number that is no such number.

    >>> Tier("disk", slots=100, write=5, read=3)
    Tier(name='disk', slots=100, write=5, read=3, buffers=0)
    """

    name: str
    slots: int | None
    write: float = 0.0
    read: float = 0.0
    buffers: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ScheduleError("name", self.name, "a text", "give the tier a name, such as 'disk'")
        if self.slots is not None:
            advice = "a tier without room holds no state: leave the tier out, or give None for any number of slots"
            object.__setattr__(self, "slots", checked_integer("slots", self.slots, 1, advice))
        for field in ("write", "read"):
            advice = "give the cost of one transfer in the unit of a step's cost"
            object.__setattr__(self, field, checked_cost(field, getattr(self, field), advice))
        buffers = checked_integer("buffers", self.buffers, 0, "give how many states may be under way, 0 for none")
        object.__setattr__(self, "buffers", buffers)

    @classmethod
    def for_budget(
        cls, bytes: int, state_bytes: int, name: str, write: float = 0.0, read: float = 0.0, buffers: int = 0
    ) -> Tier:
        """The tier that has as many slots as fit.

        Args:
            bytes: room in the tier.
            state_bytes: size of one state, >= 1.
            name, write, read, buffers: as for the class.

        Returns:
            A tier.

        Raises:
            ScheduleError: not even one state fits.

        >>> Tier.for_budget(10**9, 8 * 10**6, "disk", write=2).slots
        125
        """
        return cls(name, slots_within(bytes, state_bytes), write, read, buffers)


def slots_within(bytes: object, state_bytes: object, besides: int = 0) -> int:
    """How many states fit into so many bytes beside `besides` others; a `ScheduleError` if not even one does."""
    size = checked_integer("state_bytes", state_bytes, 1, "give the size of one state in bytes")
    room = checked_integer("bytes", bytes, 0, "give the memory for stored states in bytes")
    slots = room // size - besides
    if slots < 1:
        least = (1 + besides) * size
        raise ScheduleError("bytes", room, f"at least {least} for states of {size} bytes", f"give at least {least}")
    return slots


def checked_tiers(tiers: object, least: int = 1, most: int | None = None, ordered: bool = True) -> tuple[Tier, ...]:
    """Tiers with different names, the fastest first if that matters; or a `ScheduleError`."""
    count = f"{least}" if least == most else f"{least} or more"
    expected = f"{count} of adjoint.Tier, the fastest first"
    advice = 'give for example (adjoint.Tier("memory", 10), adjoint.Tier("disk", 100, write=5, read=5))'
    given = tuple(tiers) if isinstance(tiers, Iterable) else None
    if given is None or not all(isinstance(tier, Tier) for tier in given):
        raise ScheduleError("tiers", tiers, expected, advice)
    if len(given) < least or (most is not None and len(given) > most):
        raise ScheduleError("tiers", tiers, expected, advice)
    if len({tier.name for tier in given}) < len(given):
        raise ScheduleError("tiers", [tier.name for tier in given], "a different name for each", "rename one of them")
    for fast, slow in pairwise(given if ordered else ()):
        if slow.write < fast.write or slow.read < fast.read:
            order = f"{slow.name!r} to write and to read no faster than {fast.name!r} before it"
            raise ScheduleError("tiers", [tier.name for tier in given], order, "order the tiers from the fastest")
    return given
