"""Trees of values under torch.compile, by Python that Dynamo follows.

optree's own structures are C++, of which Dynamo reads little: it compares none that was made outside of it, and knows
no dict of optree's. What staged code carries is taken apart here instead, into the same parts in the same order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True)
class Node:
    """A container.   keys: of its parts: names of fields, keys of a dict, or places.

    made: what makes it: list, tuple, dict, or a class of the user's; None stands for one part.
    """

    made: Any
    keys: tuple[Any, ...]
    children: tuple[Node, ...]

    def __str__(self) -> str:
        if self.made is None:
            return "*"
        inside = ", ".join(str(child) for child in self.children)
        return f"{self.made.__name__}({inside})"


PART = Node(None, (), ())


def flatten(value: Any) -> tuple[list[Any], list[str], Node]:
    """Parts, their paths, and the tree."""
    parts: list[Any] = []
    paths: list[str] = []
    return parts, paths, _walk(value, "", parts, paths)


def _walk(value: Any, path: str, parts: list[Any], paths: list[str]) -> Node:
    kind = type(value)
    if not isinstance(value, Tensor):
        if value is None:
            return Node(type(None), (), ())
        if kind is tuple or kind is list:
            keys = tuple(range(len(value)))
            inside = [_walk(x, f"{path}[{i}]", parts, paths) for i, x in enumerate(value)]
            return Node(kind, keys, tuple(inside))
        if kind is dict:
            keys = tuple(sorted(value) if all(isinstance(key, str) for key in value) else value)
            return Node(dict, keys, tuple([_walk(value[k], f"{path}[{k!r}]", parts, paths) for k in keys]))
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            several = zip(kind._fields, value, strict=True)
            return Node(kind, kind._fields, tuple([_walk(x, f"{path}.{n}", parts, paths) for n, x in several]))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            keys = tuple([field.name for field in dataclasses.fields(value) if field.init])
            return Node(kind, keys, tuple([_walk(getattr(value, n), f"{path}.{n}", parts, paths) for n in keys]))
    parts.append(value)
    paths.append(path)
    return PART


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
    if tree.made is dict:
        return dict(zip(tree.keys, inside, strict=True))
    return tree.made(**dict(zip(tree.keys, inside, strict=True)))


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
