"""What a Python function reads besides its arguments, as a key under which its trace may be kept.

Tracing a function again at every call is slow, and keeping its first trace is wrong if something it
reads has changed since. So a trace is kept only for functions that read nothing but what cannot
change in place: numbers, text, JAX arrays, library code, functions that read only such things, and
containers of them. It is found again while every name still means the very same object.
"""

import functools
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType, NoneType
from typing import Any

import jax
import numpy as np
from jax import tree_util as jtu

from dynloop.on_jax import internals

# Comparing the identities of these is comparing their values.
_IMMUTABLE = (NoneType, bool, int, float, complex, str, bytes, type, BuiltinFunctionType)
_IMMUTABLE += (np.ufunc, np.generic, np.dtype, jax.Array, internals.JITTED)
# What these read is theirs to know, as it is under `jax.jit`.
_LIBRARIES = frozenset({"jax", "jaxlib", "numpy", "equinox", "adjoint", "dynloop"})


class _Changeable(Exception):
    """Something is read that may change in place, or that belongs to a running transformation."""


class Identities:
    """A tuple of objects that equals another if both hold the very same objects.

    It keeps them alive, so that no later object can take one's identity.
    """

    def __init__(self, values: tuple[Any, ...]):
        self.values = values
        self.ids = tuple(map(id, values))

    def __hash__(self) -> int:
        return hash(self.ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identities) and self.ids == other.ids


def objects_read(*functions: Any) -> Identities | None:
    """What the functions read, in a fixed order; None if no trace of them may be kept."""
    try:
        return Identities(tuple(x for f in functions for x in _read(f, set())))
    except _Changeable:
        return None


def _read(function: Any, walked: set[int]) -> Iterator[Any]:
    """The names that a function looks up, each before what it finds there: the same objects under
    other names are another meaning."""
    if not isinstance(function, FunctionType):
        raise _Changeable
    if id(function) in walked or _library(function.__module__):
        return
    walked.add(id(function))
    names = _names(function.__code__)
    for name in names:
        yield name
        if name in function.__globals__:
            yield from _parts(function.__globals__[name], names, walked)
    for cell in function.__closure__ or ():
        yield from _parts(_content(cell), names, walked)
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield from _parts(default, names, walked)


def _parts(value: Any, names: list[str], walked: set[int]) -> Iterator[Any]:
    """One value that is read: itself if it cannot change, else what it is made of."""
    if isinstance(value, internals.Tracer):
        raise _Changeable
    if isinstance(value, _IMMUTABLE):
        yield value
    elif isinstance(value, FunctionType):
        yield value
        yield from _read(value, walked)
    elif isinstance(value, ModuleType):
        yield value
        if not _library(value.__name__):
            for name in names:
                if name in vars(value):
                    yield from _parts(vars(value)[name], names, walked)
    elif isinstance(value, functools.partial):
        for part in (value.func, *value.args, *value.keywords.values()):
            yield from _parts(part, names, walked)
    else:
        leaves, tree = jtu.tree_flatten(value)
        if len(leaves) == 1 and leaves[0] is value:
            raise _Changeable
        yield sys.intern(str(tree))
        for leaf in leaves:
            yield from _parts(leaf, names, walked)


def _library(module: str | None) -> bool:
    return (module or "").partition(".")[0] in _LIBRARIES


def _names(code: CodeType) -> list[str]:
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names += _names(constant)
    return names


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None
