"""What may watch a loop while it runs: `observe=` takes one of these, or several.

`on_step`, `watch_nan` and `Progress` are told of every real step, of every lane of a batch that takes it, once; steps
that a gradient runs again are not told. They run on the host, so an observed loop waits for it at every
step. `verify` looks at the steps that a gradient runs again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import BuiltinMethodType, MethodType
from typing import Any, ClassVar

from dynloop.errors import ArgumentTypeError, NonFiniteError, described
from dynloop.progress import Progress


@dataclass(frozen=True, eq=False)
class OnStep:
    """See `dynloop.on_step`."""

    function: Callable[[int, Any], None]
    reads_carry: ClassVar[bool] = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OnStep) and _identity(self.function) == _identity(other.function)

    def __hash__(self) -> int:
        return hash(_identity(self.function))

    def see(self, name: str, step: int, carry: Any, leaves: Sequence[tuple[str, Any]]) -> None:
        self.function(step, carry)


@dataclass(frozen=True)
class WatchNan:
    """See `dynloop.watch_nan`."""

    reads_carry: ClassVar[bool] = True

    def see(self, name: str, step: int, carry: Any, leaves: Sequence[tuple[str, Any]]) -> None:
        for path, leaf in leaves:
            # Only NaN differs from itself.
            if (leaf != leaf).any():
                raise NonFiniteError(f"{name}: step {step} made carry{path} NaN; state {step} has none: look there")


@dataclass(frozen=True, eq=False)
class Verify:
    """See `dynloop.verify`."""

    report: Callable[[float], None]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Verify) and _identity(self.report) == _identity(other.report)

    def __hash__(self) -> int:
        return hash(_identity(self.report))


def _identity(function: Callable[..., Any]) -> Any:
    """Equal for the very same function only: an object that can be called may be no key, or equal to another one.

    A method is made anew each time that it is named, and equals another of the same object.
    """
    return function if isinstance(function, MethodType | BuiltinMethodType) else id(function)


Told = OnStep | WatchNan | Progress
Observer = Told | Verify


def on_step(function: Callable[[int, Any], None]) -> OnStep:
    """Call `function(i, carry)` after every step i, with the carry that it made.

    Args:
        function: takes the index of the step, an int from 0 on, and the carry, whose leaves are NumPy arrays. It runs
            on the host, once for each lane of a batch that took the step, and returns nothing.

    Cost:
        One call of the host a step.

    Raises:
        ArgumentTypeError: `function` cannot be called.

    >>> import jax, dynloop
    >>> show = dynloop.on_step(lambda i, x: print(i, float(x)))
    >>> x = dynloop.while_loop(lambda x: x < 10, lambda x: 3 * x, jax.numpy.float32(2), observe=show)
    0 6.0
    1 18.0
    """
    if not callable(function):
        raise ArgumentTypeError(f"on_step: function must take the step and the carry; got {described(function)}")
    return OnStep(function)


def watch_nan() -> WatchNan:
    """Raise as soon as a step makes a floating leaf of the carry NaN; the error names the step and the leaf.

    Cost:
        One call of the host a step.

    Raises:
        NonFiniteError: from within the running program, so that it may arrive wrapped in the array library's own error.

    >>> import dynloop
    >>> dynloop.watch_nan()
    WatchNan()
    """
    return WatchNan()


def verify(report: Callable[[float], None] = print) -> Verify:
    """Check the reversal while it runs: compare every state it uses with the step that leads to it.

    A gradient runs steps again, and a compiler may round them differently than the first time. For each step i the
    state i + 1 that the reversal has used, stored or computed, is compared with what step i makes of state i.

    Args:
        report: is given the largest drift once the reversal is done: the largest difference of two floating entries
            divided by the larger of 1 and the entry. 0 means that all agree to the last bit.

    Cost:
        One more evaluation a step of the reversal, and one more state.

    Raises:
        RuntimeError: while the program runs, if an integer or boolean leaf differs: the body is not a function of its
            carry, or a rounding has changed a decision.

    >>> import jax, dynloop
    >>> def f(x):
    ...     return dynloop.while_loop(lambda x: x < 10, lambda x: 3 * x, x, checkpoints=1, observe=dynloop.verify())
    >>> slope = jax.grad(f)(jax.numpy.float32(2))
    0.0
    """
    if not callable(report):
        raise ArgumentTypeError(f"verify: report must take a float; got {described(report)}")
    return Verify(report)


def told(observers: Sequence[Observer]) -> tuple[Told, ...]:
    """Those who are told of the real steps."""
    return tuple(observer for observer in observers if not isinstance(observer, Verify))


def checked(name: str, observe: Any) -> tuple[Observer, ...]:
    """`observe=` of a call to the function `name`, as a tuple."""
    observers = tuple(observe) if isinstance(observe, list | tuple) else () if observe is None else (observe,)
    for observer in observers:
        if not isinstance(observer, Observer):
            raise ArgumentTypeError(
                f"{name}: observe must be dynloop.on_step(...), dynloop.watch_nan(), dynloop.Progress(), "
                f"dynloop.verify() or several of them; got {described(observer)}"
            )
    return observers
