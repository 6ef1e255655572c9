"""Leaves of carries and of stacked values: what may be one, and its dtype."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import tree_util as jtu

from dynloop.errors import CarryError
from dynloop.on_jax import internals

KINDS = jax.Array | np.ndarray | np.generic | bool | int | float | complex


def as_array(name: str, label: str, path: Any, x: Any, where: str) -> Any:
    """`x`, the leaf of `label` at this path; `where` says who gave it."""
    return array_of(x, f"{name}: {label}{jtu.keystr(path)} in {where}", f"every leaf of the {label}", CarryError)


def array_of(x: Any, what: str, which: str, error: type[Exception]) -> Any:
    """`x` as an array; an error that says `what` it is, and that `which` must be arrays."""
    if not isinstance(x, KINDS):
        raise error(
            f"{what} is {type(x).__name__} ({x!r}): {which} must be an array or a number. "
            "Close over what is neither, or make it a static field of its pytree."
        )
    try:
        return jnp.asarray(x)
    except (TypeError, OverflowError) as cause:
        raise error(f"{what} is not an array JAX can hold: {cause}") from cause


def is_weak(aval: Any) -> bool:
    return bool(getattr(aval, "weak_type", False))


def promoted(old: Any, new: Any) -> Any:
    """A number in init (a weak type) takes the dtype that body gives it, as in `lax.while_loop`."""
    if not is_weak(old) or old.shape != new.shape or old.dtype == new.dtype:
        return old
    number = old.dtype.type(1).item()
    return old.update(dtype=jnp.result_type(number, new.dtype), weak_type=is_weak(new))


def as_dtype(x: Any, aval: Any) -> Any:
    return x if internals.is_extended(aval.dtype) else lax.convert_element_type(x, aval.dtype)


def plain(aval: Any) -> Any:
    """The abstract value without a weak type."""
    return jax.typeof(as_dtype(internals.zeros_of(aval), aval)) if is_weak(aval) else aval


def is_differentiable(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


def nan_where(is_bound: Any, x: Any) -> Any:
    """A product rather than a choice, so that cotangents become NaN too."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        # By parts: a complex product with 1 would turn inf + 0j into inf + nan j.
        return lax.complex(nan_where(is_bound, x.real), nan_where(is_bound, x.imag))
    return x * jnp.where(is_bound, jnp.nan, 1).astype(x.dtype)


def paths_of(tree: Any) -> list[str]:
    """The paths of a tree's leaves, as text."""
    return [jtu.keystr(p) for p, _ in jtu.tree_flatten_with_path(jtu.tree_unflatten(tree, range(tree.num_leaves)))[0]]
