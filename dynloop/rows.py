"""How many rows a `scan` has: what stacked arrays, and `length=`, must agree on."""

import operator
from collections.abc import Sequence
from typing import Any

from dynloop.errors import ArgumentError, ArgumentTypeError

# What an int32 counts.
MOST = 2**31 - 1


def agreed_length(name: str, shapes: Sequence[tuple[str, tuple[int, ...]]], length: Any) -> int:
    """The number of rows, which all of xs, by their paths and shapes, and `length` must agree on."""
    for path, shape in shapes:
        if not shape:
            raise ArgumentError(f"{name}: xs{path} is a scalar; every leaf of xs needs a first axis, one row a step")
    if length is not None:
        try:
            if isinstance(length, bool):
                raise TypeError
            length = operator.index(length)
        except TypeError as error:
            raise ArgumentTypeError(
                f"{name}: length must be a Python int, since it sizes what is stacked; got {length!r}"
            ) from error
        if not 0 <= length <= MOST:
            raise ArgumentError(f"{name}: length must be between 0 and 2**31 - 1; got {length}")
    if length is None and not shapes:
        raise ArgumentError(f"{name}: nothing tells the number of steps at most; give xs, or length=")
    found = [*[f"xs{path} has {shape[0]} rows" for path, shape in shapes]]
    lengths = {shape[0] for _, shape in shapes} | ({length} if length is not None else set())
    if len(lengths) > 1:
        found += [f"length={length}"] if length is not None else []
        raise ArgumentError(f"{name}: xs and length must agree on the number of steps: {', '.join(found)}")
    return lengths.pop()
