"""What JAX offers to `@dynloop.loop`, beside its loops: leaves and their kinds, tracing, truth values.

A function is traced here once, and evaluated from its jaxpr wherever a loop or a branch would run it
again on values of the same types, so that the user's code runs once whatever is nested in it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax import tree_util as jtu

from dynloop import branches
from dynloop.on_jax import internals
from dynloop.on_jax.guard import Alarm, guarded
from dynloop.on_jax.leaves import KINDS
from dynloop.syntax.arrays import Kind, Late

NAME = "jax"

_NUMERIC = frozenset("biufcV")


def is_leaf(value: Any) -> bool:
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in _NUMERIC
    return isinstance(value, KINDS)


def flatten(value: Any) -> tuple[list[Any], list[str], Any]:
    paths, tree = jtu.tree_flatten_with_path(value)
    return [part for _, part in paths], [jtu.keystr(path) for path, _ in paths], tree


def unflatten(tree: Any, parts: Sequence[Any]) -> Any:
    return jtu.tree_unflatten(tree, parts)


def is_same_tree(one: Any, other: Any) -> bool:
    return one == other


def kind(leaf: Any) -> Kind:
    if isinstance(leaf, bool):
        return Kind((), jnp.dtype(bool), True)
    return _kind(jax.typeof(jnp.asarray(leaf)))


def _kind(aval: Any) -> Kind:
    return Kind(aval.shape, aval.dtype, bool(getattr(aval, "weak_type", False)))


def joined(number: Kind, other: Kind) -> Kind:
    value = number.dtype.type(1).item()
    against = other.dtype.type(1).item() if other.is_number else other.dtype
    return Kind(number.shape, jnp.result_type(value, against), other.is_number)


def is_eager(array: Any) -> bool:
    return False


def of_kind(leaf: Any, kind: Kind, like: Any = None) -> Any:
    array = jnp.asarray(leaf)
    found = _kind(jax.typeof(array))
    if found == kind or internals.is_extended(array.dtype):
        return array
    if kind.is_number:
        # No function converts to a weak type, but numbers keep the sum of two of them weak.
        return array + kind.dtype.type(0).item() if kind.dtype != jnp.bool_ else array
    return lax.convert_element_type(array, kind.dtype)


def zeros(kind: Kind) -> Any:
    if kind.is_number:
        return kind.dtype.type(0).item()
    return internals.zeros_of(internals.shaped(kind.shape, kind.dtype))


class Replay:
    """A traced function: evaluated from its jaxpr on values of the types it was traced for, else run again."""

    def __init__(self, function: Callable[[list[Any]], tuple[list[Any], Any]], leaves: Sequence[Any]):
        self.function = function
        self.avals = [jax.typeof(jnp.asarray(x)) for x in leaves]
        self.aside: Any = None

        def flat(*xs: Any) -> list[Any]:
            found, self.aside = function(list(xs))
            return found

        self.closed = jax.make_jaxpr(flat)(*self.avals)
        self.kinds = [_kind(aval) for aval in self.closed.out_avals]

    @property
    def has_effects(self) -> bool:
        return bool(self.closed.effects)

    def is_constant(self, place: int) -> bool:
        return not isinstance(self.closed.jaxpr.outvars[place], internals.Var)

    def __call__(self, leaves: Sequence[Any]) -> list[Any]:
        arrays = [jnp.asarray(x) for x in leaves]
        if [jax.typeof(x) for x in arrays] != self.avals:
            return self.function(arrays)[0]
        return internals.evaluate(self.closed.jaxpr, self.closed.consts, arrays)


def trace(function: Callable[[list[Any]], tuple[list[Any], Any]], leaves: Sequence[Any]) -> Replay:
    return Replay(function, leaves)


def is_trying() -> bool:
    return False


def cond(holds: Any, true: Late, false: Late, kinds: Sequence[Kind]) -> list[Any]:
    return list(branches.cond(holds, true, false))


def truth(array: Any) -> Any:
    return array if array.dtype == jnp.bool_ else array != 0


def negation(truth: Any) -> Any:
    return ~truth


def junction(left: Any, late: Late, is_and: bool) -> Any:
    right = late()
    if all(jnp.asarray(x).dtype == jnp.bool_ for x in (left, right)):
        return jnp.logical_and(left, right) if is_and else jnp.logical_or(left, right)
    holds = truth(jnp.asarray(left))
    return jnp.where(holds, right, left) if is_and else jnp.where(holds, left, right)


def item(array: Any, index: Any) -> Any:
    return array[index]


def with_item(array: Any, index: Any, value: Any) -> Any:
    return jnp.asarray(array).at[index].set(value)


def index(start: Any, stop: Any) -> tuple[Any, Any]:
    dtype = jnp.result_type(start, stop)
    return lax.convert_element_type(start, dtype), lax.convert_element_type(stop, dtype)


def numbers(start: int, rows: Any) -> Any:
    return jnp.arange(start, start + rows.shape[0])


def row(rows: Any) -> Any:
    return internals.zeros_of(internals.row_aval(jax.typeof(rows)))


def require(holds: Any, message: str, leaves: Sequence[Any]) -> list[Any]:
    if not isinstance(holds, internals.Tracer):
        if not bool(holds):
            raise AssertionError(message)
        return list(leaves)
    alarm = Alarm(message, "an assert in a staged function", "Leave the assert out.")
    return guarded(~holds, [jnp.asarray(x) for x in leaves], alarm)


def random_state() -> Any:
    """JAX has none: keys are values."""
    return None


def restore(state: Any) -> None:
    pass
