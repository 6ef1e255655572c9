"""The errors of `adjoint`, and the check that turns an argument into an exact integer.

An error names the argument, what was given, what was expected and what to do, so that nobody has to read the source.
Everything derives from `AdjointError`: one `except` catches whatever this package raises on purpose.
"""

from __future__ import annotations

from math import isfinite
from operator import index
from typing import SupportsFloat, SupportsIndex


class AdjointError(Exception):
    """The base of every error that this package raises on purpose.

    >>> from adjoint import Binomial
    >>> try:
    ...     Binomial(0)
    ... except AdjointError as error:
    ...     print(error)
    slots: got 0, expected an integer >= 1; give at least one slot, for state 0.
    """


class ScheduleError(AdjointError, ValueError):
    """An argument that no schedule can work with. It is a `ValueError` too.

    Args:
        argument: the argument's own name.
        given: what the caller gave.
        expected: what was expected, as the end of a sentence.
        advice: what to do, as a sentence without its full stop.

    >>> print(ScheduleError("slots", 0, "an integer >= 1", "give at least one slot"))
    slots: got 0, expected an integer >= 1; give at least one slot.
    """

    def __init__(self, argument: str, given: object, expected: str, advice: str) -> None:
        super().__init__(argument, given, expected, advice)
        self.argument = argument
        self.given = given
        self.expected = expected
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.argument}: got {self.given!r}, expected {self.expected}; {self.advice}."


class InvariantError(AdjointError):
    """The first broken invariant that `replay` met in a schedule, in words.

    Args:
        position: how many actions were executed before the broken one (a count from 0).
        action: the broken action, or None when the schedule ended too early.
        reason: which invariant it breaks.

    >>> print(InvariantError(3, None, "2 steps are not turned yet"))
    after 3 actions the schedule ended: 2 steps are not turned yet.
    """

    def __init__(self, position: int, action: object, reason: str) -> None:
        super().__init__(position, action, reason)
        self.position = position
        self.action = action
        self.reason = reason

    def __str__(self) -> str:
        if self.action is None:
            return f"after {self.position} actions the schedule ended: {self.reason}."
        return f"action {self.position}, {self.action}: {self.reason}."


class StepError(AdjointError):
    """A user's function failed while a chain was run; the failure itself is the error's `__cause__`.

    What was stored is intact: `resume` goes on from there, in this process or in the next one.

    Args:
        function: which of the user's functions failed: advance, turn, until, cotangent, record or apply.
        start: the step it failed at, or the first of them.
        stop: one past the last step it was asked to run.
        cause: what it raised.

    >>> print(StepError("turn", 17, 18, ValueError("no convergence")))
    turn failed at step 17: ValueError: no convergence; what was stored is intact, and resume can go on from it.
    """

    def __init__(self, function: str, start: int, stop: int, cause: BaseException) -> None:
        super().__init__(function, start, stop, cause)
        self.function = function
        self.start = start
        self.stop = stop
        self.cause = cause

    def __str__(self) -> str:
        where = f"at step {self.start}" if self.stop - self.start <= 1 else f"in steps {self.start}..{self.stop - 1}"
        return (
            f"{self.function} failed {where}: {type(self.cause).__name__}: {self.cause}; "
            "what was stored is intact, and resume can go on from it."
        )


class StoreError(AdjointError):
    """A store cannot keep or give back a state, or does not belong to this run.

    Args:
        place: the file, the folder or the store that it is about.
        reason: what is wrong, as the end of a sentence.
        advice: what to do, as a sentence without its full stop.

    >>> print(StoreError("run/journal", "cannot be read", "restore the file, or remove the folder to start afresh"))
    run/journal: cannot be read; restore the file, or remove the folder to start afresh.
    """

    def __init__(self, place: object, reason: str, advice: str) -> None:
        super().__init__(place, reason, advice)
        self.place = place
        self.reason = reason
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}; {self.advice}."


class StateError(AdjointError, TypeError):
    """A state that cannot be copied or turned into bytes, or bytes that are no such state. It is a `TypeError` too.

    Args:
        codec: the codec, by name.
        given: what it was given, in words.
        accepted: what it accepts, in words.

    >>> print(StateError("Bytes", "a float (1.5)", "bytes, a bytearray or a memoryview of bytes"))
    Bytes: got a float (1.5), and accepts bytes, a bytearray or a memoryview of bytes.
    """

    def __init__(self, codec: str, given: str, accepted: str) -> None:
        super().__init__(codec, given, accepted)
        self.codec = codec
        self.given = given
        self.accepted = accepted

    def __str__(self) -> str:
        return f"{self.codec}: got {self.given}, and accepts {self.accepted}."


def checked_integer(argument: str, given: object, least: int, advice: str) -> int:
    """`given` as an exact Python integer of at least `least`, or a `ScheduleError` that names `argument`.

    Integers of array libraries are converted: their arithmetic would wrap around where Python's is exact.
    """
    expected = f"an integer >= {least}"
    if isinstance(given, bool) or not isinstance(given, SupportsIndex):
        raise ScheduleError(argument, given, expected, advice)
    try:
        value = index(given)
    except TypeError:
        # An array of several elements has the method, and refuses.
        raise ScheduleError(argument, given, expected, advice) from None
    if value < least:
        raise ScheduleError(argument, given, expected, advice)
    return value


def checked_cost(argument: str, given: object, advice: str) -> float:
    """`given` as a finite number >= 0, an integer staying exact, or a `ScheduleError` that names `argument`."""
    expected = "a finite number >= 0"
    if isinstance(given, bool | str) or not isinstance(given, SupportsFloat):
        raise ScheduleError(argument, given, expected, advice)
    try:
        value = given if isinstance(given, int) else float(given)
    except (TypeError, ValueError):
        # An array of several elements has the method, and refuses.
        raise ScheduleError(argument, given, expected, advice) from None
    if not (isfinite(value) and value >= 0):
        raise ScheduleError(argument, given, expected, advice)
    return value
