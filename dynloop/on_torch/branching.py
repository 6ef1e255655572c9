"""`dynloop.cond` on PyTorch, eager: the branch that the predicate chooses runs, and nothing else does.

Under `torch.vmap`, where the lanes of a batch may choose differently, each branch runs on the lanes that take it and on
those alone: it is a loop that takes one step in those lanes and none in the others.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dynloop.branches import NAME, check_same_leaves, check_same_structure, ran_with_operands
from dynloop.errors import ArgumentTypeError, BranchError, described
from dynloop.on_torch import engine
from dynloop.on_torch import leaves as leaf
from dynloop.on_torch.entry import run
from dynloop.on_torch.functions import Form
from dynloop.on_torch.trees import flatten, paths_of, unflatten
from dynloop.options import Options

OPTIONS = Options(NAME, 1, None, "raise", False, None)
# The tree of rows that there are none of.
NOTHING = flatten(None)[1]


def cond(pred: Any, true_fn: Any, false_fn: Any, operands: tuple[Any, ...]) -> Any:
    """See `dynloop.cond`, which has checked that the branches are callable."""
    pred = _predicate(pred)
    given, tree = flatten(operands)
    device = leaf.device_of(given, [pred])
    paths = paths_of(tree)
    several = zip(given, paths, strict=True)
    tensors = [leaf.as_tensor(NAME, f"operands{p}", x, "", device, ArgumentTypeError) for x, p in several]
    if engine.is_wrapped(pred) and not torch.compiler.is_compiling():
        return _chosen_by_lane(pred, true_fn, false_fn, tree, tensors)
    label, branch = ("true_fn", true_fn) if bool(pred) else ("false_fn", false_fn)
    return _returned(label, _called(label, branch, tree, tensors), device)


def _predicate(pred: Any) -> Tensor:
    if isinstance(pred, bool | np.ndarray | np.generic):
        pred = torch.as_tensor(pred)
    elif not isinstance(pred, Tensor):
        given = type(pred).__name__ if isinstance(pred, leaf.NUMBERS) else described(pred)
        raise ArgumentTypeError(f"{NAME}: pred must be a boolean scalar; got {given}. Give one comparison.")
    if pred.dtype is not torch.bool or pred.shape:
        raise ArgumentTypeError(
            f"{NAME}: pred must be a boolean scalar; got {leaf.in_words(pred)}. "
            "Reduce it with .any() or .all(), or compare it with something, such as `pred != 0`."
        )
    return pred


def _called(label: str, branch: Callable[..., Any], tree: Any, tensors: Sequence[Tensor]) -> Any:
    try:
        return branch(*unflatten(tree, tensors))
    except Exception as error:
        error.add_note(ran_with_operands(label, unflatten(tree, [leaf.in_words(x) for x in tensors])))
        raise


def _returned(label: str, out: Any, device: Any) -> Any:
    """What a branch returned, with tensors for its numbers."""
    found, tree = flatten(out)
    where = f" in what {label} returned"
    several = zip(found, paths_of(tree), strict=True)
    return unflatten(tree, [leaf.as_tensor(NAME, f"out{p}", x, where, device, BranchError) for x, p in several])


def _chosen_by_lane(pred: Tensor, true_fn: Any, false_fn: Any, tree: Any, tensors: list[Tensor]) -> Any:
    """Each branch is a loop of one step or none, which stacks what the branch returns."""
    device = leaf.device_of(tensors, [pred])
    both = []
    for label, branch, takes in (("true_fn", true_fn, pred), ("false_fn", false_fn, ~pred)):

        def step(carry: None, row: None, label: str = label, branch: Any = branch) -> tuple[None, Any]:
            return None, _returned(label, _called(label, branch, tree, tensors), device)

        form = Form(NAME, ("", label), rows=NOTHING, has_ys=True)
        both.append(run(form, None, step, None, OPTIONS, takes.to(torch.int64), None, 1, (), 1)[1])
    (true, true_tree), (false, false_tree) = map(flatten, both)
    paths = [paths_of(true_tree), paths_of(false_tree)]
    check_same_structure((true_tree, false_tree), (paths[0], paths[1]))
    # Each result has an axis for its one step.
    words = [[leaf.described(p, x[0]) for p, x in zip(paths[0], these, strict=True)] for these in (true, false)]
    check_same_leaves(words[0], words[1], cast=".to(torch.{})")
    return unflatten(true_tree, [torch.where(pred, x[0], y[0]) for x, y in zip(true, false, strict=True)])
