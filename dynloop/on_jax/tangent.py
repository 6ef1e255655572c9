"""`tangent`: the linear map that the loop applies to tangents, at a state whose primal run is done.

Run forward, it needs no stored state: it is the joint loop, whose primal half repeats the run, for
the number of steps in the cache. Transposed, it is the reverse sweep, which reads the cache.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dynloop.on_jax import internals
from dynloop.on_jax.again import forward_again
from dynloop.on_jax.derived import counted_loop, storing_enough, swept_loop, tangent_transpose, unobserved
from dynloop.on_jax.flat import cut, merge, pick
from dynloop.on_jax.joint import perturbed
from dynloop.on_jax.ordering import after
from dynloop.on_jax.primitives import define, loop_p, reverse_p, tangent_p
from dynloop.on_jax.structure import Loop


class Arguments(NamedTuple):
    constants: list[Any]
    carry: list[Any]
    cache: list[Any]
    constants_dot: list[Any]
    carry_dot: list[Any]


def arguments(loop: Loop, flat: Sequence[Any]) -> Arguments:
    assert loop.split is not None
    nc, nk, _ = loop.split
    nc_dot, nk_dot = loop.constants - nc, loop.carries - nk
    return Arguments(*cut(flat, nc, nk, len(flat) - nc - nk - nc_dot - nk_dot, nc_dot, nk_dot))


def meaning(*args: Any, loop: Loop) -> list[Any]:
    a = arguments(loop, args)
    # As many steps as the primal run took: rounding, which differs between programs, must not decide again.
    steps = a.cache[0][..., 0]
    counted = counted_loop(loop)
    start = counted.number(jnp.zeros_like(steps))
    state = [*a.constants, *a.constants_dot, steps, *a.carry, *a.carry_dot, start]
    carry, ys = cut(loop_p.bind(*state, loop=counted), counted.carries, counted.ys)
    return [*carry[len(a.carry) : -1], *ys]


def jvp_of_definition(meaning: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """Differentiate what a primitive stands for, in its perturbed arguments."""
    mask = perturbed(tangents)

    def active(*xs: Any) -> Any:
        return meaning(*merge(mask, xs, primals))

    return jax.jvp(active, pick(primals, mask), pick(tangents, mask))


def jvp(primals: Sequence[Any], tangents: Sequence[Any], *, loop: Loop) -> Any:
    a = arguments(loop, primals)
    n = len(primals) - len(a.constants_dot) - len(a.carry_dot)
    if not any(perturbed(tangents[:n])):
        dense = [internals.instantiate(t) for t in tangents[n:]]
        return tangent_p.bind(*primals, loop=loop), tangent_p.bind(*primals[:n], *dense, loop=loop)
    return jvp_of_definition(partial(meaning, loop=loop), primals, tangents)


def transpose(cotangents: Sequence[Any], *args: Any, loop: Loop) -> list[Any]:
    a = arguments(loop, args)
    seeds = [internals.instantiate(ct) for ct in cotangents]
    swept, cache = swept_loop(loop), a.cache
    if len(cache) < 1 + swept.buffer_count:
        loop = storing_enough(loop)
        swept = unobserved(swept_loop(loop))
        # Not before the seeds are there: until then the cache of another sweep may fill the memory.
        out = forward_again(swept, cache[0][..., 0], a.constants, after(a.carry, seeds))
        cache = out[swept.carries + swept.ys :]
    out = reverse_p.bind(
        *a.constants, *a.carry, *cache, *seeds, loop=swept, step=tangent_transpose(loop), is_joint=False
    )
    linear = [*a.constants_dot, *a.carry_dot]
    return [*[None] * (len(args) - len(linear)), *internals.asked_for(out, linear)]


def outputs(loop: Loop) -> list[Any]:
    _, dk, _, dy = loop.split_outputs(loop.outputs)
    return [*dk, *dy]


define(tangent_p, meaning, outputs)
internals.set_jvp(tangent_p, jvp)
internals.set_transpose(tangent_p, transpose)
