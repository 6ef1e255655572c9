"""Rows: arrays whose first axis counts states, or steps; read and written one row at a time."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from jax import Array, lax


def put(buffers: Sequence[Array], values: Sequence[Array], row: Any) -> list[Array]:
    """Write a value to a row of each buffer, in place once compiled."""
    write = partial(lax.dynamic_update_index_in_dim, index=row, axis=0, allow_negative_indices=False)
    return [write(b, x) for b, x in zip(buffers, values, strict=True)]


def get(buffers: Sequence[Array], row: Any) -> list[Array]:
    read = partial(lax.dynamic_index_in_dim, index=row, axis=0, keepdims=False, allow_negative_indices=False)
    return [read(b) for b in buffers]
