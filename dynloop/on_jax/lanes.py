"""Lanes that stop by themselves: how a batch of loops runs in one.

Under `vmap` the lanes of a batch take different numbers of steps. Masking a finished lane after the
step would still evaluate the body on a state whose condition is false, where it may divide by zero,
and its gradient would be 0 * inf. So the body sees, for a finished lane, that lane's *last legal
input* again and again: the state, and the rows of what is stacked, that its last step started from.
What the body makes of it is the lane's result, so nothing has to be masked on the way forward; the
states that are kept for the reverse sweep are these inputs. A lane that takes no step at all borrows
the state and the constants of one that does, once, before the loop.

Backward, step i of a lane is real if i is less than the lane's number of steps: no condition is
evaluated again. A lane's cotangent passes through the steps that are not real.

There may be several axes of lanes, the innermost `vmap`'s first. A constant has the last few of them:
one that came with an outer `vmap` is the same for all lanes of the inner ones.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from dynloop.on_jax import internals
from dynloop.on_jax.flat import cut, merge, pick
from dynloop.on_jax.rows import get
from dynloop.on_jax.structure import Loop


class Running(NamedTuple):
    """A batch of loops between two steps.

    inputs, rows: what the body sees next, each [*lanes, ...]; the rows of live lanes are yet to be read.
    outputs: what it returned last.
    is_live: [*lanes] whether the next step is real.   steps: int32[*lanes], real steps taken.
    """

    inputs: list[Array]
    rows: list[Array]
    outputs: list[Array]
    is_live: Array
    steps: Array


class Borrowing:
    """Lanes that take no step have what the first lane that takes one has, of the same innermost axis if there is one.

    So a constant that the lanes of inner axes share stays shared: where a whole column of lanes takes no
    step, all of it borrows from one other column.
    """

    def __init__(self, is_started: Array):
        self.is_started = [is_started]
        for _ in range(is_started.ndim - 1):
            self.is_started.append(jnp.any(self.is_started[-1], axis=0))
        # None: there is no lane, and so nothing to lend.
        is_empty = 0 in is_started.shape
        self.lenders = None if is_empty else [lax.argmax(started, 0, jnp.int32) for started in self.is_started]

    def __call__(self, x: Array, axes: int) -> Array:
        """x: [*the last `axes` axes of lanes, ...]."""
        if self.lenders is None:
            return x
        first = len(self.lenders) - axes
        for at in range(axes):
            taken = _entry(x, self.lenders[first + at], at)
            kept = [i for i in range(x.ndim) if i != at]
            x = choose(self.is_started[first + at], x, lax.broadcast_in_dim(taken, x.shape, kept), at)
        return x


class Batch:
    """The lanes of one loop, whose constants have been borrowed where a lane takes no step."""

    def __init__(self, loop: Loop, constants: Sequence[Any], is_started: Array):
        self.loop, self.is_started = loop, is_started
        self.borrowed = Borrowing(is_started)
        described = zip(constants, loop.is_stacked, loop.axes_of_constants, strict=True)
        self.constants = [c if stacked else self.borrowed(c, axes) for c, stacked, axes in described]

    def rows(self, i: Array) -> list[Array]:
        """The rows of step i, each [*lanes, ...]."""
        is_stacked, lanes = self.loop.is_stacked, self.loop.lanes
        rows = get(pick(self.constants, is_stacked), self.loop.row(i))
        axes = pick(self.loop.axes_of_constants, is_stacked)
        return [lax.broadcast(x, lanes[: len(lanes) - n]) for x, n in zip(rows, axes, strict=True)]

    def first_rows(self) -> list[Array]:
        return [self.borrowed(x, len(self.loop.lanes)) for x in self.rows(jnp.asarray(0, jnp.int32))]

    def begin(self, carry: list[Array]) -> Running:
        n = len(self.loop.lanes)
        inputs = [self.borrowed(x, n) for x in carry]
        steps = self.loop.number(jnp.zeros(self.loop.lanes))
        return Running(inputs, self.first_rows(), carry, self.is_started, steps)

    def step(self, i: Array, run: Running) -> tuple[Running, list[Array]]:
        """The batch after step i, and the ys of that step, zero where it was not real."""
        rows = choose_all(run.is_live, self.rows(i), run.rows)
        out = self.loop.body(*merge(self.loop.is_stacked, rows, self.constants), *run.inputs)
        outputs, ys = cut(out, self.loop.carries, self.loop.ys)
        self.loop.observe(self.constants, outputs, i, run.is_live)
        is_live = run.is_live & self.loop.holds(self.constants, outputs)
        inputs = choose_all(is_live, outputs, run.inputs)
        ys = [choose(run.is_live, y, internals.zeros_of(jax.typeof(y))) for y in ys]
        return Running(inputs, rows, outputs, is_live, run.steps + run.is_live.astype(jnp.int32)), ys

    def is_on(self, run: Running) -> Array:
        return jnp.any(run.is_live)

    def finish(self, run: Running, carry: list[Array]) -> list[Array]:
        """Each lane's final carry: its own start if it took no step."""
        return choose_all(self.is_started, run.outputs, carry)


def begin(loop: Loop, args: Sequence[Any]) -> tuple[Batch, Running, list[Array]]:
    """A batch at its start, and its carry."""
    constants, carry = cut(args, loop.constants, loop.carries)
    batch = Batch(loop, constants, loop.holds(constants, carry))
    return batch, batch.begin(carry), carry


class Ended:
    """The lanes of a batch that has run, each of which took its own number of steps; for the way back."""

    def __init__(self, loop: Loop, constants: Sequence[Any], steps: Array):
        self.loop, self.steps = loop, steps
        self.batch = Batch(loop, constants, steps > 0)
        last = loop.row(jnp.maximum(steps - 1, 0))
        described = zip(self.batch.constants, loop.is_stacked, loop.axes_of_constants, strict=True)
        own = [_row_of_each_lane(c, last, len(loop.lanes) - axes) for c, stacked, axes in described if stacked]
        # A lane without steps has stood at another one's first step.
        self.last_rows = choose_all(steps > 0, own, self.batch.first_rows())

    def at(self, i: Array) -> list[Array]:
        """The constants as the body saw them in step i."""
        rows = choose_all(i < self.steps, self.batch.rows(i), self.last_rows)
        return merge(self.loop.is_stacked, rows, self.batch.constants)

    def advanced(self, i: Array, new: list[Array], old: list[Array]) -> list[Array]:
        """The states i + 1: a finished lane stays at its last legal input."""
        return choose_all(i + 1 < self.steps, new, old)

    def seen(self, i: Array, cotangents: list[Array]) -> list[Array]:
        """What the transposed step i is given: nothing flows into the steps that are not real."""
        return [choose(i < self.steps, ct, jnp.zeros_like(ct)) for ct in cotangents]

    def passed(self, i: Array, new: list[Array], old: list[Array]) -> list[Array]:
        """The cotangents before step i: those after it, where it is not real."""
        return choose_all(i < self.steps, new, old)


def choose(mask: Array, new: Array, old: Array, at: int = 0) -> Array:
    """`new` in the lanes where the mask holds, `old` in the others; the mask's axes are those from `at` on."""
    axes, layout = tuple(range(at, at + mask.ndim)), internals.explicit_sharding(jax.typeof(new))
    return lax.select(lax.broadcast_in_dim(mask, new.shape, axes, out_sharding=layout), new, old)


def choose_all(mask: Array, new: Sequence[Array], old: Sequence[Array]) -> list[Array]:
    return [choose(mask, x, y) for x, y in zip(new, old, strict=True)]


def _entry(x: Array, index: Array, at: int) -> Array:
    """x without its axis `at`: the entry that `index`, which has the axes behind it, tells."""
    if index.ndim == 0:
        return lax.dynamic_index_in_dim(x, index, at, keepdims=False, allow_negative_indices=False)
    return jax.vmap(partial(_entry, at=at), in_axes=(at + 1, 0), out_axes=at)(x, index)


def _row_of_each_lane(stacked: Array, row: Array, missing: int) -> Array:
    """[*lanes, ...]: each lane's own row; `stacked` lacks the first `missing` axes of lanes."""
    if row.ndim == 0:
        return get([stacked], row)[0]
    f = partial(_row_of_each_lane, missing=max(missing - 1, 0))
    return jax.vmap(f, in_axes=(None if missing else 1, 0))(stacked, row)
