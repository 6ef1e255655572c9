"""The user's functions: traced once, and checked against the carry.

All forms of loops are one: a condition on the carry, a number of steps, or both; and a body that may
take the index of the step and rows of stacked arrays, and return a y beside the carry.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import tree_util as jtu

from dynloop.carry import Leaf, check_leaves, check_structure, ran_with
from dynloop.errors import ArgumentError, ArgumentTypeError, described
from dynloop.on_jax import internals
from dynloop.on_jax.assembly import Assembly, constants_of, constants_of_cond, run
from dynloop.on_jax.derived import joint_loop, joint_masks, swept_loop
from dynloop.on_jax.flat import Mask
from dynloop.on_jax.form import Form, Setting
from dynloop.on_jax.leaves import as_array, is_differentiable, paths_of, plain, promoted
from dynloop.on_jax.structure import Loop
from dynloop.on_jax.trace_cache import cached


@dataclass(frozen=True)
class Functions:
    """The traced functions, the loop made of them, and what they close over.

    carry_avals: of every leaf.   is_invariant: leaves that the body returns as it got them.
    names: axes of the mesh over which all that the loop computes with is made to vary.
    """

    form: Form
    cond: Any
    body: Any
    loop: Loop
    carry_avals: list[Any]
    is_invariant: Mask
    y_tree: Any
    names: frozenset[str]

    def constants(self) -> list[Any]:
        """What the functions close over."""
        return [*(constants_of_cond(self.cond, self.names) if self.cond else []), *constants_of(self.body, self.names)]

    def holds(self, carry: Sequence[Any]) -> Any:
        """The condition, outside of the loop and of any derivative; true where there is none."""
        if self.cond is None:
            return jnp.asarray(True)
        state = [lax.stop_gradient(x) if is_differentiable(x) else x for x in carry]
        return run(self.cond, self.names, constants_of_cond(self.cond, self.names), state)[0]


def prepare(
    form: Form, cond: Any, body: Any, tree: Any, leaves: list[Any], extra: list[Any], setting: Setting
) -> Functions:
    """leaves: of the first carry.   extra: what body takes beside it, in one step."""
    arguments = (tree, tuple(map(jax.typeof, leaves)), tuple(map(jax.typeof, extra)), setting)
    functions = [cond, body] if cond else [body]
    return cached(functions, (form, *arguments), lambda: _trace(form, cond, body, *arguments))


def _trace(
    form: Form,
    cond: Any,
    body: Any,
    tree: Any,
    avals: Sequence[Any],
    extra: Sequence[Any],
    setting: Setting,
) -> Functions:
    names = internals.varying_axes([*avals, *extra])
    while True:
        avals, extra = ([internals.varied_aval(a, names) for a in these] for these in (avals, extra))
        traced_body, avals, y_tree = _trace_body(form, body, tree, avals, extra)
        traced_cond = _trace_cond(form, cond, tree, avals) if cond is not None else None
        grown = names.union(
            *(internals.varying_axes([*f.consts, *f.out_avals]) for f in (traced_body, traced_cond) if f)
        )
        if grown == names:
            break
        names = grown
    is_invariant = internals.returned_unchanged(traced_body, len(extra), len(avals))
    # Weak types mattered while the user's code ran; inside the loop every leaf has a plain dtype.
    carry_avals = [plain(a) for a in avals]
    assembly = Assembly(
        form, traced_cond, traced_body, tree, is_invariant, carry_avals, [plain(a) for a in extra], setting, names
    )
    loop = assembly.loop()
    if not setting.storage.is_forward_only and loop.state_bytes is not None:
        _check_memory(loop)
    return Functions(form, traced_cond, traced_body, loop, carry_avals, is_invariant, y_tree, names)


def _check_memory(loop: Loop) -> None:
    """A Memory that is too small fails at the call, not at the gradient."""
    with suppress(ArgumentError):
        loop.storage.layout(loop.state_bytes)
        return
    # A gradient need not store all of the carry; what it does is only worked out where that matters.
    has_tangent = tuple(map(internals.has_tangent, loop.body.inputs))
    masks = joint_masks(loop, has_tangent[: loop.constants], has_tangent[loop.constants :])
    loop.storage.layout(swept_loop(joint_loop(loop, masks)).state_bytes)


def _trace_body(
    form: Form, body: Any, tree: Any, avals: Sequence[Any], extra: Sequence[Any]
) -> tuple[Any, Sequence[Any], Any]:
    out_tree = y_tree = None
    label, n = form.labels[1], len(extra)

    def flat(*leaves: Any) -> list[Any]:
        nonlocal out_tree, y_tree
        out, y = _called(form, label, lambda carry: form.call(body, leaves[:n], carry), tree, leaves[n:]), None
        if form.has_ys:
            out, y = form.pair(out)
        paths, out_tree = jtu.tree_flatten_with_path(out)
        if out_tree != tree:
            check_structure(form.name, label, tree, out_tree, (paths_of(tree), [jtu.keystr(p) for p, _ in paths]))
        y_paths, y_tree = jtu.tree_flatten_with_path(y)
        returned = f"what {label} returned"
        carry = [as_array(form.name, "carry", path, x, returned) for path, x in paths]
        return [*carry, *[as_array(form.name, "y", path, x, returned) for path, x in y_paths]]

    closed = jax.make_jaxpr(flat)(*extra, *avals)
    after = [promoted(old, new) for old, new in zip(avals, closed.out_avals[: len(avals)], strict=True)]
    if any(a.dtype != b.dtype for a, b in zip(avals, after, strict=True)):
        avals, closed = after, jax.make_jaxpr(flat)(*extra, *after)
    paths = paths_of(tree)
    described = [
        [Leaf(path, a.shape, str(a.dtype)) for path, a in zip(paths, these, strict=True)]
        for these in (avals, closed.out_avals[: len(avals)])
    ]
    check_leaves(form.name, label, *described)
    return closed, avals, y_tree


def _called(form: Form, label: str, function: Any, tree: Any, leaves: Sequence[Any]) -> Any:
    try:
        return function(jtu.tree_unflatten(tree, leaves))
    except Exception as error:
        carry = jtu.tree_unflatten(tree, [f"{x.dtype}{list(x.shape)}" for x in map(jax.typeof, leaves)])
        error.add_note(ran_with(form.name, label, carry, "was traced"))
        raise


def _trace_cond(form: Form, cond: Any, tree: Any, avals: Sequence[Any]) -> Any:
    label = form.labels[0]

    def flat(*leaves: Any) -> list[Any]:
        holds = _called(form, label, cond, tree, leaves)
        if not isinstance(holds, jax.Array | np.ndarray | np.generic | bool):
            advice = "Return one comparison, such as `carry[0] < 10`."
            raise ArgumentTypeError(
                f"{form.name}: {label} must return a boolean scalar; got {described(holds)}. {advice}"
            )
        holds = jnp.asarray(holds)
        if holds.shape != () or holds.dtype != jnp.bool_:
            raise ArgumentTypeError(
                f"{form.name}: {label} must return a boolean scalar; got {holds.dtype}{list(holds.shape)}. "
                "Reduce it with .any() or .all(), or compare it with something."
            )
        return [~holds if form.stops else holds]

    return jax.make_jaxpr(flat)(*avals)
