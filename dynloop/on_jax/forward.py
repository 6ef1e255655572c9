"""`forward`: the loop, storing states on its way for a sweep whose length nobody knows yet.

Outputs: the final carry; meta, the number of steps and, where there are slots, for each of them and
for the working row the block whose first state it holds (NEVER: none): int32[1 + slots + 1], or
int32[1]; one buffer for each leaf of the carry, its first axis the rows of the `Layout`.

The places of the stores are a fixed sequence (`adjoint.store_table`), so the loop compares the
step with the next entry, and the body stands in the program once.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dynloop.on_jax import internals
from dynloop.on_jax.flat import cut
from dynloop.on_jax.joint import joint_arguments, spread
from dynloop.on_jax.placement import I32, NEVER, entry, store_events
from dynloop.on_jax.primitives import define, forward_p
from dynloop.on_jax.step import Loop


def put(buffers: Sequence[Array], state: Sequence[Array], row: Array) -> list[Array]:
    """Write a state to a row of the buffers, in place once compiled."""
    write = partial(lax.dynamic_update_index_in_dim, index=row, axis=0, allow_negative_indices=False)
    return [write(b, x) for b, x in zip(buffers, state, strict=True)]


def get(buffers: Sequence[Array], row: Array) -> list[Array]:
    read = partial(lax.dynamic_index_in_dim, index=row, axis=0, keepdims=False, allow_negative_indices=False)
    return [read(b) for b in buffers]


def meaning(*args: Any, loop: Loop) -> list[Any]:
    constants, carry = cut(args, loop.constants, loop.carries)
    layout = loop.layout
    # Filled with the first state, which every dtype has, typed keys too; no row is read before it is written.
    buffers = [lax.broadcast(x, (layout.rows,)) for x in carry]
    first_leaf_row = layout.rows - layout.leaf

    def holds(state: Sequence[Any]) -> Array:
        return loop.cond(*constants, *state)[0]

    def step(i: Array, state: list[Any], buffers: list[Any]) -> tuple[Array, Array, list[Any], list[Any]]:
        if layout.leaf:
            buffers = put(buffers, state, first_leaf_row + lax.rem(i, np.int32(layout.leaf)))
        state = loop.body(*constants, *state)
        return i + 1, holds(state), state, buffers

    start = (jnp.asarray(0, I32), holds(carry), carry, buffers)
    if not layout.slots:
        steps, _, carry, buffers = lax.while_loop(lambda w: w[1], lambda w: step(w[0], w[2], w[3]), start)
        return [*carry, steps[None], *buffers]

    events = store_events(layout, loop.storage.bound)
    event_steps, event_slots, event_freed = map(jnp.asarray, events)
    rows = np.arange(layout.slots + 1, dtype=np.int32)

    def store_and_run(w: Any) -> Any:
        event, i, on, state, buffers, stored = w
        slot, until = entry(event_slots, event), entry(event_steps, event + 1)
        buffers = put(buffers, state, slot)
        freed = lax.dynamic_slice_in_dim(event_freed, event, 1)
        stored = jnp.where(jnp.any(rows[:, None] == freed, axis=1), NEVER, stored)
        stored = jnp.where(rows == slot, lax.div(i, np.int32(layout.block)), stored)
        run = lax.while_loop(lambda v: v[1] & (v[0] < until), lambda v: step(v[0], v[2], v[3]), (i, on, state, buffers))
        return event + 1, *run, stored

    stored = jnp.full(layout.slots + 1, NEVER, I32)
    _, steps, _, carry, buffers, stored = lax.while_loop(
        lambda w: w[2], store_and_run, (jnp.asarray(0, I32), *start, stored)
    )
    return [*carry, jnp.concatenate([steps[None], stored]), *buffers]


def jvp(primals: Sequence[Any], tangents: Sequence[Any], *, loop: Loop) -> tuple[list[Any], list[Any]]:
    joint, mask, args = joint_arguments(loop, primals, tangents)
    n, n_dot = loop.carries, sum(mask)
    out, out_dot, meta, buffers, buffers_dot = cut(forward_p.bind(*args, loop=joint), n, n_dot, 1, n, n_dot)
    meta_dot = [internals.zero_tangent_of(meta[0])]
    return [*out, *meta, *buffers], [*spread(out_dot, mask, out), *meta_dot, *spread(buffers_dot, mask, buffers)]


define(forward_p, meaning)
internals.set_jvp(forward_p, jvp)
