"""Dead code: results of a loop that nobody uses cost nothing.

JAX removes equations whose results are unused, and asks a primitive what is left of one of which some are.
A loop then carries what the used results, its condition and its own steps still depend on; a forward pass
whose cache is unused is the loop; a joint loop whose tangents are unused is its primal half.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dynloop.on_jax import internals
from dynloop.on_jax.derived import primal_loop
from dynloop.on_jax.flat import Mask, complement, cut, merge, pick
from dynloop.on_jax.primitives import forward_p, loop_p
from dynloop.on_jax.structure import Loop
from dynloop.on_jax.traced import Traced, remembered


@remembered
def live_loop(loop: Loop, ys: Mask, carry: Mask) -> tuple[Loop, Mask, Mask]:
    """What is left of a loop that is not joint: a loop, and the masks of its constants and carries.

    carry, ys: which results are used.
    """
    nc = loop.constants
    is_plain = complement(loop.is_stacked)
    n_plain = sum(is_plain)
    asked = internals.read_inputs(loop.cond.closed)
    plain = merge(is_plain, [i in asked for i in range(n_plain)], [False] * nc)
    carry = tuple(used or n_plain + i in asked for i, used in enumerate(carry))
    while True:
        read = internals.read_inputs(loop.body.closed, (*carry, *ys))
        grown = tuple(live or nc + i in read for i, live in enumerate(carry))
        if grown == carry:
            break
        carry = grown
    constants = tuple(p or i in read or i == loop.count for i, p in enumerate(plain))
    if all((*constants, *carry, *ys)):
        return loop, constants, carry
    c_avals, k_avals = cut(loop.body.inputs, nc, loop.carries)
    plain_mask = pick(constants, is_plain)
    plain_avals = pick(c_avals, is_plain)

    def body(*flat: Any) -> list[Any]:
        c, k = cut(flat, sum(constants), sum(carry))
        out = loop.body(*filled(constants, c, c_avals), *filled(carry, k, k_avals))
        return pick(out, (*carry, *ys))

    def cond(*flat: Any) -> list[Any]:
        c, k = cut(flat, sum(plain_mask), sum(carry))
        return loop.cond(*filled(plain_mask, c, plain_avals), *filled(carry, k, k_avals))

    def left(values: Any, mask: Mask) -> Any:
        return tuple(pick(values, mask)) if values else values

    live = replace(
        loop,
        cond=Traced(cond, [*pick(plain_avals, plain_mask), *pick(k_avals, carry)]),
        body=Traced(body, [*pick(c_avals, constants), *pick(k_avals, carry)]),
        constants=sum(constants),
        ys=sum(ys),
        stacked=left(loop.stacked, constants),
        count=None if loop.count is None else sum(constants[: loop.count]),
        kept=left(loop.kept, carry),
        lane_axes=left(loop.lane_axes, constants),
        copies=left(loop.copies, carry),
        memory={},
    )
    return live, constants, carry


def filled(mask: Sequence[bool], values: Sequence[Any], avals: Sequence[Any]) -> list[Any]:
    """The values where the mask is true, something in the place of what nobody reads."""
    given = iter(values)
    return [next(given) if m else internals.zeros_of(a) for m, a in zip(mask, avals, strict=True)]


def rule(used: Sequence[bool], eqn: Any) -> tuple[list[bool], Any]:
    """The inputs that are left, and the equation; None if nothing is left of it."""
    loop: Loop = eqn.params["loop"]
    everything = [True] * len(eqn.invars)
    if eqn.effects:
        return everything, eqn
    if not any(used):
        return [False] * len(everything), None
    n = loop.carries + loop.ys
    if any(used[n:]):
        return everything, eqn
    used, outvars, inputs = list(used[:n]), list(eqn.outvars[:n]), list(everything)
    if loop.split:
        nc, nk, ny = loop.split
        is_primal = [*[True] * nk, *[False] * (loop.carries - nk), *[True] * ny, *[False] * (loop.ys - ny)]
        if any(pick(used, complement(is_primal))):
            return everything, eqn.replace(primitive=loop_p, outvars=outvars, params={"loop": loop})
        inputs = [*[True] * nc, *[False] * (loop.constants - nc), *[True] * nk, *[False] * (loop.carries - nk)]
        used, outvars, loop = pick(used, is_primal), pick(outvars, is_primal), primal_loop(loop)
    if loop.split is None:
        carry, ys = cut(used, loop.carries, loop.ys)
        loop, constants, live = live_loop(loop, tuple(ys), tuple(carry))
        outvars = pick(outvars, (*live, *ys))
        inputs = merge(inputs, [*constants, *live], inputs)
    return inputs, eqn.replace(
        primitive=loop_p, invars=pick(eqn.invars, inputs), outvars=outvars, params={"loop": loop}
    )


for _primitive in (loop_p, forward_p):
    internals.set_dead_code(_primitive, rule)
