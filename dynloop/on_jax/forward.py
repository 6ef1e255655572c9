"""`forward`: the loop, storing states on its way for a sweep.

Outputs: the final carry and the ys; meta, the number of steps and, where there are slots, for each of
them and for the working row the block whose first state it holds (NEVER: none): int32[1 + slots + 1],
or int32[1]; one buffer for each kept leaf of the carry, its first axis the rows of the `Layout`.

Where lanes stop by themselves (`lanes`), the states are their legal inputs, meta has their axes and
counts the steps of each, and a buffer's lanes follow its rows.

Which states are stored is a fixed sequence (`adjoint.store_table`), or follows from the number of
steps where that is known (`Loop.count`); so the loop compares the step with the next of them, and the
body stands in the program once.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dynloop.on_jax import internals, lanes, reporting
from dynloop.on_jax.flat import cut, pick
from dynloop.on_jax.joint import joint_arguments, spread
from dynloop.on_jax.placement import I32, NEVER, KnownStores, TabledStores
from dynloop.on_jax.primitives import define, forward_p
from dynloop.on_jax.rows import put
from dynloop.on_jax.structure import Loop
from dynloop.on_jax.tiers import Buffers
from dynloop.on_jax.traced import zeros


class Plain(NamedTuple):
    """A loop between two steps: its state, and whether the next step is to be taken."""

    inputs: list[Array]
    is_live: Array


def meaning(*args: Any, loop: Loop) -> list[Any]:
    layout, batch = loop.layout, None
    constants, carry = cut(args, loop.constants, loop.carries)
    if loop.lanes:
        batch, run, carry = lanes.begin(loop, args)
        step: Callable[[Array, Any], Any] = batch.step
    else:
        run = Plain(carry, loop.holds(constants, carry))

        def plain_step(i: Array, run: Plain) -> tuple[Plain, list[Array]]:
            state, y = cut(loop.body(*loop.at(constants, i), *run.inputs), loop.carries, loop.ys)
            loop.observe(constants, state, i, run.is_live)
            return Plain(state, loop.holds(constants, state)), y

        step = plain_step

    rooms = reporting.buffers_of(loop)
    buffers = rooms.filled(pick(run.inputs, loop.is_kept))
    first_leaf_row = layout.rows - layout.leaf

    def leaf_step(w: Any) -> Any:
        i, run, buffers, ys = w
        if layout.leaf:
            # Behind the slots, leaf rows lie on the device.
            put_leaf = rooms.put_on_device if layout.slots else rooms.put
            row = first_leaf_row + lax.rem(i, np.int32(layout.leaf))
            buffers = put_leaf(buffers, pick(run.inputs, loop.is_kept), row)
        run, y = step(i, run)
        return i + 1, run, buffers, put(ys, y, loop.row(i))

    def is_on(run: Any) -> Array:
        return run.is_live if batch is None else batch.is_on(run)

    start = (loop.number(0), run, buffers, zeros(loop.outputs[loop.carries :]))
    if layout.slots:
        (steps, run, buffers, ys), stored = _store_and_run(loop, rooms, constants, leaf_step, is_on, start)
    else:
        steps, run, buffers, ys = lax.while_loop(lambda w: is_on(w[1]), leaf_step, start)
        stored = loop.number(jnp.zeros(0))
    reporting.tell(loop, "forward", steps)
    if batch is None:
        return [*run.inputs, *ys, jnp.concatenate([steps[None], stored]), *buffers]
    stored = jnp.broadcast_to(stored, (*loop.lanes, *stored.shape))
    meta = jnp.concatenate([run.steps[..., None], stored], axis=-1)
    return [*batch.finish(run, carry), *ys, meta, *buffers]


def _store_and_run(
    loop: Loop,
    rooms: Buffers,
    constants: list[Any],
    leaf_step: Callable[[Any], Any],
    is_on: Callable[[Any], Array],
    start: Any,
) -> Any:
    """The loop between the stores, each of which puts a state in a slot."""
    layout = loop.layout
    if loop.count is None or layout.is_complete:
        stores: KnownStores | TabledStores = TabledStores(layout, loop.storage.bound)
    else:
        stores = KnownStores(layout, jnp.max(constants[loop.count], initial=0))
    rows = np.arange(layout.slots + 1, dtype=np.int32)

    def store_and_run(w: Any) -> Any:
        number, (i, run, buffers, ys), stored = w
        block = lax.div(i, np.int32(layout.block))
        store = stores.at(number, block)
        buffers = rooms.put(buffers, pick(run.inputs, loop.is_kept), store.slot)
        if store.freed is not None:
            stored = jnp.where(jnp.any(rows[:, None] == store.freed, axis=1), NEVER, stored)
        stored = jnp.where(rows == store.slot, block, stored)
        w = lax.while_loop(lambda v: is_on(v[1]) & (v[0] < store.next_step), leaf_step, (i, run, buffers, ys))
        return number + 1, w, stored

    stored = loop.number(jnp.full(layout.slots + 1, NEVER, I32))
    _, w, stored = lax.while_loop(lambda w: is_on(w[1][1]), store_and_run, (loop.number(0), start, stored))
    return w, stored


def jvp(primals: Sequence[Any], tangents: Sequence[Any], *, loop: Loop) -> tuple[list[Any], list[Any]]:
    joint, masks, args = joint_arguments(loop, primals, tangents)
    out, cache = cut(forward_p.bind(*args, loop=joint), joint.carries + joint.ys, 1 + joint.buffer_count)
    k, dk, y, dy = joint.split_outputs(out)
    has_tangent = loop.of_buffers(masks.carry)
    meta, buffers, buffers_dot = cut(cache, 1, loop.buffer_count, sum(has_tangent))
    results = [*k, *y, *meta, *buffers]
    mask = (*masks.outputs, False, *has_tangent)
    return results, spread([*dk, *dy, *buffers_dot], mask, results)


def outputs(loop: Loop) -> list[Any]:
    layout = loop.layout
    meta = internals.shaped((*loop.lanes, 1 + (layout.slots + 1 if layout.slots else 0)), I32)
    meta = internals.varied_aval(meta, loop.names)
    return [*loop.outputs, meta, *loop.buffer_avals]


define(forward_p, meaning, outputs)
internals.set_jvp(forward_p, jvp)
