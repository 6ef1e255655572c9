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
from dynloop.on_jax import internals, lanes, reporting
from dynloop.on_jax.derived import dual_loop, joint_step
from dynloop.on_jax.descent import Descent
from dynloop.on_jax.flat import complement, cut, merge, pick
from dynloop.on_jax.joint import joint_arguments, perturbed
from dynloop.on_jax.primitives import define, reverse_p, tangent_p
from dynloop.on_jax.rows import get, put
from dynloop.on_jax.structure import Loop, Step
from dynloop.on_jax.traced import zeros
from dynloop.on_jax.verifying import Check


def meaning(*args: Any, loop: Loop, step: Step, is_joint: bool) -> list[Any]:
    (constants, _, (meta,), buffers), (cotangents, y_cotangents) = arguments(loop, step, args)
    rooms = reporting.buffers_of(loop)
    buffers = rooms.recognised(buffers)
    sums = zeros(sum_avals(loop, step))
    is_stacked = step.is_stacked
    ended = lanes.Ended(loop, constants, meta[..., 0]) if loop.lanes else None
    if ended:
        # The stores are the same for all lanes.
        meta = jnp.max(meta, axis=tuple(range(len(loop.lanes))), initial=0)
    steps = meta[0]
    reporting.tell(loop, "reversed", steps)

    def at(i: Array) -> list[Array]:
        return loop.at(constants, i) if ended is None else ended.at(i)

    def advance(i: Array, state: list[Array]) -> list[Array]:
        out = pick(loop.body(*at(i), *loop.whole(state))[: loop.carries], loop.is_kept)
        return out if ended is None else ended.advanced(i, out, state)

    def turn(i: Array, state: list[Array], cotangents: list[Array]) -> tuple[list[Array], list[Array]]:
        """The increments of the sums, and the cotangents before step i."""
        given = [*cotangents, *get(y_cotangents, loop.row(i))]
        if ended:
            given = ended.seen(i, given)
        increments, out = cut(step.run(*at(i), *loop.whole(state), *given), step.sums, step.cotangents)
        if ended is None:
            return increments, out
        surplus = [len(loop.lanes) - n if s else 0 for s, n in zip(is_stacked, step.axes_of_sums, strict=True)]
        increments = [jnp.sum(x, axis=tuple(range(n))) if n else x for x, n in zip(increments, surplus, strict=True)]
        return increments, ended.passed(i, out, cotangents)

    def added(i: Array, sums: list[Array], increments: list[Array]) -> list[Array]:
        """What is stacked has a row for each step; everything else is summed over the steps."""
        rows = put(pick(sums, is_stacked), pick(increments, is_stacked), loop.row(i))
        is_plain = complement(is_stacked)
        plain = [a + b for a, b in zip(pick(sums, is_plain), pick(increments, is_plain), strict=True)]
        return merge(is_stacked, rows, merge(is_plain, plain, sums))

    def reverse_run(
        first: Array, end: Array, row_of: Callable[[Array], Array], buffers: list[Array], flowing: Any
    ) -> Any:
        """Steps end - 1 .. first, their states in the rows that `row_of` tells; returns `first` with the result."""

        def one(w: Any) -> Any:
            end, (cotangents, sums, check) = w
            state = rooms.get(buffers, row_of(end - 1))
            increments, cotangents = turn(end - 1, state, cotangents)
            check = check and check.after(state, advance(end - 1, state), end < steps)
            return end - 1, (cotangents, added(end - 1, sums, increments), check)

        return lax.while_loop(lambda w: w[0] > first, one, (end, flowing))

    report = loop.observed and loop.observed.report
    check = Check.begin(pick(loop.carry_avals, loop.is_kept), loop.number(0)) if report else None

    def results(flowing: Any) -> list[Any]:
        cotangents, sums, check = flowing
        return check.finish(report, [*sums, *cotangents]) if check else [*sums, *cotangents]

    if not loop.layout.slots:
        return results(reverse_run(loop.number(0), steps, lambda i: i, buffers, (cotangents, sums, check))[1])

    descent = Descent(rooms, advance, steps, meta[1:], is_known=loop.count is not None)

    def one_round(w: Any) -> Any:
        sweep, buffers, flowing = w
        end, flowing = reverse_run(sweep.first, sweep.end, partial(descent.row_of, sweep), buffers, flowing)
        # `end` is sweep.first again, but only after the run was read: without this order between the two, XLA
        # copies the buffers, so that the descent may write while the run is still to be read.
        sweep, buffers = descent.descend(sweep._replace(end=end), buffers)
        return sweep, buffers, flowing

    start = (descent.start, buffers, (cotangents, sums, check))
    return results(lax.while_loop(lambda w: w[0].end > 0, one_round, start)[2])


def arguments(loop: Loop, step: Step, flat: Sequence[Any]) -> tuple[list[list[Any]], list[list[Any]]]:
    """(constants, carry, [meta], buffers), (cotangents of the carry, of the ys)."""
    rest, ct, y = step.cut(flat)
    return cut(rest, loop.constants, loop.carries, 1, loop.buffer_count), [ct, y]


def sum_avals(loop: Loop, step: Step) -> list[Any]:
    """Abstract values of the sums. What is stacked may be summed over the first axes of lanes."""
    avals = []
    for a, stacked, axes in zip(step.run.outputs[: step.sums], step.is_stacked, step.axes_of_sums, strict=True):
        if stacked and loop.lanes:
            a = a.update(shape=a.shape[len(loop.lanes) - axes :])
        avals.append(loop.stack(a) if stacked else a)
    return avals


def jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, loop: Loop, step: Step, is_joint: bool
) -> tuple[list[Any], list[Any]]:
    """In cotangents alone the sweep is linear; in the state it is the sweep of the joint loop."""
    n_state = loop.constants + loop.carries
    cache, cache_dot = step.cut(primals)[0][n_state:], step.cut(tangents)[0][n_state:]
    state, (_, ct, y) = primals[:n_state], step.cut(primals)
    state_dot, (_, ct_dot, y_dot) = tangents[:n_state], step.cut(tangents)
    ct_dot, y_dot = ([internals.instantiate(t) for t in ts] for ts in (ct_dot, y_dot))
    if not any(perturbed(state_dot)):
        params = {"loop": loop, "step": step, "is_joint": is_joint}
        return reverse_p.bind(*primals, **params), reverse_p.bind(*state, *cache, *ct_dot, *y_dot, **params)
    joint, masks, args = joint_arguments(loop, state, state_dot)
    big_step = joint_step(step, loop, masks)
    buffers_dot = [internals.instantiate(t) for t in pick(cache_dot[1:], loop.of_buffers(masks.carry))]
    seeds = [*ct, *ct_dot, *y, *y_dot]
    out = reverse_p.bind(*args, *cache, *buffers_dot, *seeds, loop=joint, step=big_step, is_joint=True)
    sums, sums_dot, ct, ct_dot = cut(out, step.sums, step.sums, step.cotangents, step.cotangents)
    return [*sums, *ct], [*sums_dot, *ct_dot]


def transpose(cotangents: Sequence[Any], *args: Any, loop: Loop, step: Step, is_joint: bool) -> list[Any]:
    """The transpose of the sweep in its cotangents runs forward: the tangent of the dual loop."""
    (constants, carry, *cache), ct = arguments(loop, step, args)
    if any(internals.is_linear_input(x) for x in [*constants, *carry]):
        raise DerivativeError(
            "the gradient of a loop is linear in its cotangents only, and this transpose is with respect to the carry "
            "or what the loop closes over. Take that derivative by jax.jvp or jax.grad."
        )
    seeds = [internals.instantiate(t) for t in cotangents]
    v_sum, v = cut(seeds, step.sums, step.cotangents)
    out = tangent_p.bind(*constants, *carry, *cache[0], *cache[1], *v_sum, *v, loop=dual_loop(step, loop))
    linear = [*ct[0], *ct[1]]
    return [*[None] * (len(args) - len(linear)), *internals.asked_for(out, linear)]


def outputs(loop: Loop, step: Step, is_joint: bool) -> list[Any]:
    return [*sum_avals(loop, step), *step.cut(step.run.inputs)[1]]


define(reverse_p, meaning, outputs)
internals.set_jvp(reverse_p, jvp)
internals.set_transpose(reverse_p, transpose)
