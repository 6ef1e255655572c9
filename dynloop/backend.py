"""Which array library runs a loop: decided late, so that importing dynloop imports neither.

A library that has not been imported cannot have made an array in the carry, so only imported
ones are asked. This is the one file that loads a backend, inside a function, for that reason.
"""

import importlib
import sys
from typing import Any, Protocol, cast

from dynloop.errors import ArgumentError, ArgumentTypeError, BackendError, described
from dynloop.settings import Options

_MODULES = {"jax": "dynloop.on_jax"}


class Backend(Protocol):
    """What a backend offers to the public functions: options have been checked, the other arguments have not."""

    def while_loop(self, cond: Any, body: Any, init: Any, options: Options) -> Any: ...

    def fori_loop(self, lower: Any, upper: Any, body: Any, init: Any, options: Options) -> Any: ...

    def scan(
        self, step: Any, init: Any, xs: Any, length: int | None, until: Any, reverse: bool, options: Options
    ) -> Any: ...

    staging: Any
    """A module: what it offers to `dynloop.syntax` (`dynloop.syntax.arrays.Staging`)."""

    def cond(self, pred: Any, true_fn: Any, false_fn: Any, operands: tuple[Any, ...]) -> Any:
        """Run one branch; the branches are callable, nothing else has been checked."""
        ...


def choose(name: str, backend: str | None, **arguments: Any) -> Backend:
    """The backend named, or the one whose arrays stand in these arguments, of which the first ones decide."""
    if backend is not None:
        if not isinstance(backend, str):
            raise ArgumentTypeError(f'{name}: backend must be a name or None; got {described(backend)}. Give "jax".')
        if backend not in _MODULES:
            raise ArgumentError(f'{name}: backend={backend!r} is unknown; the only backend is "jax"')
        return _load(backend)
    if any(map(_has_jax_array, arguments.values())):
        return _load("jax")
    first = next(iter(arguments))
    raise BackendError(
        f"{name}: no array in {' or '.join(arguments)} tells which library runs it\n"
        '  name it:           backend="jax"\n'
        f"  or give an array:  jax.numpy.asarray(...) for a leaf of {first}"
    )


def _load(backend: str) -> Backend:
    return cast(Backend, importlib.import_module(_MODULES[backend]))


def _has_jax_array(tree: Any) -> bool:
    jax = sys.modules.get("jax")
    if jax is None:
        return False
    return any(isinstance(leaf, jax.Array) for leaf in jax.tree_util.tree_leaves(tree))


def staging(library: str) -> Any:
    """What the backend of this library offers to `dynloop.syntax`."""
    return _load(library).staging
