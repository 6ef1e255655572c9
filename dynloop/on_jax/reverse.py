"""`reverse`: the reverse sweep, which drives a transposed step from the last state to the first.

The sweep is one while loop. Each turn of it first reverses a *run*: consecutive states that lie in
the buffers, in a tight loop of load and transposed step. Then it descends from the newest
checkpoint towards the next run: it advances to the next split storing nothing, then stores the
split, or, where all the states up to the end fit, every one of them. Splits follow Griewank &
Walther 2000: the number of sweeps left lies on the stack beside each checkpoint, so nothing is
searched for.

Without leaf rows a run lies in consecutive places of the stack. With leaf rows the unit is the
block: a run is one block, its first state in a slot and the others in the leaf rows.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dynloop.on_jax import internals
from dynloop.on_jax.flat import cut, pick
from dynloop.on_jax.descent import Descent, Run, Sweep
from dynloop.on_jax.forward import get
from dynloop.on_jax.joint import joint_arguments, perturbed
from dynloop.on_jax.placement import I32, Stack, entry
from dynloop.on_jax.primitives import define, reverse_p, tangent_p
from dynloop.on_jax.step import Loop, Step, dual_loop, joint_step
from dynloop.on_jax.traced import zeros


def meaning(*args: Any, loop: Loop, step: Step, is_joint: bool) -> list[Any]:
    constants, _, (meta,), buffers, cotangents = cut(
        args, loop.constants, loop.carries, 1, loop.carries, step.cotangents
    )
    sums = zeros(step.run.outputs[: step.sums])
    layout, steps = loop.layout, meta[0]
    first_leaf_row = layout.rows - layout.leaf

    def row_of(run: Run, stack: Stack, i: Array) -> Array:
        """The row of state i of the run."""
        if not layout.slots:
            return i
        if not layout.leaf:
            return entry(stack.rows, i - run.anchor)
        in_leaf = first_leaf_row + lax.rem(i, np.int32(layout.leaf))
        return jnp.where(i == run.anchor, entry(stack.rows, stack.top + 1), in_leaf)

    def reverse_run(sweep: Sweep) -> Sweep:
        def one(w: Any) -> Any:
            end, cotangents, sums = w
            state = get(sweep.buffers, row_of(sweep.run, sweep.stack, end - 1))
            increments, cotangents = cut(step.run(*constants, *state, *cotangents), step.sums, step.cotangents)
            return end - 1, cotangents, [a + b for a, b in zip(sums, increments, strict=True)]

        start = (sweep.run.end, sweep.cotangents, sweep.sums)
        end, cotangents, sums = lax.while_loop(lambda w: w[0] > sweep.run.first, one, start)
        return sweep._replace(run=sweep.run._replace(end=end), cotangents=cotangents, sums=sums)

    if not layout.slots:
        nothing = jnp.zeros(0, I32)
        zero = jnp.asarray(0, I32)
        stack = Stack(nothing, nothing, nothing, zero, zero, zero)
        sweep = reverse_run(Sweep(Run(zero, steps, zero), stack, buffers, cotangents, sums))
        return [*sweep.sums, *sweep.cotangents]

    descent = Descent(loop, constants)
    run, stack = descent.begin(steps, meta[1:])

    def turn(sweep: Sweep) -> Sweep:
        return descent.next_run(reverse_run(sweep))

    sweep = lax.while_loop(lambda w: w.run.end > 0, turn, Sweep(run, stack, buffers, cotangents, sums))
    return [*sweep.sums, *sweep.cotangents]


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
        raise TypeError("dynloop: the reverse sweep is linear in its cotangents only; this transpose asks for another")
    seeds = [internals.instantiate(t) for t in cotangents]
    out = tangent_p.bind(*state, *cache, *seeds, loop=dual_loop(step, loop))
    return [*[None] * (len(args) - len(ct)), *out]


define(reverse_p, meaning)
internals.set_jvp(reverse_p, jvp)
internals.set_transpose(reverse_p, transpose)
