"""`loop`: the loop itself, without a memory. Where nothing is stacked it lowers to `lax.while_loop`, line for line."""

from collections.abc import Sequence
from typing import Any

from jax import lax

from dynloop.errors import DerivativeError
from dynloop.on_jax import internals, lanes, reporting
from dynloop.on_jax.derived import swept_loop, tangent_transpose
from dynloop.on_jax.flat import cut
from dynloop.on_jax.joint import joint_arguments, spread
from dynloop.on_jax.primitives import define, forward_p, loop_p, reverse_p
from dynloop.on_jax.rows import put
from dynloop.on_jax.structure import Loop
from dynloop.on_jax.traced import zeros


def meaning(*args: Any, loop: Loop) -> list[Any]:
    constants, carry = cut(args, loop.constants, loop.carries)
    first = loop.number(0)
    ys = zeros(loop.outputs[loop.carries :])
    if loop.lanes:
        batch, run, carry = lanes.begin(loop, args)

        def lanes_step(w: Any) -> Any:
            i, run, ys = w
            run, y = batch.step(i, run)
            return i + 1, run, put(ys, y, loop.row(i))

        _, run, ys = lax.while_loop(lambda w: batch.is_on(w[1]), lanes_step, (first, run, ys))
        reporting.tell(loop, "forward", run.steps)
        return [*batch.finish(run, carry), *ys]
    if not loop.ys and not any(loop.is_stacked) and not loop.observed and not reporting.is_on():
        return lax.while_loop(lambda k: loop.holds(constants, k), lambda k: loop.body(*constants, *k), carry)

    def step(w: Any) -> Any:
        i, carry, ys = w
        carry, y = cut(loop.body(*loop.at(constants, i), *carry), loop.carries, loop.ys)
        loop.observe(constants, carry, i)
        return i + 1, carry, put(ys, y, loop.row(i))

    steps, carry, ys = lax.while_loop(lambda w: loop.holds(constants, w[1]), step, (first, carry, ys))
    reporting.tell(loop, "forward", steps)
    return [*carry, *ys]


def jvp(primals: Sequence[Any], tangents: Sequence[Any], *, loop: Loop) -> tuple[list[Any], list[Any]]:
    """One pass over the state and its tangent."""
    joint, masks, args = joint_arguments(loop, primals, tangents)
    k, dk, y, dy = joint.split_outputs(loop_p.bind(*args, loop=joint))
    return [*k, *y], spread([*dk, *dy], masks.outputs, [*k, *y])


def transpose(cotangents: Sequence[Any], *args: Any, loop: Loop) -> list[Any]:
    """`jax.linear_transpose` of a jvp: only the tangent half of a joint loop is linear."""
    if loop.split is None:
        raise DerivativeError(
            "jax.linear_transpose with respect to the carry of a loop itself is not supported; "
            "take jax.vjp of the loop at any carry, which gives the same for a linear body"
        )
    c, dc, k, dk = loop.split_inputs(args)
    primal, step = swept_loop(loop), tangent_transpose(loop)
    cache = forward_p.bind(*c, *k, loop=primal)[primal.carries + primal.ys :]
    _, ct, _, y_ct = loop.split_outputs(cotangents)
    seeds = [internals.instantiate(t) for t in [*ct, *y_ct]]
    out = reverse_p.bind(*c, *k, *cache, *seeds, loop=primal, step=step, is_joint=False)
    for_c, for_k = cut(out, len(dc), len(dk))
    return [
        *[None] * len(c),
        *internals.asked_for(for_c, dc),
        *[None] * len(k),
        *internals.asked_for(for_k, dk),
    ]


define(loop_p, meaning, lambda loop: loop.outputs)
internals.set_jvp(loop_p, jvp)
internals.set_transpose(loop_p, transpose)
