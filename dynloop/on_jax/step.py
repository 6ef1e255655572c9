"""Loops and steps as values, and what differentiation derives from them.

A `Loop` is a cond and a body on (constants, carry). A *joint* loop carries a state and its
tangent, (x, dx), in one pass, and remembers in `split` how many of its constants and carries are
primal, so that it can be taken apart again.

A `Step` is the transposed step that the reverse sweep drives: (constants, carry, cotangents) ->
(increments of the sums, cotangents before the step). It is an ordinary traced function, so it is
differentiated like any other: no rule of the sweep needs to know what it computes.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp

from dynloop import checkpoints
from dynloop.errors import DerivativeError
from dynloop.on_jax import internals
from dynloop.on_jax.branches import Branches
from dynloop.on_jax.flat import Mask, cut, pick
from dynloop.on_jax.internals import cotangent_aval
from dynloop.on_jax.probe import perturbed_outputs
from dynloop.on_jax.traced import Traced, pushforward, remembered, tangent_avals, with_active, zeros


@dataclass(frozen=True, eq=False)
class Loop:
    """cond, body: functions of (*constants, *carry). Compared by identity, as JAX's caches need.

    split: for a joint loop, how many of its constants and carries are primal; None for a primal loop.
    origin: the loop that a joint loop differentiates; None for a dual loop, which is joint by itself.
    """

    cond: Traced
    body: Traced
    constants: int
    storage: checkpoints.Storage
    split: tuple[int, int] | None = None
    origin: "Origin | None" = None
    # Of a joint loop without an origin, a batched one: the masks that its origin would have.
    masks: tuple[Mask, Mask] | None = None
    # Sizes of the batch axes whose lanes stop by themselves, the leading axes of every carry, and which constants
    # have them too (empty: none).
    lanes: tuple[int, ...] = ()
    lane_constants: Mask = ()
    # How many lanes of a batch each leaf of the carry holds (empty: one).
    copies: tuple[int, ...] = ()
    memory: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def carries(self) -> int:
        return len(self.body.outputs)

    @property
    def constant_avals(self) -> list[Any]:
        return self.body.inputs[: self.constants]

    @property
    def carry_avals(self) -> list[Any]:
        return self.body.inputs[self.constants :]

    @property
    def layout(self) -> checkpoints.Layout:
        return self.storage.layout(self.carry_bytes)

    @property
    def carry_bytes(self) -> int:
        """Of one lane."""
        copies = self.copies or (1,) * self.carries
        return sum(a.size * a.dtype.itemsize // n for a, n in zip(self.carry_avals, copies, strict=True))

    def __repr__(self) -> str:
        return f"Loop(constants={self.constants}, carries={self.carries}{', joint' if self.split else ''})"


@dataclass(frozen=True)
class Origin:
    """The loop that a joint loop differentiates, and which of its constants and carries are perturbed."""

    loop: Loop
    constants: Mask
    carry: Mask


@dataclass(frozen=True, eq=False)
class Step:
    """run: (*constants, *carry, *cotangents) -> (*increments, *cotangents)."""

    run: Traced
    cotangents: int
    # Which sums have the axes of lanes that stop by themselves (empty: none): those of constants that have them.
    lane_sums: Mask = ()

    @property
    def sums(self) -> int:
        return len(self.run.outputs) - self.cotangents

    @property
    def cotangent_avals(self) -> list[Any]:
        return self.run.inputs[len(self.run.inputs) - self.cotangents :]

    @property
    def memory(self) -> dict[Any, Any]:
        return self.run.memory

    def __repr__(self) -> str:
        return f"Step(cotangents={self.cotangents}, sums={self.sums})"


# ---- the joint loop


@remembered
def perturbed_carry(loop: Loop, constants: Mask, carry: Mask) -> Mask:
    """The least fixed point: carries that get a tangent from the masked constants and carries."""
    while True:
        touched = perturbed_outputs(loop.body, constants + carry)
        grown = tuple(a or b for a, b in zip(carry, touched, strict=True))
        if grown == carry:
            return carry
        carry = grown


@remembered
def joint_loop(loop: Loop, constants: Mask, carry: Mask) -> Loop:
    """The loop on (c, dc[constants]) and (k, dk[carry]); `carry` is a fixed point of `perturbed_carry`."""
    nc, nk, ndc, ndk = loop.constants, loop.carries, sum(constants), sum(carry)
    push = pushforward(loop.body, constants + carry, carry)

    def body(*flat: Any) -> list[Any]:
        c, dc, k, dk = cut(flat, nc, ndc, nk, ndk)
        outputs, tangents = push(*c, *k, *dc, *dk)
        return [*outputs, *tangents]

    def cond(*flat: Any) -> list[Any]:
        c, _, k, _ = cut(flat, nc, ndc, nk, ndk)
        return loop.cond(*c, *k)

    avals = [
        *loop.constant_avals,
        *tangent_avals(pick(loop.constant_avals, constants)),
        *loop.carry_avals,
        *tangent_avals(pick(loop.carry_avals, carry)),
    ]
    return Loop(
        Traced(cond, avals),
        Traced(body, avals),
        nc + ndc,
        loop.storage,
        split=(nc, nk),
        origin=Origin(loop, constants, carry),
        lanes=loop.lanes,
        lane_constants=extended(loop.lane_constants, constants),
        copies=extended(loop.copies, carry),
    )


@remembered
def counted_loop(loop: Loop) -> Loop:
    """The loop run for a given number of steps: the last constant, beside a counter as the last carry."""
    nc, nk = loop.constants, loop.carries
    count = jax.typeof(jnp.zeros(loop.lanes, jnp.int32))

    def cond(*flat: Any) -> list[Any]:
        return [flat[-1] < flat[nc]]

    def body(*flat: Any) -> list[Any]:
        c, _, k, (i,) = cut(flat, nc, 1, nk, 1)
        return [*loop.body(*c, *k), i + 1]

    avals = [*loop.constant_avals, count, *loop.carry_avals, count]
    return Loop(
        Traced(cond, avals),
        Traced(body, avals),
        nc + 1,
        loop.storage,
        lanes=loop.lanes,
        lane_constants=(*loop.lane_constants, True) if loop.lanes else (),
    )


def extended(values: tuple[Any, ...], mask: Mask) -> tuple[Any, ...]:
    """What holds for primal values holds for their tangents."""
    return (*values, *pick(values, mask)) if values else ()


def split_joint(loop: Loop, flat: Any) -> list[list[Any]]:
    """Arguments of a joint loop (or anything laid out like them) as c, dc, k, dk."""
    assert loop.split is not None
    nc, nk = loop.split
    return cut(flat, nc, loop.constants - nc, nk, loop.carries - nk)


@remembered
def primal_loop(loop: Loop) -> Loop:
    """The primal half of a joint loop."""
    if loop.origin:
        return resolved_loop(loop.origin.loop, loop.origin.constants, loop.origin.carry)
    c, dc, k, dk = split_joint(loop, loop.body.inputs)
    nk = len(k)

    def whole(flat: Any) -> list[Any]:
        primal_c, primal_k = cut(flat, len(c), nk)
        return [*primal_c, *zeros(dc), *primal_k, *zeros(dk)]

    return Loop(
        Traced(lambda *flat: loop.cond(*whole(flat)), c + k),
        Traced(lambda *flat: loop.body(*whole(flat))[:nk], c + k),
        len(c),
        loop.storage,
        lanes=loop.lanes,
        lane_constants=loop.lane_constants[: len(c)],
        copies=loop.copies[:nk],
    )


@remembered
def resolved_loop(loop: Loop, constants: Mask, carry: Mask) -> Loop:
    """The loop as reverse mode sees it: a function with a custom rule is replaced by what its rule computes for it.

    That is the forward rule of a `jax.custom_vjp`, the primal output of the rule of a `jax.custom_jvp`.
    The states that a sweep recomputes, and the derivatives of a gradient, are those of these;
    differentiating the original again would apply the custom derivative a second time.
    """
    if not uses_custom_rule(loop.body.closed):
        return loop
    mask = constants + carry

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


# ---- transposed steps


@remembered
def vjp_step(loop: Loop, constants: Mask, carry: Mask) -> Step:
    """The step of the reverse sweep: the body's vector-Jacobian product for the masked inputs."""
    mask = constants + carry

    def run(*flat: Any) -> list[Any]:
        args, cotangents = flat[: len(mask)], flat[len(mask) :]
        body = with_active(loop.body, mask, args)
        _, pull = jax.vjp(lambda *active: pick(body(*active), carry), *pick(args, mask))
        return list(pull(list(cotangents)))

    avals = [cotangent_aval(a) for a in pick(loop.carry_avals, carry)]
    lane_sums = tuple(pick(loop.lane_constants, constants)) if loop.lanes else ()
    return Step(Traced(run, [*loop.body.inputs, *avals]), len(avals), lane_sums)


@remembered
def tangent_transpose(loop: Loop) -> Step:
    """The Step that transposes the tangent half of a joint loop, on its primal loop's arguments."""
    if loop.origin:
        return vjp_step(loop.origin.loop, loop.origin.constants, loop.origin.carry)
    c, dc, k, dk = split_joint(loop, loop.body.inputs)

    def run(*flat: Any) -> list[Any]:
        primal_c, primal_k, cotangents = cut(flat, len(c), len(k), len(dk))

        def linear(*tangents: Any) -> list[Any]:
            td, tk = cut(tangents, len(dc), len(dk))
            return loop.body(*primal_c, *td, *primal_k, *tk)[len(k) :]

        return list(jax.vjp(linear, *zeros(dc + dk))[1](cotangents))

    avals = [cotangent_aval(a) for a in dk]
    return Step(Traced(run, [*c, *k, *avals]), len(avals), loop.lane_constants[len(c) :])


@remembered
def joint_step(step: Step, loop: Loop, constants: Mask, carry: Mask) -> Step:
    """The Step on `joint_loop(loop, constants, carry)` that carries (ct, dct) and sums (s, ds)."""
    joint = joint_loop(loop, constants, carry)
    n_ct, n_sum = step.cotangents, step.sums
    push = pushforward(step.run, constants + carry + (True,) * n_ct, (True,) * (n_sum + n_ct))

    def run(*flat: Any) -> list[Any]:
        state, ct, dct = cut(flat, joint.constants + joint.carries, n_ct, n_ct)
        c, dc, k, dk = split_joint(joint, state)
        outputs, tangents = push(*c, *k, *ct, *dc, *dk, *dct)
        return [*outputs[:n_sum], *tangents[:n_sum], *outputs[n_sum:], *tangents[n_sum:]]

    avals = [*joint.body.inputs, *step.cotangent_avals, *tangent_avals(step.cotangent_avals)]
    return Step(Traced(run, avals), 2 * n_ct, step.lane_sums * 2)


@remembered
def primal_step(step: Step, loop: Loop) -> Step:
    """The primal half of a joint Step on a joint loop."""
    primal = primal_loop(loop)
    _, dc, _, dk = split_joint(loop, loop.body.inputs)
    n_ct, n_sum = step.cotangents // 2, step.sums // 2
    ct, dct = cut(step.cotangent_avals, n_ct, n_ct)

    def run(*flat: Any) -> list[Any]:
        c, k, t = cut(flat, primal.constants, primal.carries, n_ct)
        out = step.run(*c, *zeros(dc), *k, *zeros(dk), *t, *zeros(dct))
        return [*out[:n_sum], *out[2 * n_sum : 2 * n_sum + n_ct]]

    return Step(Traced(run, [*primal.body.inputs, *ct]), n_ct, step.lane_sums[:n_sum])


@remembered
def dual_loop(step: Step, loop: Loop) -> Loop:
    """The joint loop on (c, v_c), (k, v) whose v advances by the transpose of `step` in its cotangents."""
    n_ct, n_sum, nc, nk = step.cotangents, step.sums, loop.constants, loop.carries
    v_sum, v = cut([cotangent_aval(a) for a in step.run.outputs], n_sum, n_ct)

    def body(*flat: Any) -> list[Any]:
        c, vc, k, vk = cut(flat, nc, n_sum, nk, n_ct)
        try:
            transpose = jax.linear_transpose(lambda *ct: step.run(*c, *k, *ct), *step.cotangent_avals)
            advanced = transpose([*vc, *vk])
        # JAX says in any of these ways that something is not linear.
        except (NotImplementedError, AssertionError, RuntimeError, TypeError, ValueError) as error:
            raise DerivativeError(
                "while_loop: reverse mode over reverse mode needs a step's vector-Jacobian product to be linear in "
                f"its cotangent, and this one cannot be transposed ({error}). The usual reason is a jax.custom_vjp "
                "in body whose backward rule clips or normalises. Take the outer derivative by jax.jvp."
            ) from error
        return [*loop.body(*c, *k), *advanced]

    def cond(*flat: Any) -> list[Any]:
        c, _, k, _ = cut(flat, nc, n_sum, nk, n_ct)
        return loop.cond(*c, *k)

    avals = [*loop.constant_avals, *v_sum, *loop.carry_avals, *v]
    return Loop(
        Traced(cond, avals),
        Traced(body, avals),
        nc + n_sum,
        loop.storage,
        split=(nc, nk),
        lanes=loop.lanes,
        lane_constants=(*loop.lane_constants, *step.lane_sums),
        copies=(*loop.copies, *[1] * n_ct) if loop.copies else (),
    )


def joint_masks(loop: Loop) -> tuple[Mask, Mask]:
    """Which constants and carries of its primal loop a joint loop has tangents for."""
    if loop.origin:
        return loop.origin.constants, loop.origin.carry
    assert loop.masks is not None, "a joint loop that differentiates a primal one keeps its masks"
    return loop.masks
