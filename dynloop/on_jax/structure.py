"""Loops and steps as values: what they consist of, and how their arguments are laid out.

A `Loop` is a cond and a body on (constants, carry). Some constants may be *stacked*: step i is given
their row i, as in `jax.lax.scan`; and the body may return more than the next carry, *ys*, which are
written to row i of a result. A *joint* loop carries a state and its tangent, (x, dx), in one pass, and
remembers in `split` how many of its constants, carries and ys are primal, so that it can be taken apart again.

A `Step` is the transposed step that the reverse sweep drives. It is an ordinary traced function, so it
is differentiated like any other: no rule of the sweep needs to know what it computes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp

from dynloop import checkpoints
from dynloop.on_jax import internals
from dynloop.on_jax.flat import Mask, complement, cut, merge, pick
from dynloop.on_jax.rows import get
from dynloop.on_jax.tiers import Buffers
from dynloop.on_jax.traced import Traced, zeros


class Masks(NamedTuple):
    """Which constants, carries and ys of a loop are meant, such as those that have a tangent."""

    constants: Mask
    carry: Mask
    ys: Mask

    @property
    def inputs(self) -> Mask:
        return self.constants + self.carry

    @property
    def outputs(self) -> Mask:
        return self.carry + self.ys


@dataclass(frozen=True, eq=False)
class Loop:
    """Compared by identity, as JAX's caches need.

    cond: (*constants that are not stacked, *carry) -> [bool].
    body: (*constants, with rows of the stacked ones, *carry) -> (*carry, *ys).
    ys: how many of the body's outputs, the last ones, are stacked.
    stacked: which constants are; empty: none.   length: how many rows what is stacked has.
    is_backward: row i belongs to step length - 1 - i.
    count: the constant that holds the number of steps, where it is known before the first.
    split: for a joint loop, how many of its constants, carries and ys are primal; None for a primal loop.
    origin: the loop that a joint loop differentiates; None for a dual loop, which is joint by itself.
    masks: what of the primal loop has tangents here; None for primal loops and dual ones.
    """

    cond: Traced
    body: Traced
    constants: int
    storage: checkpoints.Storage
    ys: int = 0
    stacked: Mask = ()
    length: int = 0
    is_backward: bool = False
    count: int | None = None
    split: tuple[int, int, int] | None = None
    origin: "Loop | None" = None
    masks: Masks | None = None
    # Which carries a reverse sweep needs to know, and forward stores (None: all).
    kept: Mask | None = None
    # Sizes of the batch axes whose lanes stop by themselves, the leading axes of every carry and row; and how many of
    # them, the last ones, each constant has (empty: none). An axis that came later stands behind.
    lanes: tuple[int, ...] = ()
    lane_axes: tuple[int, ...] = ()
    # How many lanes of a batch each leaf of the carry holds (empty: one).
    copies: tuple[int, ...] = ()
    observed: "Observed | None" = None
    memory: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def carries(self) -> int:
        return len(self.body.outputs) - self.ys

    @property
    def carry_avals(self) -> list[Any]:
        return self.body.inputs[self.constants :]

    @property
    def y_avals(self) -> list[Any]:
        """Of one step."""
        return self.body.outputs[self.carries :]

    @property
    def outputs(self) -> list[Any]:
        """Abstract values of the final carry and the stacked ys."""
        return [*self.carry_avals, *(self.stack(a) for a in self.y_avals)]

    def stack(self, aval: Any) -> Any:
        """The abstract value of something that has one row for each step."""
        return internals.stacked_aval(aval, self.length)

    @property
    def names(self) -> frozenset[str]:
        """Axes of the mesh, inside `jax.shard_map`, between whose devices the number of steps may differ."""
        return internals.varying_axes(self.cond.outputs)

    def number(self, x: Any) -> Any:
        """An int32 scalar or array that differs between devices as the number of steps does."""
        return internals.vary(jnp.asarray(x, jnp.int32), self.names)

    # ---- arguments

    @property
    def is_stacked(self) -> Mask:
        return self.stacked or (False,) * self.constants

    @property
    def axes_of_constants(self) -> tuple[int, ...]:
        return self.lane_axes or (0,) * self.constants

    def row(self, i: Any) -> Any:
        """The row that belongs to step i."""
        return self.length - 1 - i if self.is_backward else i

    def at(self, constants: Sequence[Any], i: Any) -> list[Any]:
        """The constants as the body sees them in step i."""
        rows = get(pick(constants, self.is_stacked), self.row(i)) if self.stacked else []
        return merge(self.is_stacked, rows, constants)

    def holds(self, constants: Sequence[Any], carry: Sequence[Any]) -> Any:
        return self.cond(*pick(constants, complement(self.is_stacked)), *carry)[0]

    def observe(self, constants: Sequence[Any], carry: Sequence[Any], i: Any, is_live: Any = True) -> None:
        """Tell whoever watches that step i made this carry."""
        if self.observed and self.observed.watch:
            self.observed.watch(*pick(constants, complement(self.is_stacked)), *carry, i, is_live)

    def split_inputs(self, flat: Sequence[Any]) -> list[list[Any]]:
        """Arguments of a joint loop (or anything laid out like them) as c, dc, k, dk."""
        assert self.split is not None
        nc, nk, _ = self.split
        return cut(flat, nc, self.constants - nc, nk, self.carries - nk)

    def split_outputs(self, flat: Sequence[Any]) -> list[list[Any]]:
        """Results of a joint loop as k, dk, y, dy."""
        assert self.split is not None
        _, nk, ny = self.split
        return cut(flat, nk, self.carries - nk, ny, self.ys - ny)

    # ---- stored states

    @property
    def is_kept(self) -> Mask:
        return (True,) * self.carries if self.kept is None else self.kept

    @property
    def buffers(self) -> Buffers:
        return Buffers(self.layout, self.storage.has_host)

    @property
    def buffer_avals(self) -> list[Any]:
        return self.buffers.avals(pick(self.carry_avals, self.is_kept))

    @property
    def buffer_count(self) -> int:
        return sum(self.is_kept) * self.buffers_per_leaf

    @property
    def buffers_per_leaf(self) -> int:
        return 2 if self.storage.has_host else 1

    def of_buffers(self, of_carry: Sequence[Any]) -> list[Any]:
        """For each buffer what is given for each leaf of the carry."""
        return [x for x in pick(of_carry, self.is_kept) for _ in range(self.buffers_per_leaf)]

    def whole(self, state: Sequence[Any]) -> list[Any]:
        """A stored state with something in the place of what nobody reads."""
        return merge(self.is_kept, state, zeros(self.carry_avals))

    @property
    def layout(self) -> checkpoints.Layout:
        layout = self.storage.layout(self.state_bytes)
        # Where a sweep needs no state at all, there is nothing to store.
        return layout if any(self.is_kept) else checkpoints.Layout(0, 1)

    @property
    def state_bytes(self) -> int | None:
        """Of what is stored of one state of one lane; None if a shape is symbolic, as `jax.export` has them."""
        sizes = [a.size * a.dtype.itemsize for a in self.carry_avals]
        copies = self.copies or (1,) * self.carries
        # No lanes at all take no room.
        total = sum(pick([n and size // n for size, n in zip(sizes, copies, strict=True)], self.is_kept))
        return total if isinstance(total, int) else None

    def __repr__(self) -> str:
        return f"Loop(constants={self.constants}, carries={self.carries}{', joint' if self.split else ''})"


@dataclass(frozen=True)
class Observed:
    """Who watches a loop run.

    watch: (*constants that are not stacked, *carry, step, is it real) -> [], of an effect; None: nobody.
    report: is told of the largest drift in the reverse sweep; None: nobody asks.
    """

    watch: Traced | None
    report: Any


@dataclass(frozen=True, eq=False)
class Step:
    """run: (*constants, with rows of the stacked ones, *carry, *cotangents of carries, *of ys) -> (*increments of the
    sums, *cotangents of carries before the step). The sum of what is stacked is stacked too: a row for each step.
    """

    run: Traced
    # Of carries, and of rows of ys.
    cotangents: int
    y_cotangents: int
    # Which sums are stacked (empty: none).
    stacked: Mask = ()
    # How many axes of lanes that stop by themselves, the last ones, each sum has (empty: none).
    lane_axes: tuple[int, ...] = ()
    # Of a joint step, the step that it differentiates, as reverse mode sees it.
    origin: "Step | None" = None

    @property
    def sums(self) -> int:
        return len(self.run.outputs) - self.cotangents

    @property
    def is_stacked(self) -> Mask:
        return self.stacked or (False,) * self.sums

    @property
    def axes_of_sums(self) -> tuple[int, ...]:
        return self.lane_axes or (0,) * self.sums

    @property
    def seed_avals(self) -> list[Any]:
        """Abstract values of the cotangents that one step is given."""
        return self.run.inputs[len(self.run.inputs) - self.cotangents - self.y_cotangents :]

    def cut(self, flat: Sequence[Any]) -> list[list[Any]]:
        """(constants and carry, cotangents of carries, of ys)."""
        return cut(flat, len(flat) - self.cotangents - self.y_cotangents, self.cotangents, self.y_cotangents)

    @property
    def memory(self) -> dict[Any, Any]:
        return self.run.memory

    def __repr__(self) -> str:
        return f"Step(cotangents={self.cotangents + self.y_cotangents}, sums={self.sums})"
