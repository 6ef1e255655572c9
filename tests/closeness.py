"""Comparing nested results of any array library: leaf by leaf, relative to the leaf's largest entry."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

EXACT = 1e-12
"""What two orders of the same double-precision arithmetic may differ by."""


def leaves(tree: Any) -> Iterator[np.ndarray]:
    """The arrays of nested tuples, lists and dicts, in order."""
    if isinstance(tree, Mapping):
        for value in tree.values():
            yield from leaves(value)
    elif isinstance(tree, tuple | list):
        for value in tree:
            yield from leaves(value)
    else:
        yield np.asarray(tree)


def difference(actual: Any, expected: Any) -> float:
    """The largest difference in any leaf, relative to that leaf's largest expected entry; inf if shapes differ."""
    worst = 0.0
    found, wanted = list(leaves(actual)), list(leaves(expected))
    if [x.shape for x in found] != [x.shape for x in wanted]:
        return float("inf")
    for a, b in zip(found, wanted, strict=True):
        if not b.size:
            continue
        scale = np.abs(b).max() or 1.0
        error = np.abs(a - b).max() / scale
        # A NaN where a number was expected is no closeness at all.
        worst = max(worst, float(error) if np.isfinite(error) else float("inf"))
    return worst


def assert_close(actual: Any, expected: Any, tolerance: float = EXACT) -> None:
    error = difference(actual, expected)
    assert error <= tolerance, (
        f"relative difference {error:.3g} > {tolerance:.3g}\n got      {actual}\n expected {expected}"
    )
