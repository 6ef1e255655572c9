"""Lanes that take different branches: `cond` under `jax.vmap`.

Where the predicate differs between lanes, both branches run, each vmapped and only if some lane
takes it. In a lane that does not take it, a branch would meet operands that it may be undefined
for: a loop in it may never end there, and a derivative may be 0 * inf. So such a lane *borrows* the
operands of the first lane that does take it. What is borrowed has no derivative, and what a lane did
not ask for is not chosen.

The stored residuals of a linear pair are operands like any other. Its tangents and cotangents need
not be borrowed: they are zero in such a lane, so that it adds zero to whatever the lanes share.
That some lane takes a branch is again the predicate of a `cond`, so further axes follow by recursion.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from dynloop.errors import BatchingError
from dynloop.on_jax import internals
from dynloop.on_jax.batching import Axis, axes, batched_outputs, either, mask_of
from dynloop.on_jax.branches import Branches, filler
from dynloop.on_jax.cond import cond_p
from dynloop.on_jax.flat import Mask
from dynloop.on_jax.lanes import choose
from dynloop.on_jax.traced import Traced, remembered


@remembered
def batched(branches: Branches, axis: Axis, mask: Mask) -> tuple[Branches, Mask]:
    """The pair of vmapped branches, for lanes that all take the same one, and its batched outputs."""
    out = either(batched_outputs(branches.true, axis, axes(mask)), batched_outputs(branches.false, axis, axes(mask)))
    true, false = _vmapped(branches.true, axis, mask, out), _vmapped(branches.false, axis, mask, out)
    return Branches(true, false, branches.linearity, owners=branches.owners), out


@remembered
def alone(branches: Branches, axis: Axis, mask: Mask, which: bool) -> tuple[Branches, Mask]:
    """One branch, vmapped, for the case that some lane takes it; nothing is computed in the other case."""
    out = batched_outputs(branches[which], axis, axes(mask))
    taken = _vmapped(branches[which], axis, mask, out)
    untaken = Traced(lambda *_: list(map(filler, taken.outputs)), taken.inputs)
    # Whoever batches a cond chooses by lane between what its branches give alone.
    return Branches(taken, untaken, branches.linearity, owners=(True,) * len(out)), out


def _vmapped(branch: Traced, axis: Axis, mask: Mask, out: Mask) -> Traced:
    return Traced(axis.vmap(branch, axes(mask), axes(out)), axis.avals(branch.inputs, axes(mask)))


@remembered
def read_by(branch: Traced) -> set[int]:
    return internals.read_inputs(branch.closed)


class TakenLanes:
    """The lanes that take a branch, and the operands that the others need to take it too."""

    def __init__(self, is_taken: Array):
        self.is_taken = is_taken
        # None: there is no lane, and so nothing to lend.
        self.lender = lax.argmax(is_taken, 0, jnp.int32) if is_taken.size else None

    def borrowed(self, x: Array) -> Array:
        """`x`, where the lanes that do not take the branch have the entry of the first lane that does."""
        if self.lender is None:
            return x
        lent = lax.dynamic_index_in_dim(x, self.lender, 0)
        return choose(self.is_taken, x, jnp.broadcast_to(lax.stop_gradient(lent), x.shape))

    def silenced(self, x: Array) -> Array:
        """`x`, zero in the lanes that do not take the branch."""
        return choose(self.is_taken, x, jnp.zeros_like(x))


def results(
    branches: Branches, axis: Axis, pred: Array, operands: Sequence[Array], mask: Mask, which: bool
) -> tuple[list[Any], Mask]:
    """What one branch gives, on the operands of the lanes that take it."""
    lanes = TakenLanes(pred if which else ~pred)
    read = read_by(branches[which])

    def legal(i: int, x: Array, is_batched: bool, is_linear: bool) -> Array:
        if not is_batched or i not in read:
            return x
        return lanes.silenced(x) if is_linear else lanes.borrowed(x)

    pair, out = alone(branches, axis, mask, which)
    given = map(legal, range(len(operands)), operands, mask, branches.linear_inputs)
    return cond_p.bind(jnp.any(lanes.is_taken), *given, branches=pair), out


def batch(axis_data: Any, args: Sequence[Any], dims: Sequence[Any], *, branches: Branches) -> tuple[Any, Any]:
    axis = Axis.of(axis_data)
    mask = mask_of(dims[1:])
    pred, *operands = axis.bring_all(args, dims, axes(mask_of(dims)))
    if dims[0] is None:
        pair, out = batched(branches, axis, mask)
        return cond_p.bind(pred, *operands, branches=pair), axes(out)
    refuse_what_lanes_share(branches, axis)
    by_branch = {
        which: results(branches, axis, pred, operands, mask, which)
        for which in (True, False)
        if any(branches.owner(i) in (None, which) for i in range(len(branches.outputs))) or branches[which].effects
    }
    chosen, places = [], []
    for i in range(len(branches.outputs)):
        owner = branches.owner(i)
        if owner is None:
            yes, no = (_spread(out[i], is_batched[i], axis) for out, is_batched in by_branch.values())
            chosen.append(choose(pred, yes, no))
            places.append(0)
        else:
            out, is_batched = by_branch[owner]
            chosen.append(out[i])
            places.append(0 if is_batched[i] else None)
    return chosen, places


def _spread(x: Array, is_batched: bool, axis: Axis) -> Array:
    return x if is_batched else jnp.broadcast_to(x, (axis.size, *x.shape))


def refuse_what_lanes_share(branches: Branches, axis: Axis) -> None:
    """Branches in which the lanes act together, or in an order, cannot be taken by some lanes only."""
    if any(map(internals.is_ordered, branches.effects)):
        raise BatchingError(
            "cond: a branch has an ordered effect, and under jax.vmap with a predicate that differs between lanes "
            "there is no order to keep. Make the callback unordered, or use jax.lax.map instead of jax.vmap."
        )
    if any(internals.uses_axis(effect, axis.name) for effect in branches.effects):
        raise BatchingError(
            f"cond: a branch communicates over the axis {axis.name!r}, and the predicate differs along it, so that "
            "only some of its lanes take the branch. Do that before the cond and pass its result as an operand."
        )


internals.set_batching(cond_p, batch)
