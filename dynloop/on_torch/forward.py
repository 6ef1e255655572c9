"""The forward program: the loop, storing states on its way for a sweep.

Which states are stored is a fixed sequence (`adjoint.store_table`), or follows from the number of steps where that is
known; so the loop compares the step with the next of them. With leaf rows every state is written to one of
them besides, its last ones being there when the loop has stopped. Where every state has a row, that is all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dynloop.checkpoints import Layout
from dynloop.on_torch.arguments import cut
from dynloop.on_torch.placement import NEVER, KnownStores, TabledStores
from dynloop.on_torch.step import Step
from dynloop.on_torch.storing_loop import get, put, run


@dataclass(frozen=True)
class Result:
    """state, ys, steps: what the loop makes.

    stored: the block whose first state each slot, and the working row, holds.

    buffers: for each kept leaf, its stored states, laid out as `Layout` says.
    """

    state: list[Tensor]
    ys: list[Tensor]
    steps: Tensor
    stored: Tensor
    buffers: list[Tensor]


def storing(
    step: Step,
    layout: Layout,
    bound: int | None,
    length: Any,
    count: Tensor | None,
    state: Sequence[Tensor],
    xs: Sequence[Tensor],
    constants: Sequence[Any],
) -> Result:
    """Run the loop, storing states.   bound: the number of steps at most.   length: of what is stacked.

    count: the number of steps, if that is known."""
    n, device = len(state), counter_device(state)
    zero = torch.zeros((), dtype=torch.int64, device=device)
    kept = [torch.empty((layout.rows, *x.shape), dtype=x.dtype, device=x.device) for x in step.stored(state)]
    ys = [zeros((length, *y.shape), y) for y in step.outputs[n:]]
    buffers, k, r = [*kept, *ys], len(kept), len(xs)
    first_leaf_row = layout.rows - layout.leaf

    def holds(i: Tensor, state: list[Tensor], constants: list[Any]) -> Tensor:
        return step.body.holds(i, state, constants[r:])

    def one(carries: list[Tensor], buffers: list[Tensor], constants: list[Any]) -> Any:
        i, *state = carries
        kept, ys = cut(buffers, k)
        if layout.leaf:
            # Where every state has a row, row i is that of state i.
            row = i % layout.leaf if layout.slots else i
            kept = put(kept, step.stored(state), first_leaf_row + row)
        given, constants = cut(constants, r)
        state, y = step.advance(i, state, get(given, i), constants)
        return [i + 1, *state], [*kept, *put(ys, y, i)]

    start, constants = [zero, *[x.clone(memory_format=torch.contiguous_format) for x in state]], [*xs, *constants]
    if not layout.slots:
        final, buffers = run(lambda c, _, constants: holds(c[0], c[1:], constants), one, start, buffers, constants)
        stored = zero.reshape(1)
    else:
        is_known = count is not None and not layout.is_complete
        tables = KnownStores.tables(layout, device) if is_known else TabledStores.tables(layout, bound, device)

        def store_and_run(carries: list[Tensor], buffers: list[Tensor], given: list[Any]) -> Any:
            number, stored, *carries = carries
            place = torch.arange(layout.slots + 1, device=device)
            tables_, counts, constants = cut(given, len(tables), is_known)
            stores: Any = KnownStores(layout, tables_, *counts) if is_known else TabledStores(layout, tables_)
            block = torch.div(carries[0], layout.block, rounding_mode="floor")
            store = stores.at(number, block)
            kept, ys = cut(buffers, k)
            buffers = [*put(kept, step.stored(carries[1:]), store.slot), *ys]
            if store.freed is not None:
                stored = torch.where((place[:, None] == store.freed).any(1), NEVER, stored)
            stored = torch.where(place == store.slot, block, stored)

            def is_on(carries: list[Tensor], _: Any, constants: list[Any]) -> Tensor:
                return (carries[0] < constants[-1]) & holds(carries[0], carries[1:], constants[:-1])

            def inner(carries: list[Tensor], buffers: list[Tensor], constants: list[Any]) -> Any:
                return one(carries, buffers, constants[:-1])

            carries, buffers = run(is_on, inner, carries, buffers, [*constants, store.next_step])
            return [number + 1, stored, *carries], buffers

        skipped = len(tables) + is_known
        given = [*tables, *([count] if is_known else []), *constants]
        start = [zero + 0, torch.full((layout.slots + 1,), NEVER, device=device), *start]
        (_, stored, *final), buffers = run(
            lambda c, _, constants: holds(c[2], c[3:], constants[skipped:]), store_and_run, start, buffers, given
        )
    kept, ys = cut(buffers, k)
    return Result(final[1:], ys, final[0], stored, kept)


def zeros(shape: Sequence[Any], like: Tensor) -> Tensor:
    """A buffer of zeros that no pass of the compiler takes for another one."""
    return torch.zeros_like(torch.empty(tuple(shape), dtype=like.dtype, device=like.device))


def counter_device(state: Sequence[Tensor]) -> torch.device:
    return state[0].device if state else torch.device("cpu")
