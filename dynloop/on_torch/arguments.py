"""Flat lists of arguments: cut into parts, picked by a mask, and merged again."""

from collections.abc import Sequence
from typing import Any

Mask = tuple[bool, ...]


def cut(flat: Sequence[Any], *sizes: int) -> Any:
    """Parts of these sizes, and the rest."""
    parts, start = [], 0
    for size in sizes:
        parts.append(list(flat[start : start + size]))
        start += size
    return [*parts, list(flat[start:])]


def pick(xs: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    return [x for x, is_picked in zip(xs, mask, strict=True) if is_picked]


def merge(mask: Sequence[bool], xs: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """The next of xs where the mask is true; what stands in the same place of `others` elsewhere."""
    left = iter(xs)
    return [next(left) if is_picked else other for is_picked, other in zip(mask, others, strict=True)]
