"""The instruction set: eight actions that reverse any chain of steps.

Step i maps state i to state i + 1, so a chain of n steps has the states 0..n.
One *working* state is being advanced; every other state that is to survive sits in a numbered slot of a tier.
Five actions do for most schedules: advance, store, restore, discard, turn. Record and apply keep the tape of a step in
a slot instead of a state; prefetch announces a restore from a slow tier, so that a driver may start reading.
The actions say nothing about what a state is: a driver with preallocated buffers needs the slot numbers, a driver
that keeps a dictionary may ignore them.
The vocabulary is that of Griewank 1992 and of Griewank & Walther 2000 (their advance, takeshot, restore, youturn);
tapes in slots are those of Maddison 2024.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


def spelled(action: Any) -> str:
    """An action as one writes it: tier 0, where everything lies that nobody moved elsewhere, is left out."""
    values = {field.name: getattr(action, field.name) for field in fields(action)}
    if values.get("tier") == 0:
        del values["tier"]
    return f"{type(action).__name__}({', '.join(f'{name}={value!r}' for name, value in values.items())})"


@dataclass(frozen=True, slots=True)
class Advance:
    """Run steps `start`..`stop - 1` from the working state, keeping nothing of them.

    Args:
        start: the working state's index before.
        stop: the working state's index after, greater than start.

    Cost: stop - start step evaluations.

    >>> Advance(10, 25)
    Advance(start=10, stop=25)

    This action is read as: from state 10, run steps 10..24; state 25 is the working state.
    """

    start: int
    stop: int


@dataclass(frozen=True, slots=True, repr=False)
class Store:
    """Copy the working state into a slot; what the slot held before is lost.

    Args:
        state: the working state's index.
        slot: the slot's number within its tier, from 0.
        tier: the tier's number, from 0, the fastest; by default that one.

    >>> Store(10, 2), Store(10, 2, tier=1)
    (Store(state=10, slot=2), Store(state=10, slot=2, tier=1))

    This action is read as: keep state 10 in slot 2 (of tier 1); it stays the working state as well.
    """

    state: int
    slot: int
    tier: int = 0

    def __repr__(self) -> str:
        return spelled(self)


@dataclass(frozen=True, slots=True, repr=False)
class Restore:
    """Copy a slot's state into the working state; the slot keeps it.

    Args:
        state: the index of the state which that slot holds.
        slot: the slot's number within its tier, from 0.
        tier: the tier's number, from 0, the fastest; by default that one.

    >>> Restore(10, 2)
    Restore(state=10, slot=2)

    This action is read as: take state 10 out of slot 2 as the working state; slot 2 still holds it.
    """

    state: int
    slot: int
    tier: int = 0

    def __repr__(self) -> str:
        return spelled(self)


@dataclass(frozen=True, slots=True, repr=False)
class Discard:
    """Free a slot: the state, or the tape, that it holds is not needed again.

    A driver with preallocated buffers does nothing here; one that keeps files removes the file.

    Args:
        state: the index of the state which that slot holds, or of the step whose tape it holds.
        slot: the slot's number within its tier, from 0.
        tier: the tier's number, from 0, the fastest; by default that one.

    >>> Discard(10, 2)
    Discard(state=10, slot=2)

    This action is read as: state 10, in slot 2, is not needed again; slot 2 is free.
    """

    state: int
    slot: int
    tier: int = 0

    def __repr__(self) -> str:
        return spelled(self)


@dataclass(frozen=True, slots=True)
class Turn:
    """Run one step from the working state with its tape, then that step's adjoint.

    The working state is used up: nothing of it remains afterwards.

    Args:
        step: the step's index, which is the working state's index too.

    Cost: one step evaluation (the taped one) and one adjoint.

    >>> Turn(24)
    Turn(step=24)

    This action is read as: run step 24 from state 24 with its tape, then its adjoint; there is no working state left.
    """

    step: int


@dataclass(frozen=True, slots=True, repr=False)
class Record:
    """Run one step from the working state with its tape, and keep the tape in a slot.

    What the slot held before is lost. The step is turned later, by `Apply`, without another evaluation.

    Args:
        step: the step's index, which is the working state's index before; after it, that is one more.
        slot: the slot's number within its tier, from 0.
        tier: the tier's number, from 0, the fastest; by default that one.

    Cost: one step evaluation (the taped one).

    >>> Record(10, 2)
    Record(step=10, slot=2)

    This action is read as: run step 10 with its tape, which goes to slot 2; state 11 is the working state.
    """

    step: int
    slot: int
    tier: int = 0

    def __repr__(self) -> str:
        return spelled(self)


@dataclass(frozen=True, slots=True, repr=False)
class Apply:
    """Turn a step from the tape in a slot; the slot keeps the tape, and the working state stays what it is.

    Args:
        step: the index of the step whose tape that slot holds.
        slot: the slot's number within its tier, from 0.
        tier: the tier's number, from 0, the fastest; by default that one.

    Cost: one adjoint, and no step evaluation.

    >>> Apply(10, 2)
    Apply(step=10, slot=2)

    This action is read as: apply the adjoint of step 10 from its tape in slot 2; no step runs.
    """

    step: int
    slot: int
    tier: int = 0

    def __repr__(self) -> str:
        return spelled(self)


@dataclass(frozen=True, slots=True, repr=False)
class Prefetch:
    """Announce that a slot's state is restored soon: a driver may start to read it while steps run.

    A driver may as well do nothing here. The state is neither changed nor freed until that restore.

    Args:
        state: the index of the state which that slot holds.
        slot: the slot's number within its tier, from 0.
        tier: the tier's number, from 0, the fastest; by default that one.

    >>> Prefetch(10, 2, tier=1)
    Prefetch(state=10, slot=2, tier=1)

    This action is read as: begin to read state 10 from slot 2 of tier 1; the next restore from tier 1 is of it.
    """

    state: int
    slot: int
    tier: int = 0

    def __repr__(self) -> str:
        return spelled(self)


Basic = Advance | Store | Restore | Discard | Turn
"""The five actions that do for a schedule of one tier and of states alone."""

Action = Basic | Record | Apply | Prefetch
"""Any of the eight actions: what a schedule yields and a driver carries out, by matching on its class."""
