"""`x[i]` in a staged piece, and `x[i] = v`: for what has no items that can be assigned, or must not change in place."""

import copy
from typing import Any

from dynloop.syntax.arrays import is_array, staging_of


def put(held: Any, index: Any, value: Any) -> Any:
    """After Python has refused `held[index] = value`: an array with that item. Raises again for anything else."""
    if not is_array(held):
        raise
    return staging_of(held).with_item(held, index, value)


def item(held: Any, index: Any) -> Any:
    return staging_of(held).item(held, index) if is_array(held) else held[index]


def replaced(held: Any, index: Any, value: Any) -> Any:
    """A copy of an array, a list or a dict, with another item."""
    for part in (held, value, *(index if isinstance(index, tuple) else (index,))):
        if is_array(part) and not isinstance(held, (list, dict)):
            return staging_of(part).with_item(held, index, value)
    new: Any = copy.copy(held)
    new[index] = value
    return new
