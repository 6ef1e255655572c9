"""What a schedule is: the one extension point of this package.

A schedule is a value. It answers two questions for a chain of n steps: which actions reverse it, and what that costs.
Asking twice gives the same answers, so a schedule may be hashed, compared, pickled and used by many loops at once.
Whatever yields valid actions is a schedule; `adjoint.replay` is the judge of that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from adjoint.actions import Action
from adjoint.errors import checked_integer


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a schedule does with one tier.

    Args:
        slots: slots of that tier to provide; in the counts of a replay, the most that were occupied at once.
        stores: states and tapes written to the tier.
        restores: states and tapes read from it.

    >>> from adjoint import Multistage, Tier
    >>> Multistage((Tier("memory", 3), Tier("disk", 2, write=5, read=5))).cost(20).traffic[1]
    Traffic(slots=2, stores=3, restores=5)
    """

    slots: int
    stores: int
    restores: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What a schedule spends on one chain, known without running it.

    Args:
        steps: n, the chain's number of steps.
        advances: plain step evaluations, those of the forward pass included.
        turns: taped step evaluations, each step's once; always n.
        stores: copies of a state, or of a tape, into a slot; None where a schedule cannot tell without running.
        slots: slots to provide, of all tiers together; with one tier, every slot number is below it.
        traffic: for each tier what lies and moves there; empty where there is one tier only.

    >>> Cost(steps=10, advances=19, turns=10, stores=6, slots=3).evaluations
    29
    """

    steps: int
    advances: int
    turns: int
    stores: int | None
    slots: int
    traffic: tuple[Traffic, ...] = ()

    @property
    def evaluations(self) -> int:
        """All step evaluations: advances and turns."""
        return self.advances + self.turns

    def __repr__(self) -> str:
        counts = f"advances={self.advances}, turns={self.turns}, stores={self.stores}, slots={self.slots}"
        moved = f", traffic={self.traffic}" if self.traffic else ""
        return f"Cost(steps={self.steps}, {counts}{moved})"


class Schedule(ABC):
    """Which states to keep and which steps to redo, for a chain of any length. Subclass it to add a schedule.

    A schedule is a frozen dataclass: two that are made alike are equal, and may be hashed and pickled. Those of this
    package also have a constructor `for_budget(bytes, state_bytes, ...)`, which fills an amount of memory with slots.

    A schedule is *split* when its forward pass delivers the last state before the first turn, as the loops of a
    compiler need it; it is *joined* when the forward pass runs straight into the first turn.

    >>> from adjoint import Advance, Cost, Schedule, Store, Turn, replay
    >>> class OneStep(Schedule):
    ...     def actions(self, steps):
    ...         return iter([Turn(0)])
    ...     def cost(self, steps):
    ...         return Cost(steps=1, advances=0, turns=1, stores=0, slots=0)
    >>> replay(OneStep(), steps=1).turns
    1
    """

    @abstractmethod
    def actions(self, steps: int) -> Iterator[Action]:
        """The actions that reverse `steps` steps, made one at a time; each call starts afresh.

        Args:
            steps: n >= 0; for 0 there is nothing to turn.

        Returns:
            An iterator of actions.

        Raises:
            ScheduleError: this schedule has no answer for that many steps.
        """

    @abstractmethod
    def cost(self, steps: int) -> Cost:
        """What `actions(steps)` spends, exactly, without running it.

        Args:
            steps: n >= 0.

        Returns:
            Counts of evaluations, stores and slots.

        Raises:
            ScheduleError: this schedule has no answer for that many steps.
        """


def checked_steps(steps: object) -> int:
    """A chain's number of steps as an exact integer, or a `ScheduleError`."""
    from_zero = "give the number of steps of the loop, 0 for a loop that stops at once"
    return checked_integer("steps", steps, 0, from_zero)
