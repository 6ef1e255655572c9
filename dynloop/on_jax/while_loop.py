"""`dynloop.while_loop` on JAX: trace the user's functions, check the carry, bind the loop.

With a bound, or when a `Result` is asked for, a step counter rides along as one more carry; what
happens at the bound is decided once, after the loop.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import tree_util as jtu

from dynloop.carry import Leaf, check_leaves, check_structure
from dynloop.checkpoints import Storage
from dynloop.errors import ArgumentTypeError, CarryError
from dynloop.on_jax import internals
from dynloop.on_jax.closures import Identities, is_plain, values_read
from dynloop.on_jax.guard import guarded
from dynloop.on_jax.primitives import loop_p
from dynloop.on_jax.step import Loop
from dynloop.on_jax.traced import Traced
from dynloop.result import Result, StoppedBecause

NAME = "while_loop"


def while_loop(cond: Any, body: Any, init: Any, *, storage: Storage, on_max_steps: str, full_output: bool) -> Any:
    """See `dynloop.while_loop`, which has checked the arguments."""
    paths, tree = jtu.tree_flatten_with_path(init)
    leaves = [_as_array(path, x) for path, x in paths]
    is_counted = storage.bound is not None or full_output
    prepared = _prepare(cond, body, tree, leaves, storage, is_counted)
    leaves = [_as_dtype(x, a) for x, a in zip(leaves, prepared.carry_avals, strict=True)]
    counter = [jnp.zeros((), jnp.int32)] if is_counted else []
    out = loop_p.bind(*prepared.constants(), *leaves, *counter, loop=prepared.loop)
    if not is_counted:
        return jtu.tree_unflatten(tree, out)
    *out, steps = out
    return _finish(prepared, out, steps, tree, storage.bound, on_max_steps, full_output)


@dataclass(frozen=True)
class _Functions:
    """The traced cond and body, the loop made of them, and what they close over."""

    cond: Any
    body: Any
    loop: Loop
    carry_avals: list[Any]

    def constants(self) -> list[Any]:
        # What only cond reads gets no gradient; saying so here keeps it out of the sweep.
        frozen = [lax.stop_gradient(x) if _is_differentiable(x) else x for x in self.cond.consts]
        return [jnp.asarray(x) for x in [*frozen, *self.body.consts]]

    def holds(self, carry: Sequence[Any]) -> Any:
        """cond, outside of the loop and of any derivative."""
        state = [lax.stop_gradient(x) if _is_differentiable(x) else x for x in carry]
        return internals.evaluate(self.cond.jaxpr, self.constants()[: len(self.cond.consts)], state)[0]


class _CapturedTracer(Exception):
    """Carries functions that close over tracers out of the cache, which must not keep them."""

    def __init__(self, functions: _Functions):
        self.functions = functions


def _prepare(cond: Any, body: Any, tree: Any, leaves: list[Any], storage: Storage, is_counted: bool) -> _Functions:
    avals = tuple(jax.typeof(x) for x in leaves)
    if not (is_plain(cond) and is_plain(body)):
        return _trace(cond, body, tree, avals, storage, is_counted)
    read = Identities((*values_read(cond), *values_read(body)))
    try:
        return _traced_once(cond, body, tree, avals, storage, is_counted, read, _trace_options())
    except _CapturedTracer as captured:
        return captured.functions


def _trace_options() -> tuple[Any, ...]:
    """The settings that decide what a trace looks like."""
    names = ("enable_x64", "numpy_dtype_promotion", "numpy_rank_promotion", "default_matmul_precision")
    return tuple(getattr(jax.config, f"jax_{name}") for name in names)


@lru_cache(maxsize=256)
def _traced_once(
    cond: Any, body: Any, tree: Any, avals: Any, storage: Storage, is_counted: bool, read: Identities, options: Any
) -> _Functions:
    functions = _trace(cond, body, tree, avals, storage, is_counted)
    if any(isinstance(x, internals.Tracer) for x in functions.constants()):
        raise _CapturedTracer(functions)
    return functions


def _trace(
    cond: Callable[[Any], Any],
    body: Callable[[Any], Any],
    tree: Any,
    avals: Sequence[Any],
    storage: Storage,
    is_counted: bool,
) -> _Functions:
    traced_body, avals = _trace_body(body, tree, avals)
    traced_cond = _trace_cond(cond, tree, avals)
    # Weak types mattered while the user's code ran; inside the loop every leaf has a plain dtype.
    carry_avals = [jax.typeof(_as_dtype(internals.zeros_of(a), a)) if _is_weak(a) else a for a in avals]
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
    return _Functions(traced_cond, traced_body, loop, carry_avals)


def _trace_body(body: Callable[[Any], Any], tree: Any, avals: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    out_tree: Any = None

    def flat(*leaves: Any) -> list[Any]:
        nonlocal out_tree
        out = body(jtu.tree_unflatten(tree, leaves))
        paths, out_tree = jtu.tree_flatten_with_path(out)
        if out_tree != tree:
            before = [jtu.keystr(p) for p, _ in jtu.tree_flatten_with_path(jtu.tree_unflatten(tree, leaves))[0]]
            check_structure(NAME, tree, out_tree, (before, [jtu.keystr(p) for p, _ in paths]))
        return [_as_array(path, x, "what body returned") for path, x in paths]

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


def _trace_cond(cond: Callable[[Any], Any], tree: Any, avals: Sequence[Any]) -> Any:
    def flat(*leaves: Any) -> list[Any]:
        holds = cond(jtu.tree_unflatten(tree, leaves))
        if not isinstance(holds, jax.Array | np.ndarray | np.generic | bool):
            kind = type(holds).__name__
            raise ArgumentTypeError(f"{NAME}: cond must return a boolean scalar; got {kind} ({holds!r})")
        holds = jnp.asarray(holds)
        if holds.shape != () or holds.dtype != jnp.bool_:
            raise ArgumentTypeError(
                f"{NAME}: cond must return a boolean scalar; got {holds.dtype}{list(holds.shape)}. "
                "Reduce it with .any() or .all(), or compare it with something."
            )
        return [holds]

    return jax.make_jaxpr(flat)(*avals)


def _finish(
    functions: _Functions, out: list[Any], steps: Any, tree: Any, bound: int | None, on_max_steps: str, full: bool
) -> Any:
    if bound is None:
        is_bound = jnp.asarray(False)
    else:
        is_bound = (steps >= bound) & functions.holds(out)
        if on_max_steps == "raise":
            message = (
                f"{NAME}: max_steps={bound} was reached and the condition still held. Raise max_steps, or give "
                'on_max_steps="stop" for the partial result or "nan" for NaN.'
            )
            passes = [not internals.is_extended(x.dtype) for x in out]
            checked = iter(guarded(is_bound, [steps, *(x for x, p in zip(out, passes, strict=True) if p)], message))
            steps = next(checked)
            out = [next(checked) if p else x for x, p in zip(out, passes, strict=True)]
        elif on_max_steps == "nan":
            # A product, so that the cotangents become NaN too.
            out = [x * jnp.where(is_bound, jnp.nan, 1).astype(x.dtype) if _is_differentiable(x) else x for x in out]
    carry = jtu.tree_unflatten(tree, out)
    if not full:
        return carry
    floating = [out[i] for i in internals.read_inputs(functions.cond) if _is_differentiable(out[i])]
    is_nan = jnp.asarray(False)
    for x in floating:
        is_nan |= jnp.any(jnp.isnan(lax.stop_gradient(x)))
    status = jnp.where(is_bound, StoppedBecause.BOUND.value, StoppedBecause.CONDITION.value)
    status = jnp.where(is_nan, StoppedBecause.NONFINITE.value, status).astype(jnp.int32)
    return Result(carry, steps, status)


# ---- leaves


def _as_array(path: Any, x: Any, where: str = "init") -> Any:
    if not isinstance(x, jax.Array | np.ndarray | np.generic | bool | int | float | complex):
        raise CarryError(
            f"{NAME}: carry{jtu.keystr(path)} in {where} is {type(x).__name__} ({x!r}): every leaf of the carry "
            "must be an array or a number. Close over what is neither, or make it a static field of its pytree."
        )
    try:
        return jnp.asarray(x)
    except TypeError as error:
        raise CarryError(f"{NAME}: carry{jtu.keystr(path)} in {where} is not an array JAX can hold: {error}") from error


def _is_weak(aval: Any) -> bool:
    return bool(getattr(aval, "weak_type", False))


def _promoted(old: Any, new: Any) -> Any:
    """A number in init (a weak type) takes the dtype that body gives it, as in `lax.while_loop`."""
    if not _is_weak(old) or old.shape != new.shape or old.dtype == new.dtype:
        return old
    number = old.dtype.type(1).item()
    return old.update(dtype=jnp.result_type(number, new.dtype), weak_type=_is_weak(new))


def _as_dtype(x: Any, aval: Any) -> Any:
    return x if internals.is_extended(aval.dtype) else lax.convert_element_type(x, aval.dtype)


def _is_differentiable(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


jtu.register_pytree_with_keys(
    Result,
    lambda r: (
        ((jtu.GetAttrKey("carry"), r.carry), (jtu.GetAttrKey("steps"), r.steps), (jtu.GetAttrKey("status"), r.status)),
        None,
    ),
    lambda _, children: Result(*children),
)
