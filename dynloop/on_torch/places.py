"""Places: where Python holds what a step reads, such as a cell of a function, a global, an attribute or an entry.

Names are bound anew between a run and its gradient (a loop variable, a flag, a parameter that was swapped), and a step
that runs again must find what it found at first. So what each place held is kept, and put back while steps run again.
Entries that are added to a list or a dict are no places: a body may keep a log.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from dynloop.on_torch.substitution import matters

# Compared by value, as nothing can be changed in them.
PLAIN = (bool, int, float, complex, str, bytes)
# What a place holds when it holds nothing: an entry that was taken out, a cell that is not assigned.
EMPTY = object()


class Place(NamedTuple):
    """holder: a dict, a list, a cell, or an object whose slot `key` is.   name: what the user calls it."""

    name: str
    holder: Any
    key: Any

    def get(self) -> Any:
        holder = self.holder
        try:
            if isinstance(holder, types.CellType):
                return holder.cell_contents
            return holder[self.key] if isinstance(holder, dict | list) else getattr(holder, self.key)
        except (ValueError, LookupError, AttributeError):
            return EMPTY

    def put(self, value: Any) -> None:
        holder, key = self.holder, self.key
        if isinstance(holder, types.CellType):
            if value is EMPTY:
                del holder.cell_contents
            else:
                holder.cell_contents = value
        elif isinstance(holder, dict):
            if value is EMPTY:
                holder.pop(key, None)
            else:
                holder[key] = value
        elif isinstance(holder, list):
            if value is EMPTY or key >= len(holder):
                raise RuntimeError(
                    f"{self.name} is of a list that was made shorter after a loop ran and before its gradient"
                )
            holder[key] = value
        elif value is not EMPTY:
            object.__setattr__(holder, key, value)


def is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    return type(one) is type(other) and isinstance(one, PLAIN) and one == other


def is_reached(value: Any) -> bool:
    """Whether a gradient or a transformation may reach a tensor in it."""
    if isinstance(value, torch.Tensor):
        return matters(value)
    if isinstance(value, tuple | list):
        return any(map(is_reached, value))
    return isinstance(value, dict) and any(map(is_reached, value.values()))


def changed(places: Iterable[Place], values: Iterable[Any]) -> list[Place]:
    """Those that hold something else than these."""
    return [place for place, value in zip(places, values, strict=True) if not is_same(place.get(), value)]


def fill(places: Iterable[Place], values: Iterable[Any]) -> None:
    for place, value in zip(places, values, strict=True):
        if not is_same(place.get(), value):
            place.put(value)


@contextmanager
def holding(places: list[Place], values: list[Any]) -> Iterator[None]:
    """Inside, they hold these; whatever happens, they hold afterwards what they held before."""
    before = [place.get() for place in places]
    try:
        fill(places, values)
        yield
    finally:
        fill(places, before)
