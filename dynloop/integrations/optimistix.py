"""Optimistix's solvers, differentiated through their iterations by dynloop's loops: both modes, any order.

An Optimistix solve is a while loop over steps of the solver, and an adjoint of Optimistix's says which loop that is.
Its `ImplicitAdjoint` differentiates the equation that the end satisfies instead, which costs less and is right once the
end is reached; its `RecursiveCheckpointAdjoint` goes through the iterations, in reverse mode, once. Here they are gone
through in both modes: for an end that is not converged, for what the start or the number of iterations do to it, and
for derivatives of any order.

What lies beyond Optimistix's documents is that its entry points hand an adjoint `apply(primal_fn, rewrite_fn, inputs,
tags)`, where `primal_fn` takes the loop as the last of its inputs. `tests/integrations/test_optimistix.py` fails if
that changes.
"""

import inspect
from functools import partial
from importlib.metadata import version
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix

import dynloop
from dynloop.checkpoints import Checkpoints

TESTED = ("0.1.0",)

try:
    _TAKEN = inspect.signature(optimistix.AbstractAdjoint.apply).parameters
    _NEEDED = {name: _TAKEN[name] for name in ("primal_fn", "rewrite_fn", "inputs", "tags")}
except (AttributeError, KeyError) as error:
    raise ImportError(
        f"dynloop.integrations.optimistix needs what optimistix {version('optimistix')} does not have where it is "
        f"looked for ({error}). It works with optimistix {' and '.join(TESTED)}: pip install 'optimistix=={TESTED[0]}'"
    ) from error


class TreeverseAdjoint(optimistix.AbstractAdjoint):
    """An adjoint for `optimistix.root_find`, `fixed_point`, `least_squares` and `minimise`: through the iterations.

    Args:
        checkpoints: how many states a gradient keeps, as in `dynloop.while_loop`: `"auto"`, an int, `"all"` where
            the solve has a `max_steps`, `dynloop.Memory("1GiB")`, or a schedule. A state is what a gradient reads
            of the point and of the solver's own state. 0 makes a solve without reverse mode.

    Values and numbers of steps are those of any other adjoint. Derivatives are those of the iterations that ran, so
    the start has one too; they come close to those of the exact end as the iterations converge, and lag behind them.
    The solve needs no `max_steps`; with one, a solve that reaches it raises or not as its own `throw` says.

    Cost:
        That of `dynloop.while_loop` for as many steps as the solver takes.

    Raises:
        DerivativeError: reverse mode with `checkpoints=0`.
        Otherwise as `dynloop.while_loop`, and as Optimistix.

    >>> import jax, optimistix
    >>> from dynloop.integrations.optimistix import TreeverseAdjoint
    >>> def root(a):
    ...     equation = lambda x, a: x**2 - a
    ...     newton = optimistix.Newton(rtol=1e-6, atol=1e-6)
    ...     return optimistix.root_find(equation, newton, 1.0, a, adjoint=TreeverseAdjoint(), max_steps=None).value
    >>> print(*(f"{f(4.0):.3f}" for f in (root, jax.grad(root), jax.grad(jax.grad(root)))))
    2.000 0.250 -0.031
    """

    checkpoints: Checkpoints = eqx.field(static=True, default="auto")

    def apply(self, primal_fn: Any, rewrite_fn: Any, inputs: tuple[Any, ...], tags: frozenset[object]) -> Any:
        """What Optimistix calls with a solve; `rewrite_fn` and `tags` are for implicit differentiation."""
        return primal_fn((*inputs, partial(_while_loop, self.checkpoints)))


def _while_loop(checkpoints: Checkpoints, cond: Any, body: Any, init: Any, *, max_steps: int | None) -> Any:
    # Optimistix says afterwards, as a status of its own, if the bound was met.
    init = jax.tree.map(jnp.asarray, init)
    return dynloop.while_loop(cond, body, init, max_steps=max_steps, checkpoints=checkpoints, on_max_steps="stop")
