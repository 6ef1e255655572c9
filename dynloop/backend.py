"""Which array library runs a loop: decided late, so that importing dynloop imports neither.

A library that has not been imported cannot have made an array in the carry, so only imported
ones are asked. This is the one file that loads a backend, inside a function, for that reason.
"""

import importlib
import sys
from dataclasses import fields, is_dataclass
from typing import Any, Protocol, cast

from dynloop.errors import ArgumentError, ArgumentTypeError, BackendError, described
from dynloop.options import Options
from dynloop.report import Report

_MODULES = {"jax": "dynloop.on_jax", "torch": "dynloop.on_torch"}

NAMES = 'give "jax" or "torch"'
# What no library takes for a tree.
_ATOMS = (bool, int, float, complex, str, bytes, type(None))


class Backend(Protocol):
    """What a backend offers to the public functions: options have been checked, the other arguments have not."""

    def while_loop(self, cond: Any, body: Any, init: Any, options: Options) -> Any: ...

    def fori_loop(self, lower: Any, upper: Any, body: Any, init: Any, options: Options) -> Any: ...

    def scan(
        self, step: Any, init: Any, xs: Any, length: int | None, until: Any, reverse: bool, options: Options
    ) -> Any: ...

    def explain(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Report:
        """Run the function once, and report of every loop in it: a `report.Site` each, and the steps of its runs."""
        ...

    def cond(self, pred: Any, true_fn: Any, false_fn: Any, operands: tuple[Any, ...]) -> Any:
        """Run one branch; the branches are callable, nothing else has been checked."""
        ...


def choose(name: str, backend: str | None, **arguments: Any) -> Backend:
    """The backend named, or the one whose arrays stand in these arguments, of which the first ones decide."""
    if backend is not None:
        if not isinstance(backend, str):
            raise ArgumentTypeError(f"{name}: backend must be a name or None; got {described(backend)}; {NAMES}")
        if backend not in _MODULES:
            raise ArgumentError(f"{name}: backend={backend!r} is unknown; {NAMES}")
        return _load(backend)
    for label, tree in arguments.items():
        kinds = _kinds_in(tree)
        if len(kinds) > 1:
            raise BackendError(
                f"{name}: {label} holds arrays of JAX and of PyTorch, and one library runs the loop; convert one kind, "
                "such as by torch.from_dlpack(...) or jax.numpy.from_dlpack(...)"
            )
        if kinds:
            return _load(kinds[0])
    first = next(iter(arguments))
    raise BackendError(
        f"{name}: no array in {' or '.join(arguments)} tells which library runs it\n"
        '  name it:           backend="jax" or backend="torch"\n'
        f"  or give an array:  jax.numpy.asarray(...) or torch.tensor(...) for a leaf of {first}"
    )


def _load(backend: str) -> Backend:
    return cast(Backend, importlib.import_module(_MODULES[backend]))


def _kinds_in(tree: Any) -> list[str]:
    """The libraries whose arrays stand in a tree: in containers of Python, in dataclasses, and in what JAX knows."""
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    found, stack = set[str](), [tree]
    while stack:
        x = stack.pop()
        if torch is not None and isinstance(x, torch.Tensor):
            found.add("torch")
        elif jax is not None and isinstance(x, jax.Array):
            found.add("jax")
        elif isinstance(x, dict):
            stack += x.values()
        elif isinstance(x, tuple | list):
            stack += x
        elif is_dataclass(x) and not isinstance(x, type):
            stack += [getattr(x, field.name, None) for field in fields(x)]
        elif jax is not None and not isinstance(x, _ATOMS):
            leaves = jax.tree_util.tree_leaves(x)
            stack += leaves if not (len(leaves) == 1 and leaves[0] is x) else []
    return sorted(found)
