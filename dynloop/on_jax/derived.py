"""What differentiation derives from loops and steps: other loops and steps, which are differentiated in turn."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from dynloop.errors import DerivativeError
from dynloop.on_jax import internals
from dynloop.on_jax.branches import Branches
from dynloop.on_jax.flat import Mask, complement, cut, pick
from dynloop.on_jax.internals import cotangent_aval
from dynloop.on_jax.probe import perturbed_outputs
from dynloop.on_jax.structure import Loop, Masks, Observed, Step
from dynloop.on_jax.traced import Traced, pushforward, remembered, tangent_avals, with_active, zeros
from dynloop.on_jax.varying import check_collectives


def extended(values: Any, mask: Mask) -> Any:
    """What holds for primal values holds for their tangents. None and () say the same of all values."""
    return (*values, *pick(values, mask)) if values else values


# ---- the joint loop


@remembered
def joint_masks(loop: Loop, constants: Mask, carry: Mask) -> Masks:
    """What gets a tangent from the masked constants and carries: the least fixed point."""
    while True:
        touched = perturbed_outputs(loop.body, constants + carry)
        grown = tuple(a or b for a, b in zip(carry, touched[: loop.carries], strict=True))
        if grown == carry:
            return Masks(constants, carry, touched[loop.carries :])
        carry = grown


@remembered
def joint_loop(loop: Loop, masks: Masks) -> Loop:
    """The loop on (c, dc[constants]) and (k, dk[carry]); `masks` come from `joint_masks`."""
    nc, nk, ndc, ndk = loop.constants, loop.carries, sum(masks.constants), sum(masks.carry)
    push = pushforward(loop.body, masks.inputs, masks.outputs)

    def body(*flat: Any) -> list[Any]:
        c, dc, k, dk = cut(flat, nc, ndc, nk, ndk)
        outputs, tangents = push(*c, *k, *dc, *dk)
        k, y = cut(outputs, nk, loop.ys)
        dk, dy = cut(tangents, ndk, sum(masks.ys))
        return [*k, *dk, *y, *dy]

    c_avals, k_avals = cut(loop.body.inputs, nc, nk)
    dc_avals, dk_avals = tangent_avals(pick(c_avals, masks.constants)), tangent_avals(pick(k_avals, masks.carry))
    tangents = (dc_avals, pick(loop.is_stacked, masks.constants), dk_avals)
    watch = loop.observed and loop.observed.watch and _on_primal(loop.observed.watch, loop, *tangents)
    return Loop(
        _on_primal(loop.cond, loop, *tangents),
        Traced(body, [*c_avals, *dc_avals, *k_avals, *dk_avals]),
        nc + ndc,
        loop.storage,
        ys=loop.ys + sum(masks.ys),
        stacked=extended(loop.stacked, masks.constants),
        length=loop.length,
        is_backward=loop.is_backward,
        count=loop.count,
        split=(nc, nk, loop.ys),
        origin=loop,
        masks=masks,
        kept=extended(loop.kept, masks.carry),
        lanes=loop.lanes,
        lane_axes=extended(loop.lane_axes, masks.constants),
        copies=extended(loop.copies, masks.carry),
        observed=loop.observed and Observed(watch, loop.observed.report),
    )


def _on_primal(function: Traced, loop: Loop, constants: list[Any], is_stacked: list[bool], carry: list[Any]) -> Traced:
    """cond or watch of `loop` for a loop that has these constants and carries beside its own."""
    n, n_last = len(loop.cond.inputs) - loop.carries, len(function.inputs) - len(loop.cond.inputs)
    more = pick(constants, complement(is_stacked))

    def run(*flat: Any) -> list[Any]:
        c, _, k, _, last = cut(flat, n, len(more), loop.carries, len(carry), n_last)
        return function(*c, *k, *last)

    c_avals, k_avals, last = cut(function.inputs, n, loop.carries, n_last)
    return Traced(run, [*c_avals, *more, *k_avals, *carry, *last])


@remembered
def counted_loop(loop: Loop) -> Loop:
    """A joint loop run for a given number of steps, the last constant, beside a counter as the last carry.

    Its ys are those of the tangent.
    """
    nc, nk = loop.constants, loop.carries
    count = jax.typeof(loop.number(jnp.zeros(loop.lanes)))
    c_avals, k_avals = cut(loop.body.inputs, nc, nk)

    def body(*flat: Any) -> list[Any]:
        c, _, k, (i,) = cut(flat, nc, 1, nk, 1)
        k, dk, _, dy = loop.split_outputs(loop.body(*c, *k))
        return [*k, *dk, i + 1, *dy]

    plain = pick(c_avals, complement(loop.is_stacked))
    return Loop(
        Traced(lambda *flat: [flat[-1] < flat[len(plain)]], [*plain, count, *k_avals, count]),
        Traced(body, [*c_avals, count, *k_avals, count]),
        nc + 1,
        loop.storage,
        ys=len(loop.split_outputs(loop.body.outputs)[3]),
        stacked=(*loop.stacked, False) if loop.stacked else (),
        length=loop.length,
        is_backward=loop.is_backward,
        count=nc,
        lanes=loop.lanes,
        lane_axes=(*loop.lane_axes, len(loop.lanes)) if loop.lanes else (),
    )


@remembered
def primal_loop(loop: Loop) -> Loop:
    """The primal half of a joint loop."""
    if loop.origin:
        assert loop.masks is not None
        return resolved_loop(loop.origin, loop.masks)
    assert loop.split is not None
    nc, nk, ny = loop.split
    c, dc, k, dk = loop.split_inputs(loop.body.inputs)
    is_plain = complement(loop.is_stacked)
    plain, plain_dot = pick(c, is_plain[:nc]), pick(dc, is_plain[nc:])

    def cond(*flat: Any) -> list[Any]:
        primal_c, primal_k = cut(flat, len(plain), nk)
        return loop.cond(*primal_c, *zeros(plain_dot), *primal_k, *zeros(dk))

    def body(*flat: Any) -> list[Any]:
        primal_c, primal_k = cut(flat, nc, nk)
        primal, _, y, _ = loop.split_outputs(loop.body(*primal_c, *zeros(dc), *primal_k, *zeros(dk)))
        return [*primal, *y]

    observed = loop.observed
    if observed and (joint_watch := observed.watch):

        def watch(*flat: Any) -> list[Any]:
            primal_c, primal_k, last = cut(flat, len(plain), nk, 2)
            return joint_watch(*primal_c, *zeros(plain_dot), *primal_k, *zeros(dk), *last)

        observed = Observed(Traced(watch, plain + k + joint_watch.inputs[-2:]), observed.report)
    return Loop(
        Traced(cond, plain + k),
        Traced(body, c + k),
        nc,
        loop.storage,
        ys=ny,
        stacked=loop.stacked[:nc],
        length=loop.length,
        is_backward=loop.is_backward,
        count=loop.count,
        kept=None if loop.kept is None else loop.kept[:nk],
        lanes=loop.lanes,
        lane_axes=loop.lane_axes[:nc],
        copies=loop.copies[:nk],
        observed=observed,
    )


@remembered
def resolved_loop(loop: Loop, masks: Masks) -> Loop:
    """The loop as reverse mode sees it: a function with a custom rule is replaced by what its rule computes for it.

    That is the forward rule of a `jax.custom_vjp`, the primal output of the rule of a `jax.custom_jvp`.
    The states that a sweep recomputes, and the derivatives of a gradient, are those of these;
    differentiating the original again would apply the custom derivative a second time.
    """
    if not uses_custom_rule(loop.body.closed):
        return loop
    mask = masks.inputs

    def body(*args: Any) -> list[Any]:
        return jax.vjp(with_active(loop.body, mask, args), *pick(args, mask))[0]

    return replace(loop, body=Traced(body, loop.body.inputs), memory={})


def uses_custom_rule(value: Any) -> bool:
    """Does a jaxpr, or anything that holds one, call a function with a custom derivative?"""
    if isinstance(value, Loop):
        return uses_custom_rule(value.body.closed)
    if isinstance(value, Step):
        return uses_custom_rule(value.run.closed)
    if isinstance(value, Branches):
        return uses_custom_rule([value.true.closed, value.false.closed])
    if isinstance(value, list | tuple):
        return any(map(uses_custom_rule, value))
    return any(
        internals.calls_custom_rule(eqn) or any(map(uses_custom_rule, eqn.params.values()))
        for eqn in internals.equations(value)
    )


@remembered
def unobserved(loop: Loop) -> Loop:
    """The loop run again, of which nobody is told."""
    return replace(loop, observed=None, memory={}) if loop.observed else loop


# ---- what a sweep needs to know


@remembered
def swept_loop(loop: Loop) -> Loop:
    """The primal half of a joint loop as it is run to be reversed: it stores what the reverse sweep needs."""
    primal = primal_loop(loop)
    return primal if primal.kept is not None else storing_for(primal, tangent_transpose(loop))


@remembered
def settled(loop: Loop) -> Loop:
    """A joint loop that knows what its primal half stores, so that a batch of it, derived anew, stores the same."""
    if loop.kept is not None:
        return loop
    stored = swept_loop(loop).is_kept
    return replace(loop, kept=(*stored, *[True] * (loop.carries - len(stored))), memory={})


@remembered
def storing_enough(loop: Loop) -> Loop:
    """A joint loop whose primal half stores all that its own transpose reads: itself, if it does.

    A gradient's forward pass stores what that gradient reads. Differentiated again, by something else, it may
    have to be reversed through a leaf that it left out; its own cache is then not enough.
    """
    swept = swept_loop(loop)
    needed = storing_for(swept, tangent_transpose(loop)).is_kept
    if all(kept or not need for kept, need in zip(swept.is_kept, needed, strict=True)):
        return loop
    origin = replace(loop.origin, kept=None, memory={}) if loop.origin else None
    return replace(loop, kept=None, origin=origin, memory={})


@remembered
def storing_for(loop: Loop, step: Step) -> Loop:
    """The loop, storing those carries only that the transposed step reads, or that other such carries come from.

    A sum, or a buffer that is written and not read, has a gradient that does not depend on its value.
    """
    needed = internals.read_inputs(step.run.closed)
    while True:
        carry = tuple(loop.constants + i in needed for i in range(loop.carries))
        grown = needed | internals.read_inputs(loop.body.closed, (*carry, *[False] * loop.ys))
        if grown == needed:
            return replace(loop, kept=carry, memory={})
        needed = grown


# ---- transposed steps


@remembered
def vjp_step(loop: Loop, masks: Masks) -> Step:
    """The step of the reverse sweep: the body's vector-Jacobian product for the masked inputs and outputs."""
    n, mask = loop.constants + loop.carries, masks.inputs

    def run(*flat: Any) -> list[Any]:
        args, cotangents = flat[:n], flat[n:]
        body = with_active(loop.body, mask, args)
        _, pull = jax.vjp(lambda *active: pick(body(*active), masks.outputs), *pick(args, mask))
        return list(pull(list(cotangents)))

    avals = [cotangent_aval(a) for a in pick(loop.body.outputs, masks.outputs)]
    traced = Traced(run, [*loop.body.inputs, *avals])
    if loop.names:
        check_collectives(loop.body.closed, traced.closed)
    return Step(
        traced,
        sum(masks.carry),
        sum(masks.ys),
        tuple(pick(loop.is_stacked, masks.constants)),
        tuple(pick(loop.axes_of_constants, masks.constants)),
    )


@remembered
def tangent_transpose(loop: Loop) -> Step:
    """The Step that transposes the tangent half of a joint loop, on its primal loop's arguments."""
    if loop.origin:
        assert loop.masks is not None
        return vjp_step(loop.origin, loop.masks)
    c, dc, k, dk = loop.split_inputs(loop.body.inputs)
    _, _, _, dy = loop.split_outputs(loop.body.outputs)

    def run(*flat: Any) -> list[Any]:
        primal_c, primal_k, cotangents = cut(flat, len(c), len(k), len(dk) + len(dy))

        def linear(*tangents: Any) -> list[Any]:
            td, tk = cut(tangents, len(dc), len(dk))
            _, k_dot, _, y_dot = loop.split_outputs(loop.body(*primal_c, *td, *primal_k, *tk))
            return [*k_dot, *y_dot]

        return list(jax.vjp(linear, *zeros(dc + dk))[1](cotangents))

    avals = [cotangent_aval(a) for a in dk + dy]
    return Step(
        Traced(run, [*c, *k, *avals]),
        len(dk),
        len(dy),
        loop.is_stacked[len(c) :],
        loop.axes_of_constants[len(c) :],
    )


@remembered
def joint_step(step: Step, loop: Loop, masks: Masks) -> Step:
    """The Step on `joint_loop(loop, masks)` whose cotangents are (ct, dct), of carries and of ys; it sums (s, ds)."""
    joint = joint_loop(loop, masks)
    n_ct, n_y, n_sum = step.cotangents, step.y_cotangents, step.sums
    push = pushforward(step.run, masks.inputs + (True,) * (n_ct + n_y), (True,) * (n_sum + n_ct))

    def run(*flat: Any) -> list[Any]:
        state, ct, ct_dot, y, y_dot = cut(flat, joint.constants + joint.carries, n_ct, n_ct, n_y, n_y)
        c, dc, k, dk = joint.split_inputs(state)
        outputs, tangents = push(*c, *k, *ct, *y, *dc, *dk, *ct_dot, *y_dot)
        return [*outputs[:n_sum], *tangents[:n_sum], *outputs[n_sum:], *tangents[n_sum:]]

    _, ct, y = step.cut(step.run.inputs)
    avals = [*joint.body.inputs, *ct, *tangent_avals(ct), *y, *tangent_avals(y)]
    origin = resolved_step(step, masks.inputs + (True,) * (n_ct + n_y))
    return Step(Traced(run, avals), 2 * n_ct, 2 * n_y, step.stacked * 2, step.lane_axes * 2, origin)


@remembered
def resolved_step(step: Step, mask: Mask) -> Step:
    """The step as `resolved_loop` is the loop: it runs a custom rule for what the masked inputs reach."""
    if not uses_custom_rule(step.run.closed):
        return step

    def run(*args: Any) -> list[Any]:
        return jax.vjp(with_active(step.run, mask, args), *pick(args, mask))[0]

    return replace(step, run=Traced(run, step.run.inputs))


def primal_step(step: Step) -> Step:
    """The primal half of a joint Step."""
    assert step.origin is not None
    return step.origin


@remembered
def dual_loop(step: Step, loop: Loop) -> Loop:
    """The joint loop on (c, v_c), (k, v) whose v, and rows of v, come by the transpose of `step` in its cotangents."""
    n_ct, n_sum, nc, nk = step.cotangents, step.sums, loop.constants, loop.carries
    v_sum, v = cut([cotangent_aval(a) for a in step.run.outputs], n_sum, n_ct)

    def body(*flat: Any) -> list[Any]:
        c, vc, k, vk = cut(flat, nc, n_sum, nk, n_ct)
        try:
            transpose = jax.linear_transpose(lambda *ct: step.run(*c, *k, *ct), *step.seed_avals)
            advanced = transpose([*vc, *vk])
        # JAX says in each of these ways that something is not linear, as its operation has it (a test has one of each).
        except (AssertionError, RuntimeError, TypeError, ValueError) as error:
            raise DerivativeError(
                "reverse mode over reverse mode of a loop needs a step's vector-Jacobian product to be linear in "
                f"its cotangent, and this one cannot be transposed ({error}). The usual reason is a jax.custom_vjp "
                "in body whose backward rule clips or normalises. Take the outer derivative by jax.jvp."
            ) from error
        return [*loop.body(*c, *k)[:nk], *advanced]

    c_avals, k_avals = cut(loop.body.inputs, nc, nk)
    return Loop(
        _on_primal(loop.cond, loop, v_sum, list(step.is_stacked), v),
        Traced(body, [*c_avals, *v_sum, *k_avals, *v]),
        nc + n_sum,
        loop.storage,
        ys=step.y_cotangents,
        stacked=(*loop.is_stacked, *step.is_stacked),
        length=loop.length,
        is_backward=loop.is_backward,
        count=loop.count,
        split=(nc, nk, 0),
        kept=None if loop.kept is None else (*loop.kept, *[True] * n_ct),
        lanes=loop.lanes,
        lane_axes=(*loop.axes_of_constants, *step.axes_of_sums),
        copies=(*loop.copies, *[1] * n_ct) if loop.copies else (),
    )
