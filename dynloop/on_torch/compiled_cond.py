"""`dynloop.cond` inside torch.compile: torch's own conditional, given branches that agree and share no memory.

Both branches are looked at while tracing, so what they return is compared there; only one runs.
The gradient of torch's own fails on 2.13 where a branch returns integers beside floats, and where the cotangent of a
result is a tensor that it has already, such as that of another result: `chosen` gives it neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dynloop.branches import check_same_leaves, check_same_structure
from dynloop.on_torch import leaves as leaf
from dynloop.on_torch import tracing
from dynloop.on_torch.operator import probe
from dynloop.on_torch.trees import flatten, in_words, paths_of, unflatten

__all__ = ["choose", "tracing"]

Branch = Callable[[Sequence[Tensor]], Any]


def choose(pred: Tensor, true: Branch, false: Branch, tensors: Sequence[Tensor]) -> Any:
    """What the branch returns that pred chooses. Dynamo traces this function."""

    def learn() -> Any:
        found, trees = [], []
        for branch in (true, false):
            leaves, tree = flatten(branch(tensors))
            found.append(leaves)
            trees.append(tree)
        paths = [paths_of(tree) for tree in trees]
        check_same_structure((in_words(trees[0]), in_words(trees[1])), (paths[0], paths[1]))
        words = [[leaf.described(p, x) for p, x in zip(paths[0], these, strict=True)] for these in found]
        check_same_leaves(words[0], words[1], cast=".to(torch.{})")
        return trees[0], [x.dtype for x in found[0]]

    learnt: Any = probe(learn)
    tree, dtypes = learnt

    def flat(branch: Branch) -> Callable[..., list[Tensor]]:
        return lambda *xs: flatten(branch(xs))[0]

    return unflatten(tree, chosen(pred, flat(true), flat(false), dtypes, tensors))


def chosen(
    pred: Tensor,
    true: Callable[..., Sequence[Tensor]],
    false: Callable[..., Sequence[Tensor]],
    dtypes: Sequence[torch.dtype],
    tensors: Sequence[Tensor] = (),
) -> list[Tensor]:
    """What one of two branches returns, which are flat functions of tensors.   dtypes: of the results of either."""
    are_differentiable = [d.is_floating_point or d.is_complex for d in dtypes]
    is_mixed = any(are_differentiable) and not all(are_differentiable)

    def flat(branch: Callable[..., Sequence[Tensor]]) -> Callable[..., tuple[Tensor, ...]]:
        # Clones, since what a branch returns may be nobody else's.
        return lambda *xs: tuple([(_as_floats(x) if is_mixed else x).clone() for x in branch(*xs)])

    out = []
    for x, dtype in zip(torch.cond(pred, flat(true), flat(false), tuple(tensors)), dtypes, strict=True):
        # A product has a cotangent of its own.
        is_differentiable = dtype.is_floating_point or dtype.is_complex
        out.append(x * 1 if is_differentiable else _as_integers(x, dtype) if is_mixed else x)
    return out


def _as_floats(x: Tensor) -> Tensor:
    """The bits of integers as floats, of which nobody asks for a value."""
    if x.dtype.is_floating_point or x.dtype.is_complex:
        return x
    return (x if x.dtype is torch.uint64 else x.to(torch.int64)).view(torch.float64)


def _as_integers(x: Tensor, dtype: torch.dtype) -> Tensor:
    found = x.detach().view(torch.uint64 if dtype is torch.uint64 else torch.int64)
    # A copy, since what is detached is a view all the same.
    return found.clone() if found.dtype is dtype else found.to(dtype)
