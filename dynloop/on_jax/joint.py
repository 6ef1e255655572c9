"""Joint equations: (x, dx) in one pass, entered by jvp and taken apart by partial evaluation.

jvp of loop, forward and reverse binds the same primitive on the doubled state. Reverse mode then
knows x and not dx: partial evaluation splits the joint equation into its primal half, with a cache
of stored states, and a linear equation for dx that reads the cache. `jax.checkpoint` splits the
same way, but stages the whole joint equation for later.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from dynloop.on_jax import internals
from dynloop.on_jax.again import forward_again
from dynloop.on_jax.derived import (
    joint_loop,
    joint_masks,
    primal_loop,
    primal_step,
    storing_enough,
    swept_loop,
)
from dynloop.on_jax.flat import Mask, complement, cut, merge, pick
from dynloop.on_jax.host_memory import on_host, unread
from dynloop.on_jax.primitives import forward_p, loop_p, reverse_p, reverse_tangent_p, tangent_p
from dynloop.on_jax.structure import Loop, Masks
from dynloop.on_jax.tiers import is_in_branch


def perturbed(tangents: Sequence[Any]) -> Mask:
    return tuple(map(internals.has_value, tangents))


def joint_arguments(loop: Loop, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Loop, Masks, list[Any]]:
    """The joint loop for these tangents, the masks of what has one, and its arguments."""
    c, k = cut(primals, loop.constants, loop.carries)
    dc, dk = cut(tangents, loop.constants, loop.carries)
    masks = joint_masks(loop, perturbed(dc), perturbed(dk))

    def dense(xs: list[Any], mask: Mask) -> list[Any]:
        return [internals.instantiate(t) for t in pick(xs, mask)]

    return joint_loop(loop, masks), masks, [*c, *dense(dc, masks.constants), *k, *dense(dk, masks.carry)]


def spread(tangents: Sequence[Any], mask: Mask, primals: Sequence[Any]) -> list[Any]:
    """Tangents of the masked outputs, symbolic zeros for the others."""
    return merge(mask, tangents, [internals.zero_tangent_of(x) for x in primals])


class PrimalPart(NamedTuple):
    """Which inputs and outputs of a joint equation are primal, and the parameters of the equation of those alone."""

    inputs: Mask
    outputs: Mask
    params: dict[str, Any]


def primal_part(primitive: Any, params: dict[str, Any]) -> PrimalPart | None:
    """None: the equation is not joint."""
    loop: Loop = params["loop"]
    if loop.split is None or (primitive is reverse_p and not params["is_joint"]):
        return None
    nc, nk, ny = loop.split
    constants = [True] * nc + [False] * (loop.constants - nc)
    carry = [True] * nk + [False] * (loop.carries - nk)
    out = (*carry, *[True] * ny, *[False] * (loop.ys - ny))
    if primitive is loop_p:
        return PrimalPart((*constants, *carry), out, {"loop": primal_loop(loop)})
    kept = loop.of_buffers(carry)
    if primitive is forward_p:
        return PrimalPart((*constants, *carry), (*out, True, *kept), {"loop": primal_loop(loop)})
    step = params["step"]

    def half(n: int) -> list[bool]:
        return [True] * (n // 2) + [False] * (n // 2)

    return PrimalPart(
        (*constants, *carry, True, *kept, *half(step.cotangents), *half(step.y_cotangents)),
        (*half(step.sums), *half(step.cotangents)),
        {"loop": primal_loop(loop), "step": primal_step(step), "is_joint": False},
    )


def enter_partial_eval(primitive: Any) -> None:
    """Register both partial-evaluation rules of a primitive that has joint equations."""

    def split_equation(trace: Any, *tracers: Any, **params: Any) -> Any:
        known = [internals.is_known(t) for t in tracers]
        parts = primal_part(primitive, params)
        if parts is None or all(known) or not all(pick(known, parts.inputs)):
            return internals.bind_partly(trace, primitive, tracers, params)
        loop, primal_args = params["loop"], pick(tracers, parts.inputs)
        with internals.under(trace):
            if primitive is reverse_p:
                out = reverse_p.bind(*primal_args, **parts.params)
                n_ct, n = params["step"].cotangents + params["step"].y_cotangents, loop.constants + loop.carries
                (meta,), cotangents = tracers[n : n + 1], tracers[len(tracers) - n_ct :]
                linear = reverse_tangent_p.bind(*tracers[:n], meta[..., 0], *cotangents, loop=loop, step=params["step"])
                return merge(complement(parts.outputs), linear, merge(parts.outputs, out, parts.outputs))
            primal = swept_loop(loop)
            out = forward_p.bind(*primal_args, loop=primal)
            n = primal.carries + primal.ys
            c, dc, k, dk = loop.split_inputs(tracers)
            if primitive is loop_p:
                cache, reversible = out[n:], storing_enough(loop)
                if reversible is not loop:
                    cache = forward_again(swept_loop(reversible), cache[0][..., 0], c, k)[n:]
                if loop.storage.has_host:
                    cache = cache[:1] if is_in_branch() or internals.manual_axes() else on_host(cache)
                out, hints = out[:n], []
            else:
                # The sweep that this cache is for is known too, and comes first. Kept for this one as well, the cache
                # would stand beside that of the joint sweep, which whoever reads the cache is split into and
                # which makes its own; so only the number of steps is handed on, and zeros stand for its tangent.
                cache, reversible = out[n : n + 1], loop
                hints = [unread(a) for a in loop.buffer_avals[primal.buffer_count :]]
            linear = tangent_p.bind(*c, *k, *cache, *dc, *dk, loop=reversible)
            linear = [*linear, *[internals.as_tracer(trace, x) for x in hints]]
            return merge(complement(parts.outputs), linear, merge(parts.outputs, out, parts.outputs))

    internals.set_partial_eval(primitive, split_equation)
    internals.set_checkpoint(primitive, lambda eqn: primal_part(primitive, eqn.params))


for _primitive in (loop_p, forward_p, reverse_p):
    enter_partial_eval(_primitive)
