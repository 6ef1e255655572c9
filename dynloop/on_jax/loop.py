"""`loop`: the loop itself, without a memory. It lowers to `lax.while_loop`, line for line."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from dynloop.errors import DerivativeError
from dynloop.on_jax import internals, lanes
from dynloop.on_jax.flat import cut
from dynloop.on_jax.joint import joint_arguments, spread
from dynloop.on_jax.primitives import define, forward_p, loop_p, reverse_p
from dynloop.on_jax.step import Loop, primal_loop, split_joint, tangent_transpose


def meaning(*args: Any, loop: Loop) -> list[Any]:
    if loop.lanes:
        batch, run, carry = lanes.begin(loop, args)
        run = lax.while_loop(lambda run: jnp.any(run.is_live), batch.step, run)
        return batch.finish(run, carry)
    constants, carry = cut(args, loop.constants, loop.carries)
    return lax.while_loop(lambda k: loop.cond(*constants, *k)[0], lambda k: loop.body(*constants, *k), carry)


def jvp(primals: Sequence[Any], tangents: Sequence[Any], *, loop: Loop) -> tuple[list[Any], list[Any]]:
    """One pass over the state and its tangent."""
    joint, mask, args = joint_arguments(loop, primals, tangents)
    out, out_tangents = cut(loop_p.bind(*args, loop=joint), loop.carries, sum(mask))
    return out, spread(out_tangents, mask, out)


def transpose(cotangents: Sequence[Any], *args: Any, loop: Loop) -> list[Any]:
    """`jax.linear_transpose` of a jvp: only the tangent half of a joint loop is linear."""
    if loop.split is None:
        raise DerivativeError(
            "while_loop: jax.linear_transpose with respect to the carry of a loop itself is not supported; "
            "take jax.vjp of the loop at any carry, which gives the same for a linear body"
        )
    c, dc, k, dk = split_joint(loop, args)
    primal, step = primal_loop(loop), tangent_transpose(loop)
    cache = forward_p.bind(*c, *k, loop=primal)[primal.carries :]
    seeds = [internals.instantiate(ct) for ct in cotangents[primal.carries :]]
    out = reverse_p.bind(*c, *k, *cache, *seeds, loop=primal, step=step, is_joint=False)
    for_c, for_k = cut(out, len(dc), len(dk))
    return [*[None] * len(c), *for_c, *[None] * len(k), *for_k]


define(loop_p, meaning, lambda loop: loop.carry_avals)
internals.set_jvp(loop_p, jvp)
internals.set_transpose(loop_p, transpose)
