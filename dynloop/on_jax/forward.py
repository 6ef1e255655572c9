"""`forward`: the loop, storing states on its way for a sweep whose length nobody knows yet.

Outputs: the final carry; meta, the number of steps and, where there are slots, for each of them and
for the working row the block whose first state it holds (NEVER: none): int32[1 + slots + 1], or
int32[1]; one buffer for each leaf of the carry, its first axis the rows of the `Layout`.

Where lanes stop by themselves (`lanes`), the states are their legal inputs, meta has their axes and
counts the steps of each, and a buffer's lanes follow its rows.

The places of the stores are a fixed sequence (`adjoint.store_table`), so the loop compares the
step with the next entry, and the body stands in the program once.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dynloop.on_jax import internals, lanes
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


class Plain(NamedTuple):
    """A loop between two steps: its state, and whether the next step is to be taken."""

    inputs: list[Array]
    is_live: Array


def meaning(*args: Any, loop: Loop) -> list[Any]:
    layout, batch = loop.layout, None
    if loop.lanes:
        batch, run, carry = lanes.begin(loop, args)
        step: Callable[[Any], Any] = batch.step
    else:
        constants, carry = cut(args, loop.constants, loop.carries)
        run = Plain(carry, loop.cond(*constants, *carry)[0])

        def plain_step(run: Plain) -> Plain:
            state = loop.body(*constants, *run.inputs)
            return Plain(state, loop.cond(*constants, *state)[0])

        step = plain_step

    # Filled with the first state, which every dtype has, typed keys too; no row is read before it is written.
    buffers = [lax.broadcast(x, (layout.rows,)) for x in run.inputs]
    first_leaf_row = layout.rows - layout.leaf

    def leaf_step(w: Any) -> Any:
        i, run, buffers = w
        if layout.leaf:
            buffers = put(buffers, run.inputs, first_leaf_row + lax.rem(i, np.int32(layout.leaf)))
        return i + 1, step(run), buffers

    def is_on(run: Any) -> Array:
        return jnp.any(run.is_live) if loop.lanes else run.is_live

    start = (jnp.asarray(0, I32), run, buffers)
    if layout.slots:
        steps, run, buffers, stored = _store_and_run(loop, leaf_step, is_on, start)
    else:
        steps, run, buffers = lax.while_loop(lambda w: is_on(w[1]), leaf_step, start)
        stored = jnp.zeros(0, I32)
    if batch is None:
        return [*run.inputs, jnp.concatenate([steps[None], stored]), *buffers]
    stored = jnp.broadcast_to(stored, (*loop.lanes, *stored.shape))
    return [*batch.finish(run, carry), jnp.concatenate([run.steps[..., None], stored], axis=-1), *buffers]


def _store_and_run(loop: Loop, leaf_step: Callable[[Any], Any], is_on: Callable[[Any], Array], start: Any) -> Any:
    """The loop between the events of the table, each of which stores a state in a slot."""
    layout = loop.layout
    events = store_events(layout, loop.storage.bound)
    event_steps, event_slots, event_freed = map(jnp.asarray, events)
    rows = np.arange(layout.slots + 1, dtype=np.int32)

    def store_and_run(w: Any) -> Any:
        event, (i, run, buffers), stored = w
        slot, until = entry(event_slots, event), entry(event_steps, event + 1)
        buffers = put(buffers, run.inputs, slot)
        freed = lax.dynamic_slice_in_dim(event_freed, event, 1)
        stored = jnp.where(jnp.any(rows[:, None] == freed, axis=1), NEVER, stored)
        stored = jnp.where(rows == slot, lax.div(i, np.int32(layout.block)), stored)
        w = lax.while_loop(lambda v: is_on(v[1]) & (v[0] < until), leaf_step, (i, run, buffers))
        return event + 1, w, stored

    stored = jnp.full(layout.slots + 1, NEVER, I32)
    _, w, stored = lax.while_loop(lambda w: is_on(w[1][1]), store_and_run, (jnp.asarray(0, I32), start, stored))
    return *w, stored


def jvp(primals: Sequence[Any], tangents: Sequence[Any], *, loop: Loop) -> tuple[list[Any], list[Any]]:
    joint, mask, args = joint_arguments(loop, primals, tangents)
    n, n_dot = loop.carries, sum(mask)
    out, out_dot, meta, buffers, buffers_dot = cut(forward_p.bind(*args, loop=joint), n, n_dot, 1, n, n_dot)
    meta_dot = [internals.zero_tangent_of(meta[0])]
    return [*out, *meta, *buffers], [*spread(out_dot, mask, out), *meta_dot, *spread(buffers_dot, mask, buffers)]


def outputs(loop: Loop) -> list[Any]:
    layout = loop.layout
    meta = internals.shaped((*loop.lanes, 1 + (layout.slots + 1 if layout.slots else 0)), I32)
    buffers = [internals.shaped((layout.rows, *a.shape), a.dtype) for a in loop.carry_avals]
    return [*loop.carry_avals, meta, *buffers]


define(forward_p, meaning, outputs)
internals.set_jvp(forward_p, jvp)
