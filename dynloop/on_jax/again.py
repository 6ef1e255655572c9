"""A forward pass run again, because its cache was not kept: for as many steps as the first run took.

Another program rounds differently, and a condition such as "until nothing changes" may then hold once more or once
less. The number of steps is a decision, and decisions are made once.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from dynloop.on_jax.derived import unobserved
from dynloop.on_jax.flat import complement, cut, pick
from dynloop.on_jax.primitives import forward_p
from dynloop.on_jax.structure import Loop
from dynloop.on_jax.traced import Traced, remembered


@remembered
def pinned_loop(loop: Loop) -> Loop:
    """The loop that takes a given number of steps, its last constant, beside a counter, its last carry."""
    nc, nk = loop.constants, loop.carries
    count = jax.typeof(loop.number(jnp.zeros(loop.lanes)))
    c_avals, k_avals = cut(loop.body.inputs, nc, nk)
    plain = pick(c_avals, complement(loop.is_stacked))

    def body(*flat: Any) -> list[Any]:
        c, _, k, (i,) = cut(flat, nc, 1, nk, 1)
        k, y = cut(loop.body(*c, *k), nk, loop.ys)
        return [*k, i + 1, *y]

    return Loop(
        Traced(lambda *flat: [flat[-1] < flat[len(plain)]], [*plain, count, *k_avals, count]),
        Traced(body, [*c_avals, count, *k_avals, count]),
        nc + 1,
        loop.storage,
        ys=loop.ys,
        stacked=(*loop.stacked, False) if loop.stacked else (),
        length=loop.length,
        is_backward=loop.is_backward,
        kept=(*loop.is_kept, False),
        lanes=loop.lanes,
        lane_axes=(*loop.lane_axes, len(loop.lanes)) if loop.lanes else (),
        copies=(*loop.copies, 1) if loop.copies else (),
    )


def forward_again(loop: Loop, steps: Array, constants: Sequence[Any], carry: Sequence[Any]) -> list[Any]:
    """What `forward` gives for a primal loop that takes this many steps: int32[*lanes]. Nobody is told of them."""
    if loop.count is not None:
        return forward_p.bind(*constants, *carry, loop=unobserved(loop))
    start = loop.number(jnp.zeros_like(steps))
    out = forward_p.bind(*constants, steps, *carry, start, loop=pinned_loop(loop))
    return [*out[: loop.carries], *out[loop.carries + 1 :]]
