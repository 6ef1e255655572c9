"""What a Python function reads besides its arguments, as a key under which its trace may be kept.

Tracing a function again at every call is slow, and keeping its first trace is wrong if something it
reads has changed since. So a trace is kept only for functions that read nothing but what cannot
change in place: numbers, text, JAX arrays, library code, plain functions that read only such things,
and tuples, lists and dicts of them, which are looked through at every call. It is found again while
every name still means the very same object. Whatever else a function reads, an object's attribute, a
NumPy array, an import of its own, makes it one that is traced at every call.
"""

import dis
import functools
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType, NoneType
from typing import Any

import jax
import numpy as np

from dynloop.on_jax import internals

# Comparing the identities of these is comparing their values.
_IMMUTABLE = (NoneType, bool, int, float, complex, str, bytes)
_IMMUTABLE += (np.ufunc, np.generic, np.dtype, jax.Array)
# What these read is theirs to know, as it is under `jax.jit`.
_LIBRARIES = frozenset({"builtins", "math", "jax", "jaxlib", "numpy", "equinox", "adjoint", "dynloop"})
_IMPORT = dis.opmap["IMPORT_NAME"]
# By these a function reaches what its code does not name.
_UNNAMED = frozenset({"eval", "exec", "globals", "locals", "vars", "__import__", "import_module"})


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
    if id(function) in walked or _is_of_library(function):
        return
    walked.add(id(function))
    names = _names(function.__code__)
    if vars(function) or not _UNNAMED.isdisjoint(names):
        raise _Changeable
    yield function.__code__
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
        for part in (value.func, value.args, value.keywords):
            yield from _parts(part, names, walked)
    elif type(value) in (tuple, list, dict) and id(value) not in walked:
        # Walked once: a container may hold itself, and a second way to it reads the same.
        walked.add(id(value))
        yield type(value)
        yield len(value)
        for part in (*value.keys(), *value.values()) if isinstance(value, dict) else value:
            yield from _parts(part, names, walked)
    elif _is_library_code(value):
        yield value
    else:
        raise _Changeable


def _is_library_code(value: Any) -> bool:
    """A class, a jitted function or a builtin of a library; a builtin bound to an object is none."""
    if isinstance(value, BuiltinFunctionType):
        return isinstance(value.__self__, ModuleType | NoneType) and _library(value.__module__)
    return isinstance(value, type | internals.JITTED) and _library(value.__module__)


def _is_of_library(function: FunctionType) -> bool:
    # `functools.wraps` gives a function of one module the name of another: a library's wrapper of a user's function
    # says it is the user's, a user's wrapper of a library's function that it is the library's.
    return _library(function.__module__) and _library(function.__globals__.get("__name__"))


def _library(module: str | None) -> bool:
    return (module or "").partition(".")[0] in _LIBRARIES


def _names(code: CodeType) -> list[str]:
    """All names that a function's code and the functions inside of it look up."""
    if _IMPORT in code.co_code[::2]:
        raise _Changeable
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
