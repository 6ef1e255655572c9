"""The user's cond and body: traced once, checked against the carry, and made into a loop.

With a bound, or when a `Result` is asked for, a step counter rides along as one more carry.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import tree_util as jtu

from dynloop.carry import Leaf, check_leaves, check_structure
from dynloop.checkpoints import Storage
from dynloop.errors import ArgumentTypeError, CarryError, described
from dynloop.on_jax import internals
from dynloop.on_jax.kept import kept
from dynloop.on_jax.step import Loop
from dynloop.on_jax.traced import Traced

NAME = "while_loop"


@dataclass(frozen=True)
class Functions:
    """The traced cond and body, the loop made of them, and what they close over."""

    cond: Any
    body: Any
    loop: Loop
    carry_avals: list[Any]

    def constants(self) -> list[Any]:
        # What only cond reads gets no gradient; saying so here keeps it out of the sweep.
        frozen = [lax.stop_gradient(x) if is_differentiable(x) else x for x in self.cond.consts]
        return [jnp.asarray(x) for x in [*frozen, *self.body.consts]]

    def holds(self, carry: Sequence[Any]) -> Any:
        """cond, outside of the loop and of any derivative."""
        state = [lax.stop_gradient(x) if is_differentiable(x) else x for x in carry]
        return internals.evaluate(self.cond.jaxpr, self.constants()[: len(self.cond.consts)], state)[0]


def prepare(cond: Any, body: Any, tree: Any, leaves: list[Any], storage: Storage, is_counted: bool) -> Functions:
    avals = tuple(jax.typeof(x) for x in leaves)
    key = (tree, avals, storage, is_counted)
    return kept((cond, body), key, lambda: _trace(cond, body, tree, avals, storage, is_counted))


def _trace(
    cond: Callable[[Any], Any],
    body: Callable[[Any], Any],
    tree: Any,
    avals: Sequence[Any],
    storage: Storage,
    is_counted: bool,
) -> Functions:
    traced_body, avals = _trace_body(body, tree, avals)
    traced_cond = _trace_cond(cond, tree, avals)
    # Weak types mattered while the user's code ran; inside the loop every leaf has a plain dtype.
    carry_avals = [jax.typeof(as_dtype(internals.zeros_of(a), a)) if _is_weak(a) else a for a in avals]
    n, n_cond, n_body = len(avals), len(traced_cond.consts), len(traced_body.consts)
    constant_avals = [jax.typeof(jnp.asarray(x)) for x in [*traced_cond.consts, *traced_body.consts]]
    counter_avals = [jax.typeof(jnp.zeros((), jnp.int32))] if is_counted else []
    bound = storage.bound

    def flat_cond(*flat: Any) -> list[Any]:
        (holds,) = internals.evaluate(traced_cond.jaxpr, flat[:n_cond], flat[n_cond + n_body :][:n])
        return [holds if bound is None else holds & (flat[-1] < bound)]

    def flat_body(*flat: Any) -> list[Any]:
        carry = internals.evaluate(traced_body.jaxpr, flat[n_cond:][:n_body], flat[n_cond + n_body :][:n])
        return [*carry, *[i + 1 for i in flat[n_cond + n_body + n :]]]

    inputs = [*constant_avals, *carry_avals, *counter_avals]
    loop = Loop(Traced(flat_cond, inputs), Traced(flat_body, inputs), n_cond + n_body, storage)
    if not storage.is_forward_only:
        # A Memory that is too small fails at the call, not at the gradient.
        storage.layout(loop.carry_bytes)
    return Functions(traced_cond, traced_body, loop, carry_avals)


def _trace_body(body: Callable[[Any], Any], tree: Any, avals: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    out_tree: Any = None

    def flat(*leaves: Any) -> list[Any]:
        nonlocal out_tree
        out = _called("body", body, tree, leaves)
        paths, out_tree = jtu.tree_flatten_with_path(out)
        if out_tree != tree:
            before = [jtu.keystr(p) for p, _ in jtu.tree_flatten_with_path(jtu.tree_unflatten(tree, leaves))[0]]
            check_structure(NAME, tree, out_tree, (before, [jtu.keystr(p) for p, _ in paths]))
        return [as_array(path, x, "what body returned") for path, x in paths]

    closed = jax.make_jaxpr(flat)(*avals)
    promoted = [_promoted(old, new) for old, new in zip(avals, closed.out_avals, strict=True)]
    if any(a.dtype != b.dtype for a, b in zip(avals, promoted, strict=True)):
        avals, closed = promoted, jax.make_jaxpr(flat)(*promoted)
    paths = [jtu.keystr(p) for p, _ in jtu.tree_flatten_with_path(jtu.tree_unflatten(tree, avals))[0]]
    described = [
        [Leaf(path, a.shape, str(a.dtype)) for path, a in zip(paths, these, strict=True)]
        for these in (avals, closed.out_avals)
    ]
    check_leaves(NAME, *described)
    return closed, avals


def _called(label: str, function: Callable[[Any], Any], tree: Any, leaves: Sequence[Any]) -> Any:
    try:
        return function(jtu.tree_unflatten(tree, leaves))
    except Exception as error:
        carry = jtu.tree_unflatten(tree, [f"{x.dtype}{list(x.shape)}" for x in map(jax.typeof, leaves)])
        error.add_note(f"{NAME}: raised while {label} was traced with the carry {carry}")
        raise


def _trace_cond(cond: Callable[[Any], Any], tree: Any, avals: Sequence[Any]) -> Any:
    def flat(*leaves: Any) -> list[Any]:
        holds = _called("cond", cond, tree, leaves)
        if not isinstance(holds, jax.Array | np.ndarray | np.generic | bool):
            advice = "Return one comparison, such as `carry[0] < 10`."
            raise ArgumentTypeError(f"{NAME}: cond must return a boolean scalar; got {described(holds)}. {advice}")
        holds = jnp.asarray(holds)
        if holds.shape != () or holds.dtype != jnp.bool_:
            raise ArgumentTypeError(
                f"{NAME}: cond must return a boolean scalar; got {holds.dtype}{list(holds.shape)}. "
                "Reduce it with .any() or .all(), or compare it with something."
            )
        return [holds]

    return jax.make_jaxpr(flat)(*avals)


# ---- leaves of the carry


def as_array(path: Any, x: Any, where: str = "init") -> Any:
    if not isinstance(x, jax.Array | np.ndarray | np.generic | bool | int | float | complex):
        raise CarryError(
            f"{NAME}: carry{jtu.keystr(path)} in {where} is {type(x).__name__} ({x!r}): every leaf of the carry "
            "must be an array or a number. Close over what is neither, or make it a static field of its pytree."
        )
    try:
        return jnp.asarray(x)
    except (TypeError, OverflowError) as error:
        raise CarryError(f"{NAME}: carry{jtu.keystr(path)} in {where} is not an array JAX can hold: {error}") from error


def _is_weak(aval: Any) -> bool:
    return bool(getattr(aval, "weak_type", False))


def _promoted(old: Any, new: Any) -> Any:
    """A number in init (a weak type) takes the dtype that body gives it, as in `lax.while_loop`."""
    if not _is_weak(old) or old.shape != new.shape or old.dtype == new.dtype:
        return old
    number = old.dtype.type(1).item()
    return old.update(dtype=jnp.result_type(number, new.dtype), weak_type=_is_weak(new))


def as_dtype(x: Any, aval: Any) -> Any:
    return x if internals.is_extended(aval.dtype) else lax.convert_element_type(x, aval.dtype)


def is_differentiable(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))
