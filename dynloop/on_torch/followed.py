"""Trees of values under torch.compile, by Python that Dynamo follows.

optree's own structures are C++, of which Dynamo reads little: it compares none that was made outside of it, and knows
no dict of optree's. What staged code carries is taken apart here instead, into the same parts in the same order.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True)
class Node:
    """A container.   keys: of its parts: names of fields, keys of a dict, or places.

    made: what makes it: list, tuple, a class of dicts, or a class of the user's; None stands for one part.
    order: the keys of a dict as they came, in which it is made again; its parts are in the order of the keys.
    """

    made: Any
    keys: tuple[Any, ...]
    children: tuple[Node, ...]
    order: tuple[Any, ...] = field(default=(), compare=False)


PART = Node(None, (), ())


def flatten(value: Any) -> tuple[list[Any], Node]:
    """Parts and tree."""
    parts: list[Any] = []
    return parts, _walk(value, parts)


def _walk(value: Any, parts: list[Any]) -> Node:
    kind = type(value)
    if not isinstance(value, Tensor):
        if value is None:
            return Node(type(None), (), ())
        if kind is tuple or kind is list:
            return Node(kind, tuple(range(len(value))), tuple([_walk(x, parts) for x in value]))
        if kind is dict or kind is OrderedDict:
            order = tuple(value)
            is_sorted = kind is dict and (_are_all(order, str) or _are_all(order, int))
            keys = tuple(sorted(order)) if is_sorted else order
            return Node(kind, keys, tuple([_walk(value[key], parts) for key in keys]), order)
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return Node(kind, kind._fields, tuple([_walk(x, parts) for x in value]))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            keys = tuple([part.name for part in dataclasses.fields(value) if part.init])
            return Node(kind, keys, tuple([_walk(getattr(value, name), parts) for name in keys]))
    parts.append(value)
    return PART


def _are_all(keys: tuple[Any, ...], kind: type) -> bool:
    return all(isinstance(key, kind) for key in keys)


def paths_of(tree: Node) -> list[str]:
    """The paths of the parts, as text such as `['x'][0].position`."""
    if tree.made is None:
        return [""]
    paths: list[str] = []
    is_indexed = tree.made is tuple or tree.made is list or bool(tree.order)
    for key, child in zip(tree.keys, tree.children, strict=True):
        step = f"[{key!r}]" if is_indexed else f".{key}"
        paths += [step + path for path in paths_of(child)]
    return paths


def in_words(tree: Node) -> str:
    """The tree as messages say it, a part being a star; Dynamo asks no object for its own words."""
    if tree.made is None or tree.made is type(None):
        return "None" if tree.made else "*"
    inside = [in_words(child) for child in tree.children]
    if tree.order:
        return "{" + ", ".join([f"{key!r}: {x}" for key, x in zip(tree.keys, inside, strict=True)]) + "}"
    if tree.made is list:
        return "[" + ", ".join(inside) + "]"
    if tree.made is tuple:
        return "(" + ", ".join(inside) + ("," if len(inside) == 1 else "") + ")"
    named = [f"{key}={x}" for key, x in zip(tree.keys, inside, strict=True)]
    return f"{tree.made.__name__}(" + ", ".join(named) + ")"


def unflatten(tree: Node, parts: Sequence[Any]) -> Any:
    return _made(tree, list(parts))


def _made(tree: Node, left: list[Any]) -> Any:
    """Takes from what is left what it needs."""
    if tree.made is None:
        return left.pop(0)
    if tree.made is type(None):
        return None
    inside = [_made(child, left) for child in tree.children]
    if tree.made is list:
        return inside
    if tree.made is tuple:
        return tuple(inside)
    named = dict(zip(tree.keys, inside, strict=True))
    if tree.made is dict or tree.made is OrderedDict:
        return tree.made([(key, named[key]) for key in tree.order])
    return tree.made(**named)


def is_same(one: Node, other: Node) -> bool:
    if one.made is not other.made or one.keys != other.keys:
        return False
    # One after the other, since Dynamo follows no generator that calls itself.
    for a, b in zip(one.children, other.children, strict=True):  # noqa: SIM110
        if not is_same(a, b):
            return False
    return True


class Place(NamedTuple):
    """An integer tensor among the indices of an array.   place: the same, counted from the front, with one axis.

    rest: the indices of the one row that is there.
    """

    axis: int
    place: Tensor
    rest: tuple[Any, ...]


def place_in(array: Tensor, index: Any) -> Place | None:
    """The first tensor without axes among the indices, which torch would take for a number that Python has to know."""
    several = index if isinstance(index, tuple) else (index,)
    taken = [_axes(part) for part in several]
    axis = 0
    for i, part in enumerate(several):
        if part is Ellipsis:
            axis = array.ndim - sum(taken[i:])
        elif isinstance(part, Tensor) and part.ndim == 0 and part.dtype in INTEGERS:
            length = array.shape[axis]
            place = torch.where(part < 0, part + length, part).to(torch.int64).reshape(1)
            return Place(axis, place, (*several[:i], 0, *several[i + 1 :]))
        axis += taken[i]
    return None


def _axes(part: Any) -> int:
    """How many axes of an array an index takes."""
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    return part.ndim if isinstance(part, Tensor) and part.dtype is torch.bool else 1
