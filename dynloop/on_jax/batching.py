"""vmap: a batch of loops is one loop on batched constants and carries.

Which carries become batched is a fixed point, found with probes as perturbation is. If the condition
differs between the lanes, they stop by themselves (`lanes`), and then every carry is batched.
Buffers are batched on their second axis, behind the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dynloop.errors import BatchingError
from dynloop.on_jax import internals
from dynloop.on_jax.derived import primal_loop, settled, swept_loop, unobserved
from dynloop.on_jax.flat import Mask, complement, cut, merge, pick
from dynloop.on_jax.primitives import forward_p, loop_p, reverse_p, reverse_tangent_p, tangent_p
from dynloop.on_jax.probe import Hits, probe_p
from dynloop.on_jax.structure import Loop, Masks, Observed, Step
from dynloop.on_jax.tangent import arguments
from dynloop.on_jax.traced import Traced, remembered

Places = Sequence[int | None]
"""Where each of several values has its batch axis; None: nowhere."""


@dataclass(frozen=True)
class Axis:
    """The axis that is batched over.

    mesh_axes: explicit axes of the mesh that divide it among the devices; None: no such axes.
    """

    size: int
    name: Any
    spmd_name: Any
    mesh_axes: tuple[str, ...] | None

    @staticmethod
    def of(axis_data: Any) -> "Axis":
        """What a batching rule is told."""
        return Axis(axis_data.size, axis_data.name, axis_data.spmd_name, axis_data.explicit_mesh_axis)

    def vmap(self, function: Any, places: Places, out_places: Places) -> Any:
        names = {"axis_size": self.size, "axis_name": self.name, "spmd_axis_name": self.spmd_name}
        return jax.vmap(function, in_axes=tuple(places), out_axes=list(out_places), **names)

    def avals(self, avals: Sequence[Any], places: Places) -> list[Any]:
        return [a if p is None else self.aval(a, p) for a, p in zip(avals, places, strict=True)]

    def aval(self, aval: Any, place: int) -> Any:
        return internals.batched_aval(aval, self.size, place, self.mesh_axes)

    def bring(self, x: Any, dim: int | None, place: int | None) -> Any:
        """An argument with its batch axis where the loop wants it, or without one."""
        x = jnp.asarray(x) if isinstance(x, bool | int | float | complex) else x
        if dim is not None:
            assert place is not None, "what is batched is batched in the loop"
            return x if dim == place else jnp.moveaxis(x, dim, place)
        if place is None:
            return x
        aval, kept = self.aval(jax.typeof(x), place), [i for i in range(x.ndim + 1) if i != place]
        return lax.broadcast_in_dim(x, aval.shape, kept, out_sharding=internals.explicit_sharding(aval))

    def bring_all(self, xs: Sequence[Any], dims: Sequence[Any], places: Places) -> list[Any]:
        return [self.bring(x, d, p) for x, d, p in zip(xs, dims, places, strict=True)]


def axes(mask: Sequence[bool], at: int | Sequence[int] = 0) -> list[int | None]:
    """Where the masked values have their batch axis."""
    ats = [at] * len(mask) if isinstance(at, int) else at
    return [p if m else None for m, p in zip(mask, ats, strict=True)]


def mask_of(dims: Sequence[Any]) -> Mask:
    return tuple(d is not None for d in dims)


def either(*masks: Mask) -> Mask:
    return tuple(map(any, zip(*masks, strict=True)))


@remembered
def _batched_outputs(function: Traced, axis: Axis, places: tuple[int | None, ...]) -> Mask:
    hits = Hits()

    def probed(*args: Any) -> list[Any]:
        return [probe_p.bind(x, hits=hits, position=i) for i, x in enumerate(function(*args))]

    everything = [0] * len(function.outputs)
    jax.make_jaxpr(axis.vmap(probed, places, everything))(*axis.avals(function.inputs, places))
    return tuple(i in hits.positions for i in range(len(function.outputs)))


def batched_outputs(function: Traced, axis: Axis, places: Places) -> Mask:
    """Outputs that differ between lanes when inputs are batched so."""
    return _batched_outputs(function, axis, tuple(places))


# ---- where things have their batch axis


def constant_places(loop: Loop) -> list[int]:
    """Of the arguments: behind their rows and their axes of lanes."""
    return [int(s) + n for s, n in zip(loop.is_stacked, loop.axes_of_constants, strict=True)]


def row_places(loop: Loop) -> list[int]:
    """Of what the body sees, to which every row comes with all the axes of lanes."""
    axes = zip(loop.is_stacked, loop.axes_of_constants, strict=True)
    return [len(loop.lanes) if s else n for s, n in axes]


def lane_axes(axes: Sequence[int], mask: Mask) -> tuple[int, ...]:
    """How many axes of lanes each value has after one more came, which the masked ones and those with axes have."""
    return tuple(n + 1 if n or m else 0 for n, m in zip(axes, mask, strict=True))


# ---- batched loops and steps


@remembered
def batch_loop(loop: Loop, axis: Axis, constants: Mask, carry: Mask) -> tuple[Loop, Masks, bool]:
    """The batched loop, what of it is batched, and whether its lanes stop by themselves along this axis."""
    at, rows = len(loop.lanes), row_places(loop)
    is_plain = complement(loop.is_stacked)
    while True:
        out = batched_outputs(loop.body, axis, axes(constants, rows) + axes(carry, at))
        grown = either(carry, out[: loop.carries])
        if grown == carry:
            break
        carry = grown
    cond_places = axes(pick(constants, is_plain), pick(rows, is_plain))
    differs = batched_outputs(loop.cond, axis, cond_places + axes(carry, at))[0]
    ys = out[loop.carries :]
    seen = constants
    if differs:
        check_layout(axis)
        _refuse_what_lanes_share(loop, axis)
        carry, ys = (True,) * loop.carries, (True,) * loop.ys
        constants = either(constants, tuple(n > 0 for n in loop.axes_of_constants))
        # The rows that a lane sees last are its own.
        seen = either(constants, loop.is_stacked)
    places = axes(seen, rows) + axes(carry, at)
    cond_places = axes(pick(seen, is_plain), pick(rows, is_plain)) + axes(carry, at)
    copies = [n * (axis.size if m else 1) for n, m in zip(loop.copies or (1,) * loop.carries, carry, strict=True)]
    out_places = axes(carry, at) + axes(ys, at)
    observed = loop.observed
    if observed and observed.watch:
        watch_places = [*cond_places, None, at if differs else None]
        watch = Traced(axis.vmap(observed.watch, watch_places, []), axis.avals(observed.watch.inputs, watch_places))
        observed = Observed(watch, observed.report)
    big = replace(
        loop,
        cond=Traced(axis.vmap(loop.cond, cond_places, axes([differs], at)), axis.avals(loop.cond.inputs, cond_places)),
        body=Traced(axis.vmap(loop.body, places, out_places), axis.avals(loop.body.inputs, places)),
        origin=None,
        lanes=(*loop.lanes, axis.size) if differs else loop.lanes,
        lane_axes=lane_axes(loop.axes_of_constants, constants) if differs else loop.lane_axes,
        copies=tuple(copies),
        observed=observed,
        memory={},
    )
    return big, Masks(constants, carry, ys), differs


def check_layout(axis: Axis) -> None:
    """Lanes that stop by themselves borrow from each other, for which JAX wants layouts that are not written down."""
    if axis.mesh_axes:
        raise BatchingError(
            f"jax.vmap over an axis that is sharded over the explicit mesh axes {axis.mesh_axes} cannot batch a loop "
            "whose lanes take different numbers of steps. Put the vmapped function into jax.sharding.auto_axes or "
            "jax.shard_map, or make the mesh with AxisType.Auto."
        )


def _refuse_what_lanes_share(loop: Loop, axis: Axis) -> None:
    """Steps in which the lanes act together cannot be taken by some lanes only."""
    if any(internals.uses_axis(effect, axis.name) for effect in loop.body.effects | loop.cond.effects):
        raise BatchingError(
            f"{loop.storage.name}: a step communicates over the axis {axis.name!r}, along which the lanes of jax.vmap "
            "take different numbers of steps. Let them go on together, by a condition that is the same for all, such "
            f"as jax.lax.pmax(..., {axis.name!r}) > 0."
        )


@remembered
def batch_step(
    step: Step, loop: Loop, axis: Axis, masks: Masks, differs: bool, cotangents: Mask
) -> tuple[Step, Places, Places, Places]:
    """The batched step of a loop that is batched so; where its sums, its cotangents and those of ys are batched."""
    at, n_ct = len(loop.lanes), step.cotangents
    rows = row_places(loop)
    if differs:
        cotangents = (True,) * len(cotangents)
    seen = either(masks.constants, loop.is_stacked) if differs else masks.constants
    state = axes(seen, rows) + axes(masks.carry, at)
    while True:
        out = batched_outputs(step.run, axis, state + axes(cotangents, at))
        grown = (*either(cotangents[:n_ct], out[step.sums :]), *cotangents[n_ct:])
        if grown == cotangents:
            break
        cotangents = grown
    described = list(zip(step.is_stacked, step.axes_of_sums, strict=True))
    sums = out[: step.sums]
    if differs:
        sums = either(sums, tuple(n > 0 for n in step.axes_of_sums))
    seen_sums = either(sums, step.is_stacked) if differs else sums
    sum_rows = axes(seen_sums, [at if stacked else n for stacked, n in described])
    places = state + axes(cotangents, at)
    run = Traced(
        axis.vmap(step.run, places, sum_rows + axes(cotangents[:n_ct], at)), axis.avals(step.run.inputs, places)
    )
    big_axes = lane_axes(step.axes_of_sums, sums) if differs else step.lane_axes
    big = replace(step, run=run, lane_axes=big_axes, origin=_primal_half(step, loop, axis, places, sum_rows, big_axes))
    sum_places = axes(sums, [int(stacked) + n for stacked, n in described])
    return big, sum_places, axes(cotangents[:n_ct], at), axes(cotangents[n_ct:], 1 + at)


def _primal_half(
    step: Step, loop: Loop, axis: Axis, places: Places, sum_places: Places, big_axes: tuple[int, ...]
) -> Step | None:
    """What a joint step differentiates, batched as the joint step is."""
    if (origin := step.origin) is None:
        return None
    state, ct, y = step.cut(places)
    c, _, k, _ = loop.split_inputs(state)
    ct, y = ct[: origin.cotangents], y[: origin.y_cotangents]
    given = [*c, *k, *ct, *y]
    run = axis.vmap(origin.run, given, [*sum_places[: origin.sums], *ct])
    return replace(origin, run=Traced(run, axis.avals(origin.run.inputs, given)), lane_axes=big_axes[: origin.sums])


# ---- rules


class Batching:
    """One loop under one batch axis: how its arguments and results are batched."""

    def __init__(self, axis_data: Any, loop: Loop, constants: Mask, carry: Mask):
        self.axis = Axis.of(axis_data)
        self.loop, self.at = loop, len(loop.lanes)
        self.big, self.masks, self.differs = batch_loop(loop, self.axis, constants, carry)

    def state_places(self) -> Places:
        return [*axes(self.masks.constants, constant_places(self.loop)), *axes(self.masks.carry, self.at)]

    def output_places(self) -> Places:
        return [*axes(self.masks.carry, self.at), *axes(self.masks.ys, 1 + self.at)]

    def cache_places(self, primal: Loop) -> Places:
        """Steps are batched behind other lanes where they stop by themselves, buffers behind their rows and lanes."""
        kept = primal.of_buffers(self.masks.carry[: primal.carries])
        return [self.at if self.differs else None, *axes(kept, 1 + self.at)]

    def cache(self, primal: Loop, state: list[Any], cache: list[Any], dims: list[Any]) -> list[Any]:
        """The cache of the batched primal loop, or the first part of it that is given.

        One that a batched `lax.cond` mixed is useless: run forward again.
        """
        is_moved = any(
            x != place and internals.is_on_host(jax.typeof(b))
            for b, x, place in zip(cache, dims, self.cache_places(primal), strict=False)
        )
        # Nor is anything done with a buffer of the host but to write and read its rows.
        if self.differs != (dims[0] is not None) or is_moved:
            return forward_p.bind(*state, loop=unobserved(primal))[primal.carries + primal.ys :][: len(cache)]
        return self.axis.bring_all(cache, dims, self.cache_places(primal)[: len(cache)])

    def steps(self, state: list[Any], steps: Any, dim: int | None) -> Any:
        """How many steps the primal half of a batched joint loop takes, whose state this is."""
        c, _, k, _ = self.big.split_inputs(state)
        if self.differs != (dim is not None):
            meta = self.cache(primal_loop(self.big), [*c, *k], [None], [dim])[0]
            return meta[..., 0]
        return self.axis.bring(steps, dim, self.cache_places(self.big)[0])

    def step(self, step: Step, cotangents: Mask) -> tuple[Step, Places, Places, Places]:
        return batch_step(step, self.loop, self.axis, self.masks, self.differs, cotangents)


def kept_mask(loop: Loop, carry: Mask, buffers: Sequence[Any]) -> Mask:
    """Carries that are batched themselves or in the buffers."""
    batched = mask_of(buffers)[:: loop.buffers_per_leaf]
    return either(carry, tuple(merge(loop.is_kept, batched, [False] * loop.carries)))


def batch_run(primitive: Any) -> None:
    """loop and forward."""

    def rule(axis_data: Any, args: Any, dims: Any, *, loop: Loop) -> Any:
        mask = mask_of(dims)
        batching = Batching(axis_data, loop, mask[: loop.constants], mask[loop.constants :])
        out = primitive.bind(*batching.axis.bring_all(args, dims, batching.state_places()), loop=batching.big)
        cache = batching.cache_places(batching.big) if primitive is forward_p else []
        return out, [*batching.output_places(), *cache]

    internals.set_batching(primitive, rule)


def batch_tangent(axis_data: Any, args: Any, dims: Any, *, loop: Loop) -> Any:
    loop = settled(loop)
    a, d = arguments(loop, args), arguments(loop, dims)
    nc, nk, n_dot = len(a.constants), len(a.carry), len(a.constants_dot)
    swept = swept_loop(loop)
    given = kept_mask(swept, mask_of(d.carry), d.cache[1:] or [None] * swept.buffer_count)
    batching = Batching(axis_data, loop, mask_of([*d.constants, *d.constants_dot]), given + mask_of(d.carry_dot))
    c, c_dot, k, k_dot = cut(batching.state_places(), nc, n_dot, nk, len(a.carry_dot))
    bring_all = batching.axis.bring_all
    state = bring_all([*a.constants, *a.carry], [*d.constants, *d.carry], [*c, *k])
    tangents = bring_all([*a.constants_dot, *a.carry_dot], [*d.constants_dot, *d.carry_dot], [*c_dot, *k_dot])
    cache = batching.cache(swept_loop(batching.big), state, a.cache, d.cache)
    _, k_dot, _, y_dot = loop.split_outputs(batching.output_places())
    return tangent_p.bind(*state, *cache, *tangents, loop=batching.big), [*k_dot, *y_dot]


def batch_reverse(axis_data: Any, args: Any, dims: Any, *, loop: Loop, step: Step, is_joint: bool) -> Any:
    n = loop.constants + loop.carries
    (rest, ct, y), (rest_dims, ct_dims, y_dims) = step.cut(args), step.cut(dims)
    state, cache, state_dims, cache_dims = rest[:n], rest[n:], rest_dims[:n], rest_dims[n:]
    carry = kept_mask(loop, mask_of(state_dims[loop.constants :]), cache_dims[1:])
    batching = Batching(axis_data, loop, mask_of(state_dims[: loop.constants]), carry)
    big_step, sum_places, ct_places, y_places = batching.step(step, mask_of([*ct_dims, *y_dims]))
    state = batching.axis.bring_all(state, state_dims, batching.state_places())
    cache = batching.cache(batching.big, state, cache, cache_dims)
    seeds = batching.axis.bring_all([*ct, *y], [*ct_dims, *y_dims], [*ct_places, *y_places])
    out = reverse_p.bind(*state, *cache, *seeds, loop=batching.big, step=big_step, is_joint=is_joint)
    return out, [*sum_places, *ct_places]


def batch_reverse_tangent(axis_data: Any, args: Any, dims: Any, *, loop: Loop, step: Step) -> Any:
    (*state, steps), *seeds = step.cut(args)
    (*state_dims, steps_dim), *seed_dims = step.cut(dims)
    mask = mask_of(state_dims)
    batching = Batching(axis_data, loop, mask[: loop.constants], mask[loop.constants :])
    big_step, sum_places, ct_places, y_places = batching.step(step, mask_of([*seed_dims[0], *seed_dims[1]]))
    bring_all = batching.axis.bring_all
    state = bring_all(state, state_dims, batching.state_places())
    steps = batching.steps(state, steps, steps_dim)
    seeds = bring_all([*seeds[0], *seeds[1]], [*seed_dims[0], *seed_dims[1]], [*ct_places, *y_places])
    out = reverse_tangent_p.bind(*state, steps, *seeds, loop=batching.big, step=big_step)
    return out, [*sum_places[step.sums // 2 :], *ct_places[step.cotangents // 2 :]]


def _batch_probe(axis_data: Any, args: Any, dims: Any, *, hits: Hits, position: int) -> Any:
    if dims[0] is not None:
        hits.positions.add(position)
    return args[0], dims[0]


for _primitive in (loop_p, forward_p):
    batch_run(_primitive)
internals.set_batching(tangent_p, batch_tangent)
internals.set_batching(reverse_p, batch_reverse)
internals.set_batching(reverse_tangent_p, batch_reverse_tangent)
internals.set_batching(probe_p, _batch_probe)
