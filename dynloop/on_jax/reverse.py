"""`reverse`: the reverse sweep, which drives a transposed step from the last state to the first.

The sweep is one while loop. Each round of it first reverses a *run*: consecutive states that lie in
the buffers, in a tight loop of load and transposed step. Then it descends from the newest
checkpoint towards the next run: it advances to the next split storing nothing, then stores the
split, or, where all the states up to the end fit, every one of them. Splits follow Griewank &
Walther 2000: the number of sweeps left lies on the stack beside each checkpoint, so nothing is
searched for.

Without leaf rows a run lies in consecutive places of the stack. With leaf rows the unit is the
block: a run is one block, its first state in a slot and the others in the leaf rows.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from dynloop.errors import DerivativeError
from dynloop.on_jax import internals, lanes
from dynloop.on_jax.descent import Descent
from dynloop.on_jax.flat import cut, pick
from dynloop.on_jax.forward import get
from dynloop.on_jax.joint import joint_arguments, perturbed
from dynloop.on_jax.primitives import define, reverse_p, tangent_p
from dynloop.on_jax.step import Loop, Step, dual_loop, joint_step
from dynloop.on_jax.traced import zeros


def meaning(*args: Any, loop: Loop, step: Step, is_joint: bool) -> list[Any]:
    constants, _, (meta,), buffers, cotangents = cut(
        args, loop.constants, loop.carries, 1, loop.carries, step.cotangents
    )
    sums = zeros(step.run.outputs[: step.sums])
    ended = lanes.Ended(meta[..., 0]) if loop.lanes else None
    if ended:
        # The stores are the same for all lanes.
        meta = jnp.max(meta, axis=tuple(range(len(loop.lanes))))
        constants = lanes.Batch(loop, constants, ended.steps > 0).constants

    def advance(i: Array, state: list[Array]) -> list[Array]:
        out = loop.body(*constants, *state)
        return out if ended is None else ended.advanced(i, out, state)

    def turn(i: Array, state: list[Array], cotangents: list[Array]) -> tuple[list[Array], list[Array]]:
        """The increments of the sums, and the cotangents before step i."""
        seen = cotangents if ended is None else ended.seen(i, cotangents)
        increments, out = cut(step.run(*constants, *state, *seen), step.sums, step.cotangents)
        return increments, out if ended is None else ended.passed(i, out, cotangents)

    steps = meta[0]

    def reverse_run(
        first: Array, end: Array, row_of: Callable[[Array], Array], buffers: list[Array], flowing: Any
    ) -> Any:
        """Steps end - 1 .. first, their states in the rows that `row_of` tells; returns `first` with the result."""

        def one(w: Any) -> Any:
            end, (cotangents, sums) = w
            increments, cotangents = turn(end - 1, get(buffers, row_of(end - 1)), cotangents)
            return end - 1, (cotangents, [a + b for a, b in zip(sums, increments, strict=True)])

        return lax.while_loop(lambda w: w[0] > first, one, (end, flowing))

    if not loop.layout.slots:
        first = jnp.zeros_like(steps)
        _, (cotangents, sums) = reverse_run(first, steps, lambda i: i, buffers, (cotangents, sums))
        return [*sums, *cotangents]

    descent = Descent(loop.layout, advance, steps, meta[1:])

    def one_round(w: Any) -> Any:
        sweep, buffers, flowing = w
        end, flowing = reverse_run(sweep.first, sweep.end, partial(descent.row_of, sweep), buffers, flowing)
        # `end` is sweep.first again, but only after the run was read: without this order between the two, XLA
        # copies the buffers, so that the descent may write while the run is still to be read.
        sweep, buffers = descent.descend(sweep._replace(end=end), buffers)
        return sweep, buffers, flowing

    start = (descent.start, buffers, (cotangents, sums))
    _, _, (cotangents, sums) = lax.while_loop(lambda w: w[0].end > 0, one_round, start)
    return [*sums, *cotangents]


def jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, loop: Loop, step: Step, is_joint: bool
) -> tuple[list[Any], list[Any]]:
    """In cotangents alone the sweep is linear; in the state it is the sweep of the joint loop."""
    n_state, n_ct, n_sum = loop.constants + loop.carries, step.cotangents, step.sums
    state, cache, ct = cut(primals, n_state, 1 + loop.carries, n_ct)
    state_dot, cache_dot, ct_dot = cut(tangents, n_state, 1 + loop.carries, n_ct)
    seeds = [internals.instantiate(t) for t in ct_dot]
    if not any(perturbed(state_dot)):
        params = {"loop": loop, "step": step, "is_joint": is_joint}
        return reverse_p.bind(*primals, **params), reverse_p.bind(*state, *cache, *seeds, **params)
    joint, mask, args = joint_arguments(loop, state, state_dot)
    assert joint.origin is not None
    big_step = joint_step(step, loop, joint.origin.constants, mask)
    buffers_dot = [internals.instantiate(t) for t in pick(cache_dot[1:], mask)]
    out = reverse_p.bind(*args, *cache, *buffers_dot, *ct, *seeds, loop=joint, step=big_step, is_joint=True)
    sums, sums_dot, ct, ct_dot = cut(out, n_sum, n_sum, n_ct, n_ct)
    return [*sums, *ct], [*sums_dot, *ct_dot]


def transpose(cotangents: Sequence[Any], *args: Any, loop: Loop, step: Step, is_joint: bool) -> list[Any]:
    """The transpose of the sweep in its cotangents runs forward: the tangent of the dual loop."""
    n_state = loop.constants + loop.carries
    state, cache, ct = cut(args, n_state, 1 + loop.carries, step.cotangents)
    if any(internals.is_linear_input(x) for x in state):
        raise DerivativeError(
            "while_loop: a gradient is linear in its cotangents only, and this transpose is with respect to the carry "
            "or what the loop closes over. Take that derivative by jax.jvp or jax.grad."
        )
    seeds = [internals.instantiate(t) for t in cotangents]
    out = tangent_p.bind(*state, *cache, *seeds, loop=dual_loop(step, loop))
    return [*[None] * (len(args) - len(ct)), *out]


def outputs(loop: Loop, step: Step, is_joint: bool) -> list[Any]:
    return [*step.run.outputs[: step.sums], *step.cotangent_avals]


define(reverse_p, meaning, outputs)
internals.set_jvp(reverse_p, jvp)
internals.set_transpose(reverse_p, transpose)
