"""Flat argument lists: how rules pick, merge and cut them.

A primitive's arguments are one flat list; its rules speak about parts of it. A *mask* is a tuple
of booleans, one for each entry.
"""

from collections.abc import Iterable, Sequence
from typing import Any

Mask = tuple[bool, ...]


def pick(xs: Iterable[Any], mask: Sequence[bool]) -> list[Any]:
    """The entries whose mask is true."""
    return [x for x, m in zip(xs, mask, strict=True) if m]


def merge(mask: Sequence[bool], new: Iterable[Any], old: Iterable[Any]) -> list[Any]:
    """`old` with the entries whose mask is true replaced, in order, by those of `new`."""
    fresh = iter(new)
    return [next(fresh) if m else x for m, x in zip(mask, old, strict=True)]


def complement(mask: Sequence[bool]) -> Mask:
    return tuple(not m for m in mask)


def cut(xs: Sequence[Any], *sizes: int) -> list[list[Any]]:
    """Consecutive pieces of these sizes, which must use the list up."""
    if sum(sizes) != len(xs):
        raise AssertionError(f"{len(xs)} entries cannot be cut into {sizes}")
    pieces, start = [], 0
    for size in sizes:
        pieces.append(list(xs[start : start + size]))
        start += size
    return pieces
