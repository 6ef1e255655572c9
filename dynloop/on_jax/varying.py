"""Inside `jax.shard_map`: what differs between devices, made to differ before the loop and not inside it.

With check_vma=True, JAX knows over which axes of the mesh a value varies. Where a body mixes a value
that is the same on all devices with one that is not, JAX casts the first to varying, inside the body; the
transpose of that cast is a sum over the devices, and where these take different numbers of steps, some
would wait for it forever. So what a loop closes over is cast once, before the loop, its gradient is
summed once, after the loop, and the casts inside the body fall away.

Branches are made anew without their casts. Inner loops and functions with custom rules have types of their
own, so they get what is closed over as it was, and their casts stay. The reverse sweep refuses those
(`check_collectives`).
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from dynloop.errors import DerivativeError
from dynloop.on_jax import internals


def vary_all(values: Sequence[Any], names: frozenset[str]) -> list[Any]:
    return [internals.vary(x, names) for x in values]


def any_device(holds: Any, axes: tuple[str, ...]) -> Any:
    """Does the boolean hold on any of the devices along these axes? Itself, where there are none."""
    return most_of_devices(holds.astype(jnp.int32), axes) > 0 if axes else holds


def most_of_devices(x: Any, axes: tuple[str, ...]) -> Any:
    return lax.pmax(internals.vary(x, frozenset(axes)), axes)


def has_inner_types(closed: Any) -> bool:
    """Does it hold any jaxpr but those of `jax.jit` and `lax.cond`? Then `evaluate` needs constants uncast."""
    for eqn in closed.jaxpr.eqns:
        jitted, branches = internals.called_by_jit(eqn), internals.branches_of(eqn)
        known = branches if jitted is None else [jitted]
        if any(map(has_inner_types, known)) if known else internals.holds_jaxpr(eqn):
            return True
    return False


def evaluate(jaxpr: Any, cast: Sequence[Any], uncast: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """Run an open jaxpr on constants that vary more than it was traced for; casts of what varies already are dropped.

    uncast: the constants as they were traced, or none where `has_inner_types` says so.
    """
    originals = [*(uncast or [None] * len(cast)), *[None] * len(args)]
    return _run(jaxpr, [*cast, *args], originals)[0]


def _run(jaxpr: Any, values: Sequence[Any], originals: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """values: of the constants and inputs.   originals: those of them that come of constants, as they were traced."""
    variables = [*jaxpr.constvars, *jaxpr.invars]
    known, original = dict(zip(variables, values, strict=True)), dict(zip(variables, originals, strict=True))

    def value(v: Any) -> Any:
        return known[v] if isinstance(v, internals.Var) else v.val

    def as_traced(v: Any) -> Any:
        return original[v] if isinstance(v, internals.Var) else v.val

    for eqn in jaxpr.eqns:
        inputs, before = [value(v) for v in eqn.invars], [as_traced(v) for v in eqn.invars]
        out_before: Sequence[Any] = [None] * len(eqn.outvars)
        inner = internals.called_by_jit(eqn)
        if inner is not None:
            consts = inner.consts
            out, out_before = _run(inner.jaxpr, [*consts, *inputs], [*consts, *before])
        else:
            out = _run_equation(jaxpr, eqn, inputs, before)
            if all(b is not None for b in before) and not eqn.effects:
                out_before = internals.evaluate_equation(jaxpr, eqn, before)
        known |= zip(eqn.outvars, out, strict=True)
        original |= zip(eqn.outvars, out_before, strict=True)
    return [value(v) for v in jaxpr.outvars], [as_traced(v) for v in jaxpr.outvars]


def _run_equation(jaxpr: Any, eqn: Any, inputs: list[Any], before: list[Any]) -> list[Any]:
    names = internals.names_of_cast(eqn)
    if internals.branches_of(eqn):
        return _run_branches(eqn, inputs, before)
    if internals.holds_jaxpr(eqn):
        given = [_of_type(v, x, b) for v, x, b in zip(eqn.invars, inputs, before, strict=True)]
    else:
        given = vary_all(inputs, internals.varying_axes(inputs) | names)
    return given if names else internals.evaluate_equation(jaxpr, eqn, given)


def _run_branches(eqn: Any, inputs: list[Any], before: list[Any]) -> list[Any]:
    """A `lax.cond` anew: besides waiting for other devices, casts in its branches are what `jax.vmap` cannot batch."""
    names = internals.varying_axes([*inputs, *(v.aval for v in eqn.outvars)])

    def anew(branch: Any) -> Any:
        def run(*operands: Any) -> list[Any]:
            consts = branch.consts
            return vary_all(_run(branch.jaxpr, [*consts, *operands], [*consts, *before[1:]])[0], names)

        return run

    index, *operands = inputs
    return lax.switch(index, list(map(anew, internals.branches_of(eqn))), *vary_all(operands, names))


def _of_type(v: Any, x: Any, before: Any) -> Any:
    """The value that varies as the input `v` of an equation was traced to."""
    is_same = internals.varying_axes([x]) == internals.varying_axes([v.aval])
    return x if is_same or before is None else before


def check_collectives(body: Any, step: Any) -> None:
    """Refuse a transposed step that waits for other devices where the body does not.

    Both are closed jaxprs, of a loop whose number of steps may differ between devices.
    """
    names = internals.collective_axes(step)
    if names and not internals.collective_axes(body):
        axes = ", ".join(map(repr, sorted(names)))
        raise DerivativeError(
            "inside jax.shard_map, a loop's body uses a value that is the same on all devices inside an inner loop, "
            "jax.checkpoint or function with a custom rule; its gradient would be summed over the devices in "
            f"every step, and they may take different numbers of steps. Before the loop, write "
            f'w = jax.lax.pcast(w, ({axes},), to="varying") for each such value w'
        )
