"""The values that a staged statement carries, as arrays and a form: what is left of them without their arrays.

A name may have no value yet (`Unassigned`). Its value may be any pytree; what is neither an array nor
a number in it, such as a string or a function, is static: the same at every step.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dynloop.errors import UnassignedError
from dynloop.syntax.arrays import Kind, Staging
from dynloop.syntax.names import RETURNED


class Unassigned:
    """Stands for no value, where a staged piece has to give one."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"<no value of {self.name!r}>"


def assigned(value: Any) -> Any:
    """A value that is read where it may not have been assigned."""
    if isinstance(value, Unassigned):
        raise UnassignedError(
            f"{value.name!r} is used but may not have been assigned on every path; give {value.name!r} a value before"
        )
    return value


def returned(value: Any) -> Any:
    """What a staged `return` has returned."""
    if isinstance(value, Unassigned):
        raise UnassignedError("the returned value may not have been assigned on every path; return one on each of them")
    return value


class Static(NamedTuple):
    """A part of a value that is no array."""

    value: Any


class Leaf(NamedTuple):
    """A part that is an array or a number: its place among the leaves."""

    place: int


@dataclass(frozen=True)
class Form:
    """One value without its leaves."""

    tree: Any
    paths: list[str]
    parts: list[Static | Leaf]


Forms = list[Form | None]
"""Of each value; None of one that is not there."""


def packed(staging: Staging, values: Sequence[Any], keep_numbers: bool = False) -> tuple[list[Any], Forms]:
    """The leaves of values, and their forms.   keep_numbers: a number of Python is static."""
    leaves: list[Any] = []
    forms: Forms = []
    for value in values:
        if isinstance(value, Unassigned):
            forms.append(None)
            continue
        found, paths, tree = staging.flatten(value)
        parts: list[Static | Leaf] = []
        for part in found:
            is_static = not staging.is_leaf(part) or (keep_numbers and is_number(part))
            parts.append(Static(part) if is_static else Leaf(len(leaves)))
            if not is_static:
                leaves.append(part)
        forms.append(Form(tree, paths, parts))
    return leaves, forms


def unpacked(staging: Staging, names: Sequence[str], forms: Forms, leaves: Sequence[Any]) -> tuple[Any, ...]:
    """The values again."""
    return tuple(
        Unassigned(name)
        if form is None
        else staging.unflatten(form.tree, [leaves[p.place] if isinstance(p, Leaf) else p.value for p in form.parts])
        for name, form in zip(names, forms, strict=True)
    )


def is_number(value: Any) -> bool:
    return type(value) in (bool, int, float, complex)


def parts_of(form: Form, leaves: Sequence[Any]) -> Iterator[tuple[str, Any, bool]]:
    """(path, value or kind of the leaf, whether it is static) of each part."""
    for path, part in zip(form.paths, form.parts, strict=True):
        yield (path, part.value, True) if isinstance(part, Static) else (path, leaves[part.place], False)


def is_same(a: Any, b: Any) -> bool:
    """Whether two static parts are one value."""
    if a is b:
        return True
    try:
        return type(a) is type(b) and bool(a == b)
    except Exception:  # whatever a comparison of somebody's objects raises, they are not known to be the same
        return False


def described(value: Any) -> str:
    """A static part, or the kind of a leaf, in a message."""
    return str(value) if isinstance(value, Kind) else f"{type(value).__name__} {value!r}"


def label(name: str, path: str) -> str:
    """A name, or a part of its value, in a message."""
    if name == RETURNED:
        return f"the returned value{' at ' + path if path else ''}"
    return f"'{name}{path}'"
