"""The instruction set: five actions that reverse any chain of steps.

Step i maps state i to state i + 1, so a chain of n steps has the states 0..n.
One *working* state is being advanced; every other state that is to survive sits in a numbered slot.
The actions say nothing about what a state is: a driver with preallocated buffers needs the slot numbers, a driver
that keeps a dictionary may ignore them.
The vocabulary is that of Griewank 1992 and of Griewank & Walther 2000 (their advance, takeshot, restore, youturn).
"""

from __future__ import annotations

from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class Store:
    """Copy the working state into a slot; what the slot held before is lost.

    Args:
        state: the working state's index.
        slot: the slot's number, from 0.

    >>> Store(10, 2)
    Store(state=10, slot=2)

    This action is read as: keep state 10 in slot 2; it stays the working state as well.
    """

    state: int
    slot: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Copy a slot's state into the working state; the slot keeps it.

    Args:
        state: the index of the state which that slot holds.
        slot: the slot's number, from 0.

    >>> Restore(10, 2)
    Restore(state=10, slot=2)

    This action is read as: take state 10 out of slot 2 as the working state; slot 2 still holds it.
    """

    state: int
    slot: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Free a slot: its state is not needed again.

    A driver with preallocated buffers does nothing here; one that keeps files removes the file.

    Args:
        state: the index of the state which that slot holds.
        slot: the slot's number, from 0.

    >>> Discard(10, 2)
    Discard(state=10, slot=2)

    This action is read as: state 10, in slot 2, is not needed again; slot 2 is free.
    """

    state: int
    slot: int


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


Action = Advance | Store | Restore | Discard | Turn
"""Any of the five actions: what a schedule yields and a driver carries out, by matching on its class."""
