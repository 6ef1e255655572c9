"""The loops as plain Python, for `dynloop.debug()`: one step after another, nothing traced, nothing stored."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import tree_util as jtu

from dynloop.carry import Leaf, check_leaves, check_structure
from dynloop.errors import ArgumentError
from dynloop.observers import told
from dynloop.on_jax import internals
from dynloop.on_jax.form import Form
from dynloop.on_jax.leaves import as_array, is_differentiable, nan_where, paths_of, promoted
from dynloop.result import StoppedBecause
from dynloop.settings import Options, bound_message


def run(
    form: Form,
    cond: Any,
    body: Any,
    tree: Any,
    leaves: list[Any],
    options: Options,
    count: Any,
    extra: Sequence[Any],
    is_backward: bool,
) -> tuple[list[Any], Any, Any, Any]:
    """(leaves of the final carry, ys, steps, status); the arguments are those of the compiled loop."""
    if options.sync:
        raise ArgumentError(f"{options.name}: dynloop.debug() runs on one device; leave sync={options.sync!r} out")
    steps, rows, is_bound = 0, [], False
    length = 0 if count is None else int(count)
    while (count is None or steps < length) and _holds(form, cond, tree, leaves):
        if options.max_steps is not None and steps >= options.max_steps:
            if options.on_max_steps == "raise":
                raise RuntimeError(bound_message(options.name, options.max_steps))
            is_bound = True
            break
        row = length - 1 - steps if is_backward else steps
        given = [x[row] for x in extra] if form.has_ys else [x + steps for x in extra]
        out, y = form.call(body, given, jtu.tree_unflatten(tree, leaves)), None
        if form.has_ys:
            out, y = form.pair(out)
        leaves = _checked(form, tree, leaves, out)
        rows.append((row, y))
        _tell(options, steps, tree, leaves)
        steps += 1
    ys = _stacked(form, body, tree, leaves, extra, rows, length) if form.has_ys else None
    # Before the bound makes NaN of them.
    read = _read_by(cond, tree, leaves)
    if is_bound and options.on_max_steps == "nan":
        leaves, ys = jax.tree.map(_nan, (leaves, ys))
    status = StoppedBecause.BOUND if is_bound else StoppedBecause.CONDITION
    if any(bool(jnp.any(jnp.isnan(x))) for x in map(lax.stop_gradient, read)):
        status = StoppedBecause.NONFINITE
    return leaves, ys, jnp.asarray(steps, jnp.int32), jnp.asarray(status.value, jnp.int32)


def _read_by(cond: Any, tree: Any, leaves: list[Any]) -> list[Any]:
    """The floating leaves that cond reads; all of them, if it can't be traced because it looks at values."""
    if cond is None or not any(is_differentiable(x) and bool(jnp.any(x != x)) for x in map(lax.stop_gradient, leaves)):
        return []
    try:
        closed = jax.make_jaxpr(lambda *xs: cond(jtu.tree_unflatten(tree, xs)))(*map(lax.stop_gradient, leaves))
    except TypeError:
        return [x for x in leaves if is_differentiable(x)]
    return [leaves[i] for i in sorted(internals.read_inputs(closed)) if is_differentiable(leaves[i])]


def _nan(x: Any) -> Any:
    return nan_where(jnp.asarray(True), x) if is_differentiable(x) else x


def _holds(form: Form, cond: Any, tree: Any, leaves: list[Any]) -> bool:
    if cond is None:
        return True
    holds = cond(jtu.tree_unflatten(tree, leaves))
    try:
        return bool(holds) != form.stops
    except jax.errors.ConcretizationTypeError as error:
        error.add_note(
            f"{form.name}: under dynloop.debug() the condition is a Python boolean, so nothing around the loop may be "
            "compiled or batched: leave jax.jit and jax.vmap out, or debug() itself"
        )
        raise


def _checked(form: Form, tree: Any, before: list[Any], out: Any) -> list[Any]:
    label = form.labels[1]
    found, out_tree = jtu.tree_flatten_with_path(out)
    paths = paths_of(tree)
    check_structure(form.name, label, tree, out_tree, (paths, [jtu.keystr(p) for p, _ in found]))
    after = [as_array(form.name, "carry", path, x, f"what {label} returned") for path, x in found]
    avals = [promoted(jax.typeof(a), jax.typeof(b)) for a, b in zip(before, after, strict=True)]
    described = [
        [Leaf(path, a.shape, str(a.dtype)) for path, a in zip(paths, these, strict=True)] for these in (avals, after)
    ]
    check_leaves(form.name, label, *described)
    return after


def _tell(options: Options, step: int, tree: Any, leaves: list[Any]) -> None:
    for observer in told(options.observers):
        seen = [np.asarray(lax.stop_gradient(x)) for x in leaves]
        carry = jtu.tree_unflatten(tree, seen)
        observer.see(options.name, step, carry, list(zip(paths_of(tree), seen, strict=True)))


def _stacked(
    form: Form, body: Any, tree: Any, leaves: list[Any], extra: Sequence[Any], rows: list[Any], length: int
) -> Any:
    """The ys by their rows, zeros where there was no step."""
    if rows:
        nothing = jax.tree.map(lambda y: jnp.zeros_like(jnp.asarray(y)), rows[0][1])
    else:
        one = [internals.zeros_of(internals.row_aval(jax.typeof(x))) for x in extra]
        shapes = jax.eval_shape(lambda: form.call(body, one, jtu.tree_unflatten(tree, leaves))[1])
        nothing = jax.tree.map(lambda y: jnp.zeros(y.shape, y.dtype), shapes)
    if not length:
        return jax.tree.map(lambda y: jnp.zeros((0, *y.shape), y.dtype), nothing)
    known = dict(rows)
    return jax.tree.map(lambda *ys: jnp.stack(ys), *[known.get(i, nothing) for i in range(length)])
