"""Diffrax's solvers, differentiated by dynloop's loops: one adjoint for both modes, of any order, without `max_steps`.

A Diffrax solve is a while loop over steps of the solver, and inside a step one over the times that are saved. An
adjoint of Diffrax's says which loops those are. Its own choices are loops for reverse mode once (equinox's
checkpointed one), for forward mode alone, or for both at a cost that grows with `max_steps`.

Diffrax writes what it saves into buffers of the carry, each row once. No gradient reads the values of a buffer that is
only written, so none of them is stored in a checkpoint. But to set a row is to forget what was there: its derivative
clears the row of the cotangent, for which XLA's CPU compiler copies all rows at every step. To add to a row of zeros
writes the same, and has a derivative that only reads. So within the loop the buffers start as zeros, and a row is
written by adding; what was in the rows that no step wrote is put back afterwards.

What lies beyond Diffrax's documents is all here: `AbstractAdjoint._loop` and the arguments that it takes, the names of
what a solve carries, and the field `scan_kind` of Runge-Kutta solvers. `tests/integrations/test_diffrax.py` fails if
one moves.
"""

import inspect
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp

import dynloop
from dynloop.checkpoints import Checkpoints
from dynloop.errors import ArgumentError

TESTED = ("0.7.2",)

# The loop over the stages of one step, a few and never more, must take both modes as well. Equinox's bounded loop does;
# it keeps what the stages leave behind for one step, which is the step's tape anyway. Runge-Kutta methods for
# stochastic equations know `jax.lax.scan` instead.
STAGES = ((diffrax.AbstractRungeKutta, "bounded"), (diffrax.AbstractSRK, "lax"))

try:
    from diffrax._integrate import SaveState, State

    _CARRIED = [State.__dataclass_fields__[name] for name in ("save_state", "dense_ts", "dense_infos")]
    _SAVED = [SaveState.__dataclass_fields__[name] for name in ("ts", "ys", "save_index")]
    _TAKEN = inspect.signature(vars(diffrax.AbstractAdjoint)["_loop"].fget(None)).parameters
    _NEEDED = {name: _TAKEN[name] for name in ("inner_while_loop", "outer_while_loop", "max_steps", "init_state")}
    _FIELDS = [kind.__dataclass_fields__["scan_kind"] for kind, _ in STAGES]
except (ImportError, AttributeError, KeyError, TypeError) as error:
    raise ImportError(
        f"dynloop.integrations.diffrax needs what diffrax {version('diffrax')} does not have where it is looked for "
        f"({error}). It works with diffrax {' and '.join(TESTED)}: pip install 'diffrax=={TESTED[0]}'"
    ) from error


class TreeverseAdjoint(diffrax.AbstractAdjoint):
    """An adjoint for `diffrax.diffeqsolve`: forward and reverse mode through the solver's own steps, of any order.

    Args:
        checkpoints: how many states a gradient keeps, as in `dynloop.while_loop`: `"auto"`, an int, `"all"` where
            the solve has a `max_steps`, `dynloop.Memory("1GiB")`, or a schedule. A state is what a gradient reads
            of the solver's state: about one or two times `y`, and nothing of what is saved.
            0 makes a solve without reverse mode.

    The solve needs no `max_steps`; with one, a solve that reaches it raises or not as its own `throw` says.
    A `diffrax.UnsafeBrownianPath` draws its increments from the times of a step, which need not come out the same to
    the last bit when a step is computed again, so it is refused unless `checkpoints=0` rules reverse mode out.

    Cost:
        That of `dynloop.while_loop` for as many steps as the solver takes, the rejected ones included.

    Raises:
        ArgumentError: the solve has a `diffrax.UnsafeBrownianPath` and `checkpoints` is not 0.
        DerivativeError: reverse mode with `checkpoints=0`.
        Otherwise as `dynloop.while_loop`, and as `diffrax.diffeqsolve`.

    >>> import diffrax, jax
    >>> from dynloop.integrations.diffrax import TreeverseAdjoint
    >>> def decayed(rate):
    ...     term = diffrax.ODETerm(lambda t, y, rate: -rate * y)
    ...     adjoint = TreeverseAdjoint(checkpoints=8)
    ...     end = diffrax.diffeqsolve(term, diffrax.Heun(), 0.0, 2.0, 0.01, 1.0, rate, adjoint=adjoint, max_steps=None)
    ...     return end.ys[0]
    >>> print(*(f"{f(0.5):.4f}" for f in (decayed, jax.grad(decayed), jax.jacfwd(decayed))))
    0.3679 -0.7358 -0.7358
    """

    checkpoints: Checkpoints = eqx.field(static=True, default="auto")

    def loop(
        self,
        *,
        terms: Any,
        solver: Any,
        throw: bool,
        passed_solver_state: bool,
        passed_controller_state: bool,
        **rest: Any,
    ) -> Any:
        """What `diffrax.diffeqsolve` calls with a solve; `throw` is its own affair, after the loop."""
        if self.checkpoints != 0 and any(map(_redraws, jax.tree.leaves(terms, is_leaf=_redraws))):
            raise ArgumentError(
                "TreeverseAdjoint: a diffrax.UnsafeBrownianPath cannot be drawn again where a step is computed again; "
                "give a diffrax.VirtualBrownianTree, or TreeverseAdjoint(checkpoints=0), which has no reverse mode"
            )
        return self._loop(
            terms=terms,
            solver=jax.tree.map(_in_both_modes, solver, is_leaf=_has_stages),
            inner_while_loop=_saving_loop,
            outer_while_loop=partial(_stepping_loop, self.checkpoints),
            **rest,
        )


def _stepping_loop(
    checkpoints: Checkpoints, cond: Any, body: Any, init: Any, *, max_steps: int | None, buffers: Any
) -> Any:
    """The loop over the steps of the solver."""
    # Diffrax starts its counters as Python numbers, and says afterwards, as a status of its own, if the bound was met.
    init = jax.tree.map(jnp.asarray, init)
    written = lambda state: jax.tree.leaves(buffers(state))
    blank = eqx.tree_at(written, init, [_Rows(jnp.zeros_like(rows)) for rows in written(init)])
    last = dynloop.while_loop(cond, body, blank, max_steps=max_steps, checkpoints=checkpoints, on_max_steps="stop")
    return _put_back(init, last)


def _saving_loop(cond: Any, body: Any, init: Any, *, max_steps: int, buffers: Any, checkpoints: int) -> Any:
    """The loop over those times to be saved that lie in one step; its states are two counters."""
    init = jax.tree.map(jnp.asarray, init)
    return dynloop.while_loop(cond, body, init, max_steps=max_steps, checkpoints="all", on_max_steps="stop")


class _Rows(eqx.Module):
    """A buffer that starts as zeros and of which each row is written once: `rows.at[i].set(row)` adds."""

    array: jax.Array

    @property
    def at(self) -> Any:
        return _Row(self, ...)


class _Row(eqx.Module):
    rows: _Rows
    index: Any

    def __getitem__(self, index: Any) -> "_Row":
        return _Row(self.rows, index)

    def get(self) -> jax.Array:
        """What is in a row before it is written."""
        return jnp.zeros(self.rows.array.shape[1:], self.rows.array.dtype)

    def set(self, row: jax.Array) -> _Rows:
        array = self.rows.array
        if jnp.issubdtype(array.dtype, jnp.inexact):
            return _Rows(array.at[self.index].add(row))
        return _Rows(array.at[self.index].set(row))


def _put_back(before: State, after: State) -> State:
    """The state after the loop, its buffers as arrays, with what was before in those rows that no step wrote."""

    def filled(first: Any, last: Any, old: Any, new: Any) -> Any:
        def fill(old: jax.Array, new: _Rows) -> jax.Array:
            row = jnp.arange(old.shape[0]).reshape(-1, *(1,) * (old.ndim - 1))
            return jnp.where((row >= first) & (row < last), new.array, old)

        return jax.tree.map(fill, old, new, is_leaf=lambda leaf: isinstance(leaf, _Rows))

    def saved(old: SaveState, new: SaveState) -> SaveState:
        fill = partial(filled, old.save_index, new.save_index)
        return replace(new, ts=fill(old.ts, new.ts), ys=fill(old.ys, new.ys))

    kept = jax.tree.map(saved, before.save_state, after.save_state, is_leaf=lambda leaf: isinstance(leaf, SaveState))
    after = replace(after, save_state=kept)
    first, last = before.dense_save_index, after.dense_save_index
    if first is None or last is None:
        return after
    # The first of the times is that of the start.
    times = filled(first + 1, last + 1, before.dense_ts, after.dense_ts)
    infos = filled(first, last, before.dense_infos, after.dense_infos)
    return replace(after, dense_ts=times, dense_infos=infos)


def _redraws(term: Any) -> bool:
    return isinstance(term, diffrax.UnsafeBrownianPath)


def _has_stages(solver: Any) -> bool:
    # What wraps a solver, as diffrax.HalfSolver does, passes for one of the wrapped one's kind.
    kinds = tuple(kind for kind, _ in STAGES)
    return isinstance(solver, kinds) and not isinstance(solver, diffrax.AbstractWrappedSolver)


def _in_both_modes(part: Any) -> Any:
    """A part of a solver, with a loop over its stages that takes both modes, unless the user chose one."""
    if not _has_stages(part) or part.scan_kind is not None:
        return part
    scan_kind = next(scan_kind for kind, scan_kind in STAGES if isinstance(part, kind))
    return eqx.tree_at(lambda solver: solver.scan_kind, part, scan_kind, is_leaf=lambda leaf: leaf is None)
