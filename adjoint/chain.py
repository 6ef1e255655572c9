"""The user's functions, which make a chain of steps: called in one place, so that each failure names its step.

States and cotangents are opaque here. What a function raises is wrapped once; an interrupt from the keyboard is not a
failure of the function, and passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from adjoint.errors import ScheduleError, StepError


@dataclass(frozen=True)
class Span:
    """Says that a function runs many steps in one call: for a compiled loop, a C library, a simulator's process.

    Args:
        function: maps (start, stop, state) to the state after steps start..stop - 1; start is the state's index.

    >>> from adjoint import Binomial, reverse
    >>> powers = Span(lambda start, stop, x: x * 2 ** (stop - start))
    >>> reverse(Binomial(3), 10, powers, lambda i, x, bar: 2 * bar, 1.0, 1.0).state
    1024.0
    """

    function: Callable[[int, int, Any], Any]


Advance = Callable[[int, Any], Any] | Span
Turn = Callable[[int, Any, Any], Any]
Until = Callable[[int, Any], Any]
Record = Callable[[int, Any], tuple[Any, Any]]
Apply = Callable[[int, Any, Any], Any]


class Over:
    """Stands for the state after a step that there is not: the chain has ended."""


@dataclass(frozen=True)
class Chain:
    """The functions that a run calls: the public functions of `adjoint.reverse` say what each one is given."""

    advance: Advance
    turn: Turn | None = None
    until: Until | None = None
    record: Record | None = None
    apply: Apply | None = None

    def __post_init__(self) -> None:
        advance = self.advance.function if isinstance(self.advance, Span) else self.advance
        checked_function("advance", advance, "a function of (step, state), or a Span")
        if self.turn is not None:
            checked_function("turn", self.turn, "a function of (step, state, cotangent)")
        if self.until is not None:
            checked_function("until", self.until, "a function of (step, state)")
        if self.record is not None:
            checked_function("record", self.record, "a function of (step, state)")
        if self.apply is not None:
            checked_function("apply", self.apply, "a function of (step, tape, cotangent)")

    def run(self, start: int, stop: int, state: Any) -> Any:
        """The state after steps start..stop - 1."""
        if isinstance(self.advance, Span):
            try:
                return self.advance.function(start, stop, state)
            except Exception as error:
                raise StepError("advance", start, stop, error) from error
        step = start
        try:
            for step in range(start, stop):
                state = self.advance(step, state)
        except Exception as error:
            raise StepError("advance", step, step + 1, error) from error
        return state

    def step(self, step: int, state: Any) -> Any | type[Over]:
        """The next state, or `Over` if advance says by StopIteration that there is none."""
        try:
            return self.run(step, step + 1, state)
        except StepError as error:
            if isinstance(error.cause, StopIteration):
                return Over
            raise

    def is_over(self, step: int, state: Any) -> bool:
        """Whether until says that the chain ends with this state."""
        if self.until is None:
            return False
        try:
            return bool(self.until(step, state))
        except Exception as error:
            raise StepError("until", step, step + 1, error) from error

    def seed(self, steps: int, cotangent: Any, last: Any) -> Any:
        """The cotangent of the last state: what the user gave, or what their function makes of that state."""
        if not callable(cotangent):
            return cotangent
        try:
            return cotangent(last)
        except Exception as error:
            raise StepError("cotangent", steps, steps + 1, error) from error

    def adjoint(self, step: int, state: Any, cotangent: Any) -> Any:
        """The cotangent in front of a step."""
        assert self.turn is not None
        try:
            return self.turn(step, state, cotangent)
        except Exception as error:
            raise StepError("turn", step, step + 1, error) from error

    def taped(self, step: int, state: Any) -> tuple[Any, Any]:
        """The next state and the tape of a step."""
        if self.record is None:
            advice = "give what runs a step with its tape, or a schedule that keeps no tapes"
            raise ScheduleError("record", None, "a function of (step, state), as this schedule keeps tapes", advice)
        try:
            state, tape = self.record(step, state)
        except Exception as error:
            raise StepError("record", step, step + 1, error) from error
        return state, tape

    def applied(self, step: int, tape: Any, cotangent: Any) -> Any:
        """The cotangent in front of a step, from its tape."""
        if self.apply is None:
            advice = "give the adjoint of a step from its tape, or a schedule that keeps no tapes"
            expected = "a function of (step, tape, cotangent), as this schedule keeps tapes"
            raise ScheduleError("apply", None, expected, advice)
        try:
            return self.apply(step, tape, cotangent)
        except Exception as error:
            raise StepError("apply", step, step + 1, error) from error


def checked_function(argument: str, given: object, expected: str) -> None:
    """Raises a `ScheduleError` unless `given` can be called."""
    if not callable(given):
        raise ScheduleError(argument, given, expected, "give what runs the steps")
