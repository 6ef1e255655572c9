"""`dynloop.cond`: one of two functions, chosen while the program runs; and the contract on what they return.

Backends describe what the branches returned as text, and this file compares: leaves are named by
their paths, such as `['x'][0]`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from dynloop import backend as backends
from dynloop.carry import Leaf
from dynloop.errors import ArgumentTypeError, BranchError, described

NAME = "cond"


def cond(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    *operands: Any,
    backend: str | None = None,
) -> Any:
    """`true_fn(*operands) if pred else false_fn(*operands)`, differentiably, and safely under `vmap`.

    In a batch whose lanes take different branches, no branch is evaluated on the operands of a lane
    that does not take it: such a lane borrows the operands of one that does. So a branch may divide,
    take a root or loop where only its own lanes can, and gradients stay finite.

    Args:
        pred: a boolean scalar: a Python bool or an array. It gets no gradient.
        true_fn: takes the operands, returns any pytree of arrays and numbers. It may close over arrays,
            tracers and modules; what it closes over is differentiated.
        false_fn: the same; returns the same structure, shapes and dtypes. Where one branch returns a
            Python number, it takes the dtype of the other's array.
        operands: any pytrees of arrays and numbers.
        backend: `"jax"` or `"torch"`; None looks for an array in `pred`, then in `operands`.

    Returns:
        What the chosen branch returns.

    Cost:
        One branch, in value and gradient; a gradient keeps what its tape needs, and evaluates no branch
        again. On JAX each function is traced once; on PyTorch only the chosen one is called, so that nothing is known
        of what the other one returns. Under `jax.vmap` or `torch.vmap` with a predicate that differs between lanes,
        each branch that some lane takes is evaluated once for all lanes, and its operands are copied.

    Raises:
        ArgumentTypeError: a branch is not callable, `pred` is no boolean scalar, or an operand no array.
        BranchError: the branches return different structures, shapes or dtypes.
        BackendError: no array and no `backend`.
        BatchingError: a predicate that differs between lanes, and a branch with an ordered effect or with
            communication between those lanes.

    >>> import jax, dynloop
    >>> def root(x):
    ...     return dynloop.cond(x > 0, jax.numpy.sqrt, lambda x: 0.0, x)
    >>> jax.vmap(jax.grad(root))(jax.numpy.array([-1.0, 0.0, 4.0])).tolist()
    [0.0, 0.0, 0.25]
    """
    for label, function in (("true_fn", true_fn), ("false_fn", false_fn)):
        if not callable(function):
            raise ArgumentTypeError(f"{NAME}: {label} must be a function of the operands; got {described(function)}")
    chosen = backends.choose(NAME, backend, pred=pred, operands=operands)
    return chosen.cond(pred, true_fn, false_fn, operands)


def check_same_structure(trees: tuple[object, object], paths: tuple[Sequence[str], Sequence[str]]) -> None:
    """Both branches must return the same tree."""
    if trees[0] == trees[1]:
        return

    def named(these: Sequence[str]) -> str:
        return ", ".join(f"out{path}" for path in these)

    only = [[p for p in paths[i] if p not in paths[1 - i]] for i in (0, 1)]
    details = [
        f"\n  only {label} returned {named(these)}"
        for label, these in zip(("true_fn", "false_fn"), only, strict=True)
        if these
    ]
    advice = "Return the same containers from both, with a value for each part."
    if bool(paths[0]) != bool(paths[1]):
        advice += " One of them returned nothing: is a `return` missing?"
    raise BranchError(
        f"{NAME}: true_fn and false_fn must return the same structure.{''.join(details)}\n"
        f"  true_fn returned:  {trees[0]}\n  false_fn returned: {trees[1]}\n{advice}"
    )


def check_same_leaves(true: Sequence[Leaf], false: Sequence[Leaf], *, cast: str = ".astype({})") -> None:
    """Each leaf must have one shape and dtype; `cast` is how the array library casts."""
    lines = []
    for a, b in zip(true, false, strict=True):
        if a.shape != b.shape:
            lines.append(
                f"out{a.path} is {a} from true_fn and {b} from false_fn: give both one shape, "
                "such as by broadcasting the smaller or padding it"
            )
        elif a.dtype != b.dtype:
            lines.append(
                f"out{a.path} is {a} from true_fn and {b} from false_fn: give both one dtype, "
                f"such as by {cast.format(a.dtype)} in false_fn"
            )
    if lines:
        raise BranchError(f"{NAME}: the branches return different things.\n  " + "\n  ".join(lines))


def ran_with_operands(label: str, operands: object, verb: str = "ran") -> str:
    """A note to an error of the branch `label`: the operands that it was given, their leaves in words."""
    return f"{NAME}: raised while {label} {verb} with the operands {operands}"
