"""`reverse_tangent`: the tangent of the reverse sweep, linear in every tangent.

Run forward, it is the sweep of the joint loop. Transposed, it is one forward pass and one reverse
sweep of the dual loop, which carries v beside x, v' = J(x) v: with cotangent v, the gradient with
respect to ct is J(x) v and the one with respect to x is that of <J(x) v, ct>.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from dynloop.on_jax import internals
from dynloop.on_jax.again import forward_again
from dynloop.on_jax.derived import dual_loop, primal_loop, primal_step, storing_for, unobserved, vjp_step
from dynloop.on_jax.flat import cut
from dynloop.on_jax.ordering import after
from dynloop.on_jax.primitives import define, reverse_p, reverse_tangent_p
from dynloop.on_jax.reverse import sum_avals
from dynloop.on_jax.structure import Loop, Masks, Step
from dynloop.on_jax.tangent import jvp_of_definition
from dynloop.on_jax.traced import zeros


def meaning(*args: Any, loop: Loop, step: Step) -> list[Any]:
    constants, carry, (steps,), seeds = cut(args, loop.constants, loop.carries, 1, len(step.seed_avals))
    swept = unobserved(storing_for(loop, step))
    cache = forward_again(swept, steps, constants, carry)[loop.carries + loop.ys :]
    out = reverse_p.bind(*constants, *carry, *cache, *seeds, loop=swept, step=step, is_joint=True)
    _, sums_dot, _, ct_dot = cut(out, *[step.sums // 2] * 2, *[step.cotangents // 2] * 2)
    return [*sums_dot, *ct_dot]


def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    return jvp_of_definition(partial(meaning, **params), primals, tangents)


def transpose(cotangents: Sequence[Any], *args: Any, loop: Loop, step: Step) -> list[Any]:
    primal, primal_of_step = primal_loop(loop), primal_step(step)
    n_ct, n_y, n_sum = primal_of_step.cotangents, primal_of_step.y_cotangents, primal_of_step.sums
    (*state, steps), ct, y = step.cut(args)
    c, dc, k, dk = loop.split_inputs(state)
    (ct, dct), (y, dy) = cut(ct, n_ct, n_ct), cut(y, n_y, n_y)
    v_sum, v = cut([internals.instantiate(t) for t in cotangents], n_sum, n_ct)
    dual = dual_loop(primal_of_step, primal)
    assert loop.masks is not None, "a joint loop that differentiates a primal one keeps its masks"
    varied = loop.masks
    back = vjp_step(dual, Masks((*varied.constants, *[False] * n_sum), (*varied.carry, *[True] * n_ct), (True,) * n_y))
    dual = storing_for(dual, back)
    # Both here and at the end, so that the sweeps of a derivative of higher order run one after the other: each has a
    # cache, and XLA would make one as soon as it can.
    constants, carry = [*c, *v_sum], after([*k, *v], [*ct, *y])
    out = forward_again(dual, steps, constants, carry)
    _, for_dct, for_dy, cache = cut(out, primal.carries, n_ct, n_y, len(out) - primal.carries - n_ct - n_y)
    nothing = zeros(back.seed_avals[: sum(varied.carry)])
    out = reverse_p.bind(*constants, *carry, *cache, *nothing, *ct, *y, loop=dual, step=back, is_joint=False)
    for_dc, for_dk, _ = cut(out, len(dc), len(dk), n_ct)

    for_dc, for_dk = internals.asked_for(for_dc, dc), internals.asked_for(for_dk, dk)
    for_dct, for_dy = cut(after([*for_dct, *for_dy], [x for x in (*for_dc, *for_dk) if x is not None]), n_ct, n_y)
    return [
        *[None] * len(c),
        *for_dc,
        *[None] * len(k),
        *for_dk,
        None,
        *[None] * n_ct,
        *internals.asked_for(for_dct, dct),
        *[None] * n_y,
        *internals.asked_for(for_dy, dy),
    ]


def outputs(loop: Loop, step: Step) -> list[Any]:
    _, ct, _ = step.cut(step.run.inputs)
    return [*sum_avals(loop, step)[step.sums // 2 :], *ct[step.cotangents // 2 :]]


define(reverse_tangent_p, meaning, outputs)
internals.set_jvp(reverse_tangent_p, jvp)
internals.set_transpose(reverse_tangent_p, transpose)
