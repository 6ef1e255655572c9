"""Ys of a scan that takes no step: zeros of the shapes that its step would stack, which it is asked for without values.

The step runs once on tensors that have shapes and no entries (`FakeTensorMode`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dynloop.errors import ArgumentError
from dynloop.on_torch.engine import DataDependentOutputException, FakeTensorMode
from dynloop.on_torch.searching import search
from dynloop.on_torch.structure import Loop, Tensors
from dynloop.on_torch.surroundings import Surroundings


def nothing_stacked(loop: Loop, carry: Tensors, xs: Tensors) -> list[Tensor]:
    """Zeros for every y."""
    if loop.length is None:
        return []
    return zeros_like_ys(loop.name, loop.labels[1], loop.length, partial(loop.body, 0), carry, xs, loop.functions)


def zeros_like_ys(
    name: str,
    label: str,
    length: int,
    step: Callable[[Tensors, Tensors], Any],
    carry: Tensors,
    xs: Tensors,
    functions: tuple[Any, ...],
) -> list[Tensor]:
    """step: maps (carry, rows) to (carry, ys).   functions: the user's, which it calls."""
    try:
        with (
            # No step runs, so nothing that the step draws, moves or binds may stay so.
            Surroundings(search(functions)).untouched(),
            torch.no_grad(),
            FakeTensorMode(allow_non_fake_inputs=True),
        ):
            made = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in carry]
            rows = [torch.empty(x.shape[1:], dtype=x.dtype, device=x.device) for x in xs]
            y = step(tuple(made), tuple(rows))[1]
            shapes = [(tuple(x.shape), x.dtype, x.device) for x in y]
    except DataDependentOutputException as error:
        raise ArgumentError(
            f"{name}: no step runs, and {label} looks at values of its arguments, so nothing tells the shapes of the "
            f"ys; keep {label} to operations on tensors, or leave the call out where there is no step"
        ) from error
    return [torch.zeros((length, *shape), dtype=dtype, device=device) for shape, dtype, device in shapes]
