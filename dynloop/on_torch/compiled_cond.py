"""`dynloop.cond` inside torch.compile: torch's own conditional, given branches that agree and share no memory.

Both branches are looked at while tracing, so what they return is compared there; only one runs.
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
from dynloop.on_torch.trees import flatten, paths_of, unflatten

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
        check_same_structure((trees[0], trees[1]), (paths[0], paths[1]))
        words = [[leaf.described(p, x) for p, x in zip(paths[0], these, strict=True)] for these in found]
        check_same_leaves(words[0], words[1], cast=".to(torch.{})")
        return trees[0]

    tree = probe(learn)

    def flat(branch: Branch) -> Callable[..., tuple[Tensor, ...]]:
        # Clones, since what a branch returns may be nobody else's.
        return lambda *xs: tuple(x.clone() for x in flatten(branch(xs))[0])

    out = torch.cond(pred, flat(true), flat(false), tuple(tensors))
    return unflatten(tree, out)
