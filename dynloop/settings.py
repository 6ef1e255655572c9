"""The options that all loops share, and the checks that need no array library."""

import operator
from dataclasses import dataclass
from typing import Any, Literal

from dynloop import observers
from dynloop.checkpoints import Checkpoints
from dynloop.errors import ArgumentError, ArgumentTypeError, described
from dynloop.observers import Observer

OnMaxSteps = Literal["raise", "stop", "nan"]


@dataclass(frozen=True)
class Options:
    """The checked options of one call of the function `name`."""

    name: str
    checkpoints: Checkpoints
    max_steps: int | None
    on_max_steps: OnMaxSteps
    full_output: bool
    sync: Literal["any"] | None
    observers: tuple[Observer, ...] = ()


def checked(
    name: str, checkpoints: Checkpoints, max_steps: Any, on_max_steps: Any, full_output: bool, sync: Any, observe: Any
) -> Options:
    if sync not in (None, "any"):
        raise ArgumentError(f'{name}: sync={sync!r} is unknown; give "any", or None where devices need not agree')
    if on_max_steps not in ("raise", "stop", "nan"):
        raise ArgumentError(f'{name}: on_max_steps={on_max_steps!r} is unknown; give "raise", "stop" or "nan"')
    bound, watching = _bound(name, max_steps), observers.checked(name, observe)
    return Options(name, checkpoints, bound, on_max_steps, full_output, sync, watching)


def check_function(name: str, label: str, function: Any, takes: str) -> None:
    if not callable(function):
        raise ArgumentTypeError(f"{name}: {label} must be a function of {takes}; got {described(function)}")


def _bound(name: str, max_steps: Any) -> int | None:
    if max_steps is None:
        return None
    try:
        if isinstance(max_steps, bool):
            raise TypeError
        # An int may be a symbol of a compiler, which would not stay one.
        bound = max_steps if isinstance(max_steps, int) else operator.index(max_steps)
    except TypeError as error:  # a traced number raises one of its library, derived from TypeError
        raise ArgumentTypeError(
            f"{name}: max_steps must be a Python int or None, since it sizes buffers; got {max_steps!r}. "
            "A bound that is known only while running belongs into cond, with a counter in the carry."
        ) from error
    if not 0 <= bound < 2**31:
        raise ArgumentError(f"{name}: max_steps must be between 0 and 2**31 - 1; got {bound}")
    return bound


def bound_message(name: str, bound: int | None) -> str:
    """bound: None where it is a symbol of a compiler."""
    given = "max_steps" if bound is None else f"max_steps={bound}"
    return (
        f"{name}: {given} was reached and the condition still held. Raise max_steps, or give "
        'on_max_steps="stop" for the partial result or "nan" for NaN.'
    )
