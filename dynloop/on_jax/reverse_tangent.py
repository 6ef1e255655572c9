"""`reverse_tangent`: the tangent of the reverse sweep, linear in every tangent.

Run forward, it is the sweep of the joint loop. Transposed, it is one forward pass and one reverse
sweep of the dual loop, which carries v beside x, v' = J(x) v: with cotangent v, the gradient with
respect to ct is J(x) v and the one with respect to x is that of <J(x) v, ct>.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from dynloop.on_jax import internals
from dynloop.on_jax.derived import dual_loop, primal_loop, primal_step, storing_for, unobserved, vjp_step
from dynloop.on_jax.flat import cut
from dynloop.on_jax.primitives import define, forward_p, reverse_p, reverse_tangent_p
from dynloop.on_jax.reverse import sum_avals
from dynloop.on_jax.structure import Loop, Masks, Step
from dynloop.on_jax.tangent import jvp_of_definition
from dynloop.on_jax.traced import zeros


def meaning(*args: Any, loop: Loop, step: Step) -> list[Any]:
    n_state = loop.constants + loop.carries
    swept = unobserved(storing_for(loop, step))
    cache = forward_p.bind(*args[:n_state], loop=swept)[loop.carries + loop.ys :]
    out = reverse_p.bind(*args[:n_state], *cache, *args[n_state:], loop=swept, step=step, is_joint=True)
    _, sums_dot, _, ct_dot = cut(out, *[step.sums // 2] * 2, *[step.cotangents // 2] * 2)
    return [*sums_dot, *ct_dot]


def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    return jvp_of_definition(partial(meaning, **params), primals, tangents)


def transpose(cotangents: Sequence[Any], *args: Any, loop: Loop, step: Step) -> list[Any]:
    primal, primal_of_step = primal_loop(loop), primal_step(step)
    n_ct, n_y, n_sum = primal_of_step.cotangents, primal_of_step.y_cotangents, primal_of_step.sums
    state, ct, y = step.cut(args)
    c, dc, k, dk = loop.split_inputs(state)
    (ct, dct), (y, dy) = cut(ct, n_ct, n_ct), cut(y, n_y, n_y)
    v_sum, v = cut([internals.instantiate(t) for t in cotangents], n_sum, n_ct)
    dual = dual_loop(primal_of_step, primal)
    assert loop.masks is not None, "a joint loop that differentiates a primal one keeps its masks"
    constants, carry = loop.masks.constants, loop.masks.carry
    back = vjp_step(dual, Masks((*constants, *[False] * n_sum), (*carry, *[True] * n_ct), (True,) * n_y))
    dual = storing_for(dual, back)
    state = [*c, *v_sum, *k, *v]
    out = forward_p.bind(*state, loop=dual)
    _, for_dct, for_dy, cache = cut(out, primal.carries, n_ct, n_y, len(out) - primal.carries - n_ct - n_y)
    nothing = zeros(back.seed_avals[: sum(carry)])
    out = reverse_p.bind(*state, *cache, *nothing, *ct, *y, loop=dual, step=back, is_joint=False)
    for_dc, for_dk, _ = cut(out, len(dc), len(dk), n_ct)

    def wanted(values: list[Any], linear: list[Any]) -> list[Any]:
        return [x if internals.is_linear_input(a) else None for x, a in zip(values, linear, strict=True)]

    return [
        *[None] * len(c),
        *wanted(for_dc, dc),
        *[None] * len(k),
        *wanted(for_dk, dk),
        *[None] * n_ct,
        *wanted(for_dct, dct),
        *[None] * n_y,
        *wanted(for_dy, dy),
    ]


def outputs(loop: Loop, step: Step) -> list[Any]:
    _, ct, _ = step.cut(step.run.inputs)
    return [*sum_avals(loop, step)[step.sums // 2 :], *ct[step.cotangents // 2 :]]


define(reverse_tangent_p, meaning, outputs)
internals.set_jvp(reverse_tangent_p, jvp)
internals.set_transpose(reverse_tangent_p, transpose)
