"""What one staged statement knows while those inside of it are staged, and the options that hold for it.

A loop may be traced again, once the type of a number that it carries is known; what it has learnt is
kept until the outermost statement is done, so that the loops inside of it need not learn it again.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any, TypeVar

from dynloop import backend, settings
from dynloop.errors import ArgumentTypeError, StagingError
from dynloop.syntax.arrays import is_compiling

T = TypeVar("T")

OPTIONS = ("max_steps", "checkpoints", "on_max_steps", "sync", "observe", "backend")


@dataclass
class Session:
    """staging: of the library that is being traced.

    learnt: for a site and a name, what the name had to be before the loop.
    """

    staging: Any
    learnt: dict[Any, Any]


_SESSION: ContextVar[Session | None] = ContextVar("dynloop.session", default=None)
_OPTIONS: ContextVar[dict[str, Any]] = ContextVar("dynloop.options")


def current() -> Session | None:
    """The one of the statement that is being staged around this one."""
    # Asked for by staged pieces alone, and torch.compile knows no other library.
    return Session(backend.staging("torch"), {}) if is_compiling() else _SESSION.get()


def within(staging: Any, run: Callable[[Session], T]) -> T:
    """Trace a staged piece. `dynloop.options` around a loop does not hold for loops inside of it."""
    if is_compiling():
        return run(Session(staging, {}))
    known = _SESSION.get() or Session(staging, {})
    tokens = _SESSION.set(known), _OPTIONS.set({})
    try:
        return run(known)
    finally:
        _SESSION.reset(tokens[0])
        _OPTIONS.reset(tokens[1])


def options_now() -> dict[str, Any]:
    return {} if is_compiling() else _OPTIONS.get({})


class options(AbstractContextManager[None]):
    """Options of the loops in a block, in a function under `@dynloop.loop`; they go before those of the decorator.

    They hold for every loop that is staged while the block runs, and not for the loops inside of it.

    Args:
        max_steps, checkpoints, on_max_steps, sync, observe, backend: as in `dynloop.while_loop`.

    Raises:
        ArgumentError, ArgumentTypeError: an option is out of its range or kind.
        StagingError: when the block begins: the function is inside of `torch.compile`.

    >>> import jax, dynloop
    >>> @dynloop.loop
    ... def root(a):
    ...     x = a
    ...     with dynloop.options(checkpoints=4, max_steps=50):
    ...         while abs(x * x - a) > 1e-5:
    ...             x = 0.5 * (x + a / x)
    ...     return x
    >>> round(float(jax.grad(root)(4.0)), 4)
    0.25
    """

    def __init__(self, **given: Any):
        self.given = checked("options", given)
        self.tokens: list[Token[dict[str, Any]]] = []

    def __enter__(self) -> None:
        if is_compiling():
            raise StagingError(
                "options: torch.compile does not follow `with dynloop.options(...)`; give the options to the "
                "decorator, as in @dynloop.loop(checkpoints=4), and a loop of its own options a function of its own"
            )
        self.tokens.append(_OPTIONS.set({**options_now(), **self.given}))

    def __exit__(self, *error: object) -> None:
        _OPTIONS.reset(self.tokens.pop())


def checked(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Options as given, if a loop can take them."""
    unknown = sorted(set(given) - set(OPTIONS))
    if unknown:
        raise ArgumentTypeError(f"{name}: there is no option {unknown[0]!r}; there are {', '.join(OPTIONS)}")
    settings.checked(
        name,
        given.get("checkpoints", "auto"),
        given.get("max_steps"),
        given.get("on_max_steps", "raise"),
        False,
        given.get("sync"),
        given.get("observe"),
    )
    return given
