"""The user's functions: traced once, checked against the carry, and made into a loop.

All forms of loops are one: a condition on the carry, a number of steps, or both; and a body that may
take the index of the step and rows of stacked arrays, and return a y beside the carry. Where steps are
counted, the counter rides along as one more carry. A leaf that the body returns as it got it is no
carry of the loop but a constant: it costs no checkpoint.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import tree_util as jtu

from dynloop.carry import Leaf, check_leaves, check_structure
from dynloop.checkpoints import Storage
from dynloop.errors import ArgumentError, ArgumentTypeError, described
from dynloop.on_jax import internals
from dynloop.on_jax.closures import objects_read
from dynloop.on_jax.derived import joint_loop, joint_masks, swept_loop
from dynloop.on_jax.flat import Mask, cut, merge, pick
from dynloop.on_jax.leaves import as_array, is_differentiable, plain, promoted
from dynloop.on_jax.structure import Loop
from dynloop.on_jax.traced import Traced


@dataclass(frozen=True)
class Form:
    """What kind of loop it is.

    name: the public function.   labels: what it calls the condition and the body.
    stops: the condition says when to stop, not when to go on.
    has_index: body takes the index first.   xs: the tree of what body takes, row by row, after the carry.
    has_count: the number of steps is given, if not the least of two.   has_ys: body returns a pair (carry, y).
    """

    name: str
    labels: tuple[str, str]
    stops: bool = False
    has_index: bool = False
    has_count: bool = False
    xs: Any = None
    has_ys: bool = False

    def call(self, body: Any, extra: Sequence[Any], carry: Any) -> Any:
        if self.has_index:
            return body(extra[0], carry)
        return body(carry, jtu.tree_unflatten(self.xs, extra)) if self.has_ys else body(carry)


@dataclass(frozen=True)
class Sizes:
    """How many rows stacked values have, which are read from the last to the first if it is so."""

    length: int = 0
    is_backward: bool = False


@dataclass(frozen=True)
class Functions:
    """The traced functions, the loop made of them, and what they close over.

    carry_avals: of every leaf.   is_invariant: leaves that the body returns as it got them.
    """

    form: Form
    cond: Any
    body: Any
    loop: Loop
    carry_avals: list[Any]
    is_invariant: Mask
    y_tree: Any

    def constants(self) -> list[Any]:
        """What the functions close over."""
        # What only cond reads gets no gradient; saying so here keeps it out of the sweep.
        frozen = [lax.stop_gradient(x) if is_differentiable(x) else x for x in self.cond.consts] if self.cond else []
        return [jnp.asarray(x) for x in [*frozen, *self.body.consts]]

    def holds(self, carry: Sequence[Any]) -> Any:
        """The condition, outside of the loop and of any derivative; true where there is none."""
        if self.cond is None:
            return jnp.asarray(True)
        state = [lax.stop_gradient(x) if is_differentiable(x) else x for x in carry]
        return internals.evaluate(self.cond.jaxpr, self.constants()[: len(self.cond.consts)], state)[0]


# Traces of functions that read nothing changeable, as long as the body itself lives. No decision depends on what is
# remembered here, only the time of a call that runs outside of `jax.jit`.
_TRACES: WeakKeyDictionary[Any, dict[Any, Functions]] = WeakKeyDictionary()
_TRACES_OF_ONE_BODY = 8


def prepare(
    form: Form, cond: Any, body: Any, tree: Any, leaves: list[Any], extra: list[Any], storage: Storage, sizes: Sizes
) -> Functions:
    """leaves: of the first carry.   extra: what body takes beside it, in one step."""
    avals, extra_avals = tuple(map(jax.typeof, leaves)), tuple(map(jax.typeof, extra))
    arguments = (tree, avals, extra_avals, storage, sizes)
    read = None if internals.has_named_axes() else objects_read(*([cond] if cond else []), body)
    if read is None:
        return _trace(form, cond, body, *arguments)
    known = _TRACES.setdefault(body, {})
    key = (form, cond, *arguments, read, _trace_options())
    if key not in known:
        known[key] = _trace(form, cond, body, *arguments)
        while len(known) > _TRACES_OF_ONE_BODY:
            del known[next(iter(known))]
    return known[key]


def _trace_options() -> tuple[Any, ...]:
    """The settings that decide what a trace looks like."""
    names = ("enable_x64", "numpy_dtype_promotion", "numpy_rank_promotion", "default_matmul_precision")
    names += ("default_prng_impl", "threefry_partitionable", "default_device", "random_seed_offset")
    return (*(getattr(jax.config, f"jax_{name}") for name in names), jax.sharding.get_abstract_mesh())


def _trace(
    form: Form,
    cond: Any,
    body: Any,
    tree: Any,
    avals: Sequence[Any],
    extra: Sequence[Any],
    storage: Storage,
    sizes: Sizes,
) -> Functions:
    traced_body, avals, y_tree = _trace_body(form, body, tree, avals, extra)
    traced_cond = _trace_cond(form, cond, tree, avals) if cond is not None else None
    is_invariant = internals.returned_unchanged(traced_body, len(extra), len(avals))
    # Weak types mattered while the user's code ran; inside the loop every leaf has a plain dtype.
    carry_avals = [plain(a) for a in avals]
    loop = _loop(form, traced_cond, traced_body, is_invariant, carry_avals, [plain(a) for a in extra], storage, sizes)
    if not storage.is_forward_only:
        _check_memory(loop)
    return Functions(form, traced_cond, traced_body, loop, carry_avals, is_invariant, y_tree)


def _check_memory(loop: Loop) -> None:
    """A Memory that is too small fails at the call, not at the gradient."""
    with suppress(ArgumentError):
        loop.storage.layout(loop.state_bytes)
        return
    # A gradient need not store all of the carry; what it does is only worked out where that matters.
    has_tangent = tuple(map(internals.has_tangent, loop.body.inputs))
    masks = joint_masks(loop, has_tangent[: loop.constants], has_tangent[loop.constants :])
    swept = swept_loop(joint_loop(loop, masks))
    loop.storage.layout(swept.state_bytes)


def _loop(
    form: Form,
    cond: Any,
    body: Any,
    is_invariant: Mask,
    carry_avals: list[Any],
    extra: list[Any],
    storage: Storage,
    sizes: Sizes,
) -> Loop:
    """Its constants: cond's, body's, invariant leaves, the number of steps, the first index, stacked arrays."""
    count = jax.typeof(jnp.zeros((), jnp.int32))
    is_counted = form.has_count or storage.is_counted
    cond_consts, body_consts = ([jax.typeof(jnp.asarray(x)) for x in f.consts] if f else [] for f in (cond, body))
    is_carry = [not i for i in is_invariant]
    invariant, carry = pick(carry_avals, is_invariant), pick(carry_avals, is_carry)
    counts, firsts = [count] * form.has_count, extra[: form.has_index]
    xs = [] if form.has_index else extra
    counters = [count] * is_counted
    plain_constants = [*cond_consts, *body_consts, *invariant, *counts, *firsts]
    sizes_of = (len(cond_consts), len(body_consts), len(invariant), len(counts), len(firsts))

    def leaves_of(invariant: list[Any], state: list[Any]) -> list[Any]:
        return merge(is_carry, state, merge(is_invariant, invariant, is_invariant))

    def flat_cond(*flat: Any) -> list[Any]:
        c, _, invariant, n, _, state, i = cut(flat, *sizes_of, len(carry), len(counters))
        holds = jnp.asarray(True)
        if cond is not None:
            (holds,) = internals.evaluate(cond.jaxpr, c, leaves_of(invariant, state))
        if n:
            return [holds & (i[0] < n[0]) if cond is not None else i[0] < n[0]]
        return [holds if storage.bound is None else holds & (i[0] < storage.bound)]

    def flat_body(*flat: Any) -> list[Any]:
        _, c, invariant, _, first, rows, state, i = cut(flat, *sizes_of, len(xs), len(carry), len(counters))
        given = [*[x + i[0].astype(x.dtype) for x in first], *rows, *leaves_of(invariant, state)]
        out = internals.evaluate(body.jaxpr, c, given)
        new, ys = out[: len(carry_avals)], out[len(carry_avals) :]
        return [*pick(new, is_carry), *[k + 1 for k in i], *ys]

    constants = [*plain_constants, *xs]
    is_stacked = (False,) * len(plain_constants) + (True,) * len(xs)
    return Loop(
        Traced(flat_cond, [*plain_constants, *carry, *counters]),
        Traced(flat_body, [*constants, *carry, *counters]),
        len(constants),
        storage,
        ys=len(body.out_avals) - len(carry_avals),
        stacked=is_stacked if xs else (),
        length=sizes.length,
        is_backward=sizes.is_backward,
        count=sum(sizes_of[:3]) if form.has_count and cond is None else None,
    )


def _trace_body(
    form: Form, body: Any, tree: Any, avals: Sequence[Any], extra: Sequence[Any]
) -> tuple[Any, Sequence[Any], Any]:
    out_tree = y_tree = None
    label, n = form.labels[1], len(extra)

    def flat(*leaves: Any) -> list[Any]:
        nonlocal out_tree, y_tree
        out, y = _called(form, label, lambda carry: form.call(body, leaves[:n], carry), tree, leaves[n:]), None
        if form.has_ys:
            out, y = _pair(form, out)
        paths, out_tree = jtu.tree_flatten_with_path(out)
        if out_tree != tree:
            before = [jtu.keystr(p) for p, _ in jtu.tree_flatten_with_path(jtu.tree_unflatten(tree, leaves[n:]))[0]]
            check_structure(form.name, label, tree, out_tree, (before, [jtu.keystr(p) for p, _ in paths]))
        y_paths, y_tree = jtu.tree_flatten_with_path(y)
        returned = f"what {label} returned"
        carry = [as_array(form.name, "carry", path, x, returned) for path, x in paths]
        return [*carry, *[as_array(form.name, "y", path, x, returned) for path, x in y_paths]]

    closed = jax.make_jaxpr(flat)(*extra, *avals)
    after = [promoted(old, new) for old, new in zip(avals, closed.out_avals[: len(avals)], strict=True)]
    if any(a.dtype != b.dtype for a, b in zip(avals, after, strict=True)):
        avals, closed = after, jax.make_jaxpr(flat)(*extra, *after)
    paths = [jtu.keystr(p) for p, _ in jtu.tree_flatten_with_path(jtu.tree_unflatten(tree, avals))[0]]
    described = [
        [Leaf(path, a.shape, str(a.dtype)) for path, a in zip(paths, these, strict=True)]
        for these in (avals, closed.out_avals[: len(avals)])
    ]
    check_leaves(form.name, label, *described)
    return closed, avals, y_tree


def _pair(form: Form, out: Any) -> tuple[Any, Any]:
    if isinstance(out, tuple | list) and len(out) == 2:
        return out[0], out[1]
    raise ArgumentTypeError(
        f"{form.name}: {form.labels[1]} must return a pair, the carry and what is stacked (None for nothing); "
        f"got {described(out)}"
    )


def _called(form: Form, label: str, function: Any, tree: Any, leaves: Sequence[Any]) -> Any:
    try:
        return function(jtu.tree_unflatten(tree, leaves))
    except Exception as error:
        carry = jtu.tree_unflatten(tree, [f"{x.dtype}{list(x.shape)}" for x in map(jax.typeof, leaves)])
        error.add_note(f"{form.name}: raised while {label} was traced with the carry {carry}")
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
