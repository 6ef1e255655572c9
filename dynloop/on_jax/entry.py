"""`dynloop.while_loop` on JAX: the way in. What happens at the bound is decided once, after the loop."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import export, lax
from jax import tree_util as jtu

from dynloop.checkpoints import Storage
from dynloop.on_jax import internals
from dynloop.on_jax.functions import NAME, Functions, as_array, as_dtype, is_differentiable, prepare
from dynloop.on_jax.guard import guarded
from dynloop.on_jax.primitives import loop_p
from dynloop.result import Result, StoppedBecause


def while_loop(cond: Any, body: Any, init: Any, *, storage: Storage, on_max_steps: str, full_output: bool) -> Any:
    """See `dynloop.while_loop`, which has checked the arguments."""
    paths, tree = jtu.tree_flatten_with_path(init)
    leaves = [as_array(path, x) for path, x in paths]
    is_counted = storage.bound is not None or full_output
    prepared = prepare(cond, body, tree, leaves, storage, is_counted)
    leaves = [as_dtype(x, a) for x, a in zip(leaves, prepared.carry_avals, strict=True)]
    counter = [jnp.zeros((), jnp.int32)] if is_counted else []
    out = loop_p.bind(*prepared.constants(), *leaves, *counter, loop=prepared.loop)
    if not is_counted:
        return jtu.tree_unflatten(tree, out)
    *out, steps = out
    return _finish(prepared, out, steps, tree, storage.bound, on_max_steps, full_output)


def _finish(
    functions: Functions, out: list[Any], steps: Any, tree: Any, bound: int | None, on_max_steps: str, full: bool
) -> Any:
    is_bound = jnp.asarray(False) if bound is None else (steps >= bound) & functions.holds(out)
    # The status is that of the carry as the loop left it.
    status = _status(functions, out, is_bound) if full else None
    if bound is not None and on_max_steps == "raise":
        message = (
            f"{NAME}: max_steps={bound} was reached and the condition still held. Raise max_steps, or give "
            'on_max_steps="stop" for the partial result or "nan" for NaN.'
        )
        extra = [steps] if status is None else [steps, status]
        checked = _guarded(is_bound, [*extra, *out], message)
        steps, status, out = checked[0], checked[len(extra) - 1] if full else None, checked[len(extra) :]
    elif bound is not None and on_max_steps == "nan":
        out = [_nan_where(is_bound, x) if is_differentiable(x) else x for x in out]
    carry = jtu.tree_unflatten(tree, out)
    return Result(carry, steps, status) if full else carry


def _status(functions: Functions, out: list[Any], is_bound: Any) -> Any:
    is_nan = jnp.asarray(False)
    for i in sorted(internals.read_inputs(functions.cond)):
        if is_differentiable(out[i]):
            is_nan |= jnp.any(jnp.isnan(lax.stop_gradient(out[i])))
    status = jnp.where(is_bound, StoppedBecause.BOUND.value, StoppedBecause.CONDITION.value)
    return jnp.where(is_nan, StoppedBecause.NONFINITE.value, status).astype(jnp.int32)


def _guarded(is_bound: Any, xs: list[Any], message: str) -> list[Any]:
    """The guard on every leaf; typed keys pass it as the numbers they consist of."""
    is_key = [internals.is_extended(x.dtype) for x in xs]
    plain = [jax.random.key_data(x) if k else x for x, k in zip(xs, is_key, strict=True)]
    checked = zip(guarded(is_bound, plain, message), xs, is_key, strict=True)
    return [jax.random.wrap_key_data(y, impl=jax.random.key_impl(x)) if k else y for y, x, k in checked]


def _nan_where(is_bound: Any, x: Any) -> Any:
    """A product rather than a choice, so that cotangents become NaN too."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        # By parts: a complex product with 1 would turn inf + 0j into inf + nan j.
        return lax.complex(_nan_where(is_bound, x.real), _nan_where(is_bound, x.imag))
    return x * jnp.where(is_bound, jnp.nan, 1).astype(x.dtype)


jtu.register_pytree_with_keys(
    Result,
    lambda r: (
        ((jtu.GetAttrKey("carry"), r.carry), (jtu.GetAttrKey("steps"), r.steps), (jtu.GetAttrKey("status"), r.status)),
        None,
    ),
    lambda _, children: Result(*children),
)
# An exported function may return a Result; who reads it in another process has imported `dynloop.on_jax`.
export.register_pytree_node_serialization(
    Result,
    serialized_name="dynloop.Result",
    serialize_auxdata=lambda _: b"",
    deserialize_auxdata=lambda _: None,
)
