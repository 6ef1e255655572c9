"""Which array library runs a loop: decided late, so that importing dynloop imports neither.

A library that has not been imported cannot have made an array in the carry, so only imported
ones are asked. This is the one file that loads a backend, inside a function, for that reason.
"""

import importlib
import sys
from typing import Any, Protocol, cast

from dynloop.checkpoints import Storage
from dynloop.errors import ArgumentError, ArgumentTypeError, BackendError, described

_MODULES = {"jax": "dynloop.on_jax"}


class Backend(Protocol):
    """What a backend offers to `dynloop.loops`."""

    def while_loop(
        self, cond: Any, body: Any, init: Any, *, storage: Storage, on_max_steps: str, full_output: bool
    ) -> Any:
        """Run the loop; the keyword arguments have been checked, cond, body and init have not."""
        ...


def choose(name: str, backend: str | None, init: Any) -> Backend:
    """The backend named, or the one whose arrays stand in `init`."""
    if backend is not None:
        if not isinstance(backend, str):
            raise ArgumentTypeError(f'{name}: backend must be a name or None; got {described(backend)}. Give "jax".')
        if backend not in _MODULES:
            raise ArgumentError(f'{name}: backend={backend!r} is unknown; the only backend is "jax"')
        return _load(backend)
    if _has_jax_array(init):
        return _load("jax")
    raise BackendError(
        f"{name}: no array in init tells which library runs the loop\n"
        '  name it:           backend="jax"\n'
        "  or give an array:  jax.numpy.asarray(...) for a leaf of init"
    )


def _load(backend: str) -> Backend:
    return cast(Backend, importlib.import_module(_MODULES[backend]))


def _has_jax_array(tree: Any) -> bool:
    jax = sys.modules.get("jax")
    if jax is None:
        return False
    return any(isinstance(leaf, jax.Array) for leaf in jax.tree_util.tree_leaves(tree))
