"""`dynloop.cond` on JAX: the user's branches, each traced once, checked against each other and made into a pair.

What the branches close over becomes operands of both. An output that is the same operand in both
does not pass through the cond.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax import tree_util as jtu

from dynloop.branches import NAME, check_same_leaves, check_same_structure, ran_with_operands
from dynloop.carry import Leaf
from dynloop.errors import ArgumentTypeError, BranchError, described
from dynloop.on_jax import internals
from dynloop.on_jax.branches import Branches
from dynloop.on_jax.cond import cond_p
from dynloop.on_jax.flat import cut, pick
from dynloop.on_jax.leaves import KINDS, array_of, is_weak
from dynloop.on_jax.trace_cache import cached
from dynloop.on_jax.traced import Traced

LEAVES = "every leaf"


@dataclass(frozen=True)
class Prepared:
    """The traced pair, what it closes over, and how its results make up the user's.

    forwarded: for each leaf of the result, the input of both branches that it is, if any.
    """

    branches: Branches
    constants: list[Any]
    tree: Any
    forwarded: list[int | None]


def cond(pred: Any, true_fn: Any, false_fn: Any, operands: tuple[Any, ...]) -> Any:
    """See `dynloop.cond`, which has checked that the branches are callable."""
    pred = _predicate(pred)
    paths, tree = jtu.tree_flatten_with_path(operands)
    # What devices share is made each device's own out here: in a branch that some of them take, the transpose of
    # doing so would be a sum over all of them, for which those that do not take it never come.
    apart = internals.varying_axes([pred])
    named = [(x, f"{NAME}: operands{jtu.keystr(path)}") for path, x in paths]
    leaves = [internals.vary(array_of(x, name, LEAVES, ArgumentTypeError), apart) for x, name in named]
    avals = tuple(map(jax.typeof, leaves))
    key = (NAME, tree, avals, apart)
    prepared = cached((true_fn, false_fn), key, lambda: _prepare(true_fn, false_fn, tree, avals, apart))
    inputs = [*prepared.constants, *leaves]
    computed = iter(cond_p.bind(pred, *inputs, branches=prepared.branches))
    return jtu.tree_unflatten(prepared.tree, [next(computed) if i is None else inputs[i] for i in prepared.forwarded])


def _predicate(pred: Any) -> Any:
    if not isinstance(pred, KINDS):
        raise ArgumentTypeError(f"{NAME}: pred must be a boolean scalar; got {described(pred)}. Give one comparison.")
    pred = jnp.asarray(pred)
    if pred.shape != () or pred.dtype != jnp.bool_:
        raise ArgumentTypeError(
            f"{NAME}: pred must be a boolean scalar; got {pred.dtype}{list(pred.shape)}. "
            "Reduce it with .any() or .all(), or compare it with something, such as `pred != 0`."
        )
    return pred


# ---- the branches


@dataclass(frozen=True)
class Branch:
    """One branch as traced: its constants and operands in, its leaves out."""

    closed: Any
    tree: Any
    paths: list[str]

    @property
    def leaves(self) -> list[Leaf]:
        return [Leaf(p, a.shape, str(a.dtype)) for p, a in zip(self.paths, self.closed.out_avals, strict=True)]

    def forwarded(self, places: list[int], constants: int) -> list[int | None]:
        """For each output, the input of the pair that it is, if any; `places` are those of its own constants."""
        jaxpr = self.closed.jaxpr
        at = dict(zip(jaxpr.constvars, places, strict=True))
        at |= {var: constants + i for i, var in enumerate(jaxpr.invars)}
        return [at.get(var) if isinstance(var, internals.Var) else None for var in jaxpr.outvars]


def _prepare(true_fn: Any, false_fn: Any, tree: Any, avals: Sequence[Any], apart: frozenset[str]) -> Prepared:
    true, false = _trace("true_fn", true_fn, tree, avals), _trace("false_fn", false_fn, tree, avals)
    check_same_structure((true.tree, false.tree), (true.paths, false.paths))
    out_avals = list(zip(true.closed.out_avals, false.closed.out_avals, strict=True))
    targets = [_joined(*pair) for pair in out_avals]
    axes = [apart | internals.varying_axes(pair) for pair in out_avals]
    is_wrong = [target is None for target in targets]
    check_same_leaves(pick(true.leaves, is_wrong), pick(false.leaves, is_wrong))
    constants, (true_places, false_places) = _shared([true.closed.consts, false.closed.consts])
    both = zip(true.forwarded(true_places, len(constants)), false.forwarded(false_places, len(constants)), strict=True)
    forwarded = [i if i == j else None for i, j in both]

    def flat(branch: Branch, places: list[int]) -> Traced:
        def run(*inputs: Any) -> list[Any]:
            shared, operands = cut(inputs, len(constants), len(avals))
            out = internals.evaluate(branch.closed.jaxpr, [shared[i] for i in places], operands)
            joined = zip(out, targets, axes, forwarded, strict=True)
            return [internals.vary(_converted(x, *t), a) for x, t, a, i in joined if i is None and t is not None]

        return Traced(run, [*map(jax.typeof, constants), *avals])

    pair = Branches(flat(true, true_places), flat(false, false_places))
    return Prepared(pair, constants, true.tree, forwarded)


def _trace(label: str, function: Callable[..., Any], tree: Any, avals: Sequence[Any]) -> Branch:
    out_tree: Any = None
    paths: list[str] = []

    def flat(*leaves: Any) -> list[Any]:
        nonlocal out_tree
        try:
            out = function(*jtu.tree_unflatten(tree, leaves))
        except Exception as error:
            given = jtu.tree_unflatten(tree, [f"{a.dtype}{list(a.shape)}" for a in avals])
            error.add_note(ran_with_operands(label, given, "was traced"))
            raise
        found, out_tree = jtu.tree_flatten_with_path(out)
        paths.extend(jtu.keystr(path) for path, _ in found)
        return [
            array_of(x, f"{NAME}: out{jtu.keystr(path)} in what {label} returned", LEAVES, BranchError)
            for path, x in found
        ]

    closed = jax.make_jaxpr(flat)(*avals)
    return Branch(closed, out_tree, paths)


def _shared(several: Sequence[Sequence[Any]]) -> tuple[list[Any], list[list[int]]]:
    """The constants of both branches, each once, and where each branch finds its own."""
    found: dict[int, int] = {}
    constants: list[Any] = []
    for x in (x for consts in several for x in consts):
        if id(x) not in found:
            found[id(x)] = len(constants)
            constants.append(jnp.asarray(x))
    return constants, [[found[id(x)] for x in consts] for consts in several]


# ---- types of the results


def _joined(a: Any, b: Any) -> tuple[Any, bool] | None:
    """Dtype, and whether it is weak, of a leaf of which the branches return these: a number takes the other's."""
    if a.shape != b.shape:
        return None
    if a.dtype == b.dtype:
        return a.dtype, is_weak(a) and is_weak(b)
    for number, other in ((a, b), (b, a)):
        if is_weak(number) and jnp.result_type(number.dtype.type(1).item(), other.dtype) == other.dtype:
            return other.dtype, is_weak(other)
    return None


def _converted(x: Any, dtype: Any, weak: bool) -> Any:
    aval = jax.typeof(x)
    if aval.dtype == dtype and is_weak(aval) == weak:
        return x
    # No function converts to a weak type, but numbers keep the sum of two of them weak.
    return x + jnp.dtype(dtype).type(0).item() if weak else lax.convert_element_type(x, dtype)
