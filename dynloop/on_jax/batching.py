"""vmap: a batch of loops is one loop on batched constants and carries.

Which carries become batched is a fixed point, found with probes as perturbation is. If the condition
differs between the lanes, they stop by themselves (`lanes`), and then every carry is batched.
Buffers are batched on their second axis, behind the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jax import lax

from dynloop.errors import BatchingError
from dynloop.on_jax import internals
from dynloop.on_jax.flat import Mask, cut
from dynloop.on_jax.primitives import forward_p, loop_p, reverse_p, reverse_tangent_p, tangent_p
from dynloop.on_jax.probe import Hits, probe_p
from dynloop.on_jax.step import Loop, Step, joint_masks, primal_loop
from dynloop.on_jax.tangent import arguments
from dynloop.on_jax.traced import Traced, remembered

Places = Sequence[int | None]
"""Where each of several values has its batch axis; None: nowhere."""


@dataclass(frozen=True)
class Axis:
    """The axis that is batched over."""

    size: int
    name: Any
    spmd_name: Any

    def vmap(self, function: Any, places: Places, out_places: Places) -> Any:
        names = {"axis_size": self.size, "axis_name": self.name, "spmd_axis_name": self.spmd_name}
        return jax.vmap(function, in_axes=tuple(places), out_axes=list(out_places), **names)

    def avals(self, avals: Sequence[Any], places: Places) -> list[Any]:
        return [a if p is None else _taller(a, self.size, p) for a, p in zip(avals, places, strict=True)]


def axes(mask: Sequence[bool], at: int | Sequence[int] = 0) -> list[int | None]:
    """Where the masked values have their batch axis."""
    ats = [at] * len(mask) if isinstance(at, int) else at
    return [p if m else None for m, p in zip(mask, ats, strict=True)]


def mask_of(dims: Sequence[Any]) -> Mask:
    return tuple(d is not None for d in dims)


def either(*masks: Mask) -> Mask:
    return tuple(map(any, zip(*masks, strict=True)))


def _taller(aval: Any, size: int, at: int) -> Any:
    return jax.make_jaxpr(lambda x: bring(x, None, at, size))(aval).out_avals[0]


@remembered
def batched_outputs(function: Traced, axis: Axis, mask: Mask) -> Mask:
    """Outputs that differ between lanes when the masked inputs do."""
    hits = Hits()

    def probed(*args: Any) -> list[Any]:
        return [probe_p.bind(x, hits=hits, position=i) for i, x in enumerate(function(*args))]

    everything = [0] * len(function.outputs)
    jax.make_jaxpr(axis.vmap(probed, axes(mask), everything))(*axis.avals(function.inputs, axes(mask)))
    return tuple(i in hits.positions for i in range(len(function.outputs)))


# ---- batched loops and steps


def constant_places(loop: Loop) -> list[int]:
    """Where a batch axis of each constant stands: behind the axes of lanes, if it has them."""
    return [len(loop.lanes) if varies else 0 for varies in loop.lane_constants or (False,) * loop.constants]


# ---- batched loops and steps


@remembered
def batch_loop(loop: Loop, axis: Axis, constants: Mask, carry: Mask) -> tuple[Loop, Mask]:
    """The batched loop, and the mask of its batched carries."""
    while True:
        grown = either(carry, batched_outputs(loop.body, axis, constants + carry))
        if grown == carry:
            break
        carry = grown
    differs = batched_outputs(loop.cond, axis, constants + carry)[0]
    if differs and loop.lanes:
        refuse_second_axis()
    if differs:
        carry = (True,) * loop.carries
    places, carry_places = axes(constants, constant_places(loop)), axes(carry, len(loop.lanes))
    copies = [n * (axis.size if m else 1) for n, m in zip(loop.copies or (1,) * loop.carries, carry, strict=True)]
    avals = axis.avals(loop.body.inputs, places + carry_places)
    has_masks = loop.split is not None and (loop.origin or loop.masks)
    big = Loop(
        Traced(axis.vmap(loop.cond, places + carry_places, axes([differs])), avals),
        Traced(axis.vmap(loop.body, places + carry_places, carry_places), avals),
        loop.constants,
        loop.storage,
        split=loop.split,
        masks=joint_masks(loop) if has_masks else None,
        lanes=(axis.size,) if differs else loop.lanes,
        lane_constants=constants if differs else loop.lane_constants,
        copies=tuple(copies),
    )
    return big, carry


@remembered
def batch_step(
    step: Step, loop: Loop, axis: Axis, constants: Mask, carry: Mask, cotangents: Mask, differs: bool
) -> tuple[Step, Places, Places]:
    """The batched step of a loop that is batched so, and where its sums and cotangents are batched."""
    at = len(loop.lanes)
    if differs:
        cotangents = (True,) * step.cotangents
    while True:
        out = batched_outputs(step.run, axis, constants + carry + cotangents)
        grown = either(cotangents, out[step.sums :])
        if grown == cotangents:
            break
        cotangents = grown
    sums = out[: step.sums]
    sum_places = axes(sums, [at if varies else 0 for varies in step.lane_sums or (False,) * step.sums])
    places = [*axes(constants, constant_places(loop)), *axes(carry, at), *axes(cotangents, at)]
    avals = axis.avals(step.run.inputs, places)
    run = Traced(axis.vmap(step.run, places, [*sum_places, *axes(cotangents, at)]), avals)
    return Step(run, step.cotangents, sums if differs else step.lane_sums), sum_places, axes(cotangents, at)


def refuse_second_axis() -> NoReturn:
    raise BatchingError(
        "while_loop: jax.vmap over two axes, when the condition differs along both, is not supported. "
        "Flatten the axes into one, or use jax.lax.map for one of them."
    )


# ---- arguments


def bring(x: Any, dim: int | None, place: int | None, size: int) -> Any:
    """An argument with its batch axis where the loop wants it, or without one."""
    x = jnp.asarray(x) if isinstance(x, bool | int | float | complex) else x
    if dim is not None:
        assert place is not None, "what is batched is batched in the loop"
        return x if dim == place else jnp.moveaxis(x, dim, place)
    if place is None:
        return x
    kept = [i for i in range(x.ndim + 1) if i != place]
    return lax.broadcast_in_dim(x, (*x.shape[:place], size, *x.shape[place:]), kept)


def bring_all(xs: Sequence[Any], dims: Sequence[Any], places: Places, size: int) -> list[Any]:
    return [bring(x, d, p, size) for x, d, p in zip(xs, dims, places, strict=True)]


# ---- rules


class Batching:
    """One loop under one batch axis: how its arguments and results are batched."""

    def __init__(self, axis_data: Any, loop: Loop, constants: Mask, carry: Mask):
        self.axis = Axis(axis_data.size, axis_data.name, axis_data.spmd_name)
        self.loop, self.constants, self.at = loop, constants, len(loop.lanes)
        self.big, self.carry = batch_loop(loop, self.axis, constants, carry)
        self.differs = self.big.lanes != loop.lanes

    def state_places(self) -> Places:
        return [*axes(self.constants, constant_places(self.loop)), *axes(self.carry, self.at)]

    def cache_places(self, carry: Mask) -> Places:
        """The steps of lanes that stop by themselves come first; buffers are batched behind their rows and lanes."""
        return [0 if self.differs else None, *axes(carry, 1 + self.at)]

    def cache(self, primal: Loop, state: list[Any], cache: list[Any], dims: list[Any], carry: Mask) -> list[Any]:
        """The cache of the batched primal loop. One that a batched `lax.cond` mixed is useless: run forward again."""
        if self.differs != (dims[0] is not None):
            return forward_p.bind(*state, loop=primal)[primal.carries :]
        return bring_all(cache, dims, self.cache_places(carry), self.axis.size)

    def step(self, step: Step, cotangents: Mask) -> tuple[Step, Places, Places]:
        return batch_step(step, self.loop, self.axis, self.constants, self.carry, cotangents, self.differs)


def batch_run(primitive: Any) -> None:
    """loop and forward."""

    def rule(axis_data: Any, args: Any, dims: Any, *, loop: Loop) -> Any:
        mask = mask_of(dims)
        batching = Batching(axis_data, loop, mask[: loop.constants], mask[loop.constants :])
        out = primitive.bind(*bring_all(args, dims, batching.state_places(), axis_data.size), loop=batching.big)
        cache = batching.cache_places(batching.carry) if primitive is forward_p else []
        return out, [*axes(batching.carry, batching.at), *cache]

    internals.set_batching(primitive, rule)


def batch_tangent(axis_data: Any, args: Any, dims: Any, *, loop: Loop) -> Any:
    a, d = arguments(loop, args), arguments(loop, dims)
    nc, nk = len(a.constants), len(a.carry)
    given = either(mask_of(d.carry), mask_of(d.cache[1:]))
    batching = Batching(axis_data, loop, mask_of([*d.constants, *d.constants_dot]), given + mask_of(d.carry_dot))
    c, c_dot, k, k_dot = cut(batching.state_places(), nc, len(a.constants_dot), nk, len(a.carry_dot))
    state = bring_all([*a.constants, *a.carry], [*d.constants, *d.carry], c + k, axis_data.size)
    tangents = bring_all(
        [*a.constants_dot, *a.carry_dot], [*d.constants_dot, *d.carry_dot], c_dot + k_dot, axis_data.size
    )
    cache = batching.cache(primal_loop(batching.big), state, a.cache, d.cache, batching.carry[:nk])
    return tangent_p.bind(*state, *cache, *tangents, loop=batching.big), k_dot


def batch_reverse(axis_data: Any, args: Any, dims: Any, *, loop: Loop, step: Step, is_joint: bool) -> Any:
    n, nk = loop.constants + loop.carries, loop.carries
    state, cache, ct = cut(args, n, 1 + nk, step.cotangents)
    state_dims, cache_dims, ct_dims = cut(dims, n, 1 + nk, step.cotangents)
    carry = either(mask_of(state_dims[loop.constants :]), mask_of(cache_dims[1:]))
    batching = Batching(axis_data, loop, mask_of(state_dims[: loop.constants]), carry)
    big_step, sum_places, ct_places = batching.step(step, mask_of(ct_dims))
    state = bring_all(state, state_dims, batching.state_places(), axis_data.size)
    cache = batching.cache(batching.big, state, cache, cache_dims, batching.carry)
    ct = bring_all(ct, ct_dims, ct_places, axis_data.size)
    out = reverse_p.bind(*state, *cache, *ct, loop=batching.big, step=big_step, is_joint=is_joint)
    return out, [*sum_places, *ct_places]


def batch_reverse_tangent(axis_data: Any, args: Any, dims: Any, *, loop: Loop, step: Step) -> Any:
    n, mask = loop.constants + loop.carries, mask_of(dims)
    batching = Batching(axis_data, loop, mask[: loop.constants], mask[loop.constants : n])
    big_step, sum_places, ct_places = batching.step(step, mask[n:])
    args = bring_all(args, dims, [*batching.state_places(), *ct_places], axis_data.size)
    out = reverse_tangent_p.bind(*args, loop=batching.big, step=big_step)
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
