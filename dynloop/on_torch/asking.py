"""Steps that take a gradient by their own carry, such as forces of an energy, by `torch.autograd.grad`.

The states that a step starts from are cut off from the graph, and PyTorch then says that there is nothing to take a
gradient by. So the loop begins again, with states that require a gradient, as those of the plain loop do: on the
innermost level of whatever transformation is at work, so that a derivative of such a loop is one of its forces too.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dynloop.on_torch import engine
from dynloop.on_torch.structure import Loop, Tensors, is_differentiable
from dynloop.on_torch.unrecorded import Unrecorded

# What `torch.autograd.grad` says of results, and of inputs, that have no graph.
SIGNS = ("does not require grad and does not have a grad_fn", "One of the differentiated Tensors does not require grad")


def is_asking(loop: Loop, error: RuntimeError) -> bool:
    """Whether a step may have failed for want of a graph that its carry is part of."""
    return not loop.is_asking and torch.is_grad_enabled() and lacks_graph(error)


def lacks_graph(error: RuntimeError) -> bool:
    return any(sign in str(error) for sign in SIGNS)


def asking(loop: Loop, told: int) -> Loop:
    """The loop whose steps may take a gradient by their carry and by their rows.

    told: observers know of so many of its steps already.
    """
    tell = loop.tell

    def body(i: Any, carry: Tensors, rows: Tensors) -> tuple[Tensors, Tensors]:
        if not torch.is_grad_enabled():
            return loop.body(i, carry, rows)
        if any(engine.is_batched(x) for x in carry):
            return in_level(loop, i, carry, rows)
        return loop.body(i, *(tuple([open_to_gradient(x) for x in these]) for these in (carry, rows)))

    def tell_the_rest(i: int, carry: Sequence[Tensor]) -> None:
        assert tell is not None, "it is left out otherwise"
        if i >= told:
            tell(i, carry)

    return replace(loop, body=body, tell=None if tell is None else tell_the_rest, is_asking=True)


def in_level(loop: Loop, i: Any, carry: Tensors, rows: Tensors) -> tuple[Tensors, Tensors]:
    """The step on a level of its own, since a lane's view of a batch has no graph."""
    given = (*carry, *rows)
    mask = [is_differentiable(x) for x in given]

    def run(*floating: Tensor) -> tuple[Tensors, Tensors]:
        rest = iter(floating)
        every = tuple([next(rest) if m else x for x, m in zip(given, mask, strict=True)])
        with Unrecorded(loop.name, is_cutting=True, is_deep=True):
            return loop.body(i, every[: len(carry)], every[len(carry) :])

    return torch.func.vjp(run, *[x for x, m in zip(given, mask, strict=True) if m])[0]


def open_to_gradient(x: Tensor) -> Tensor:
    if x.requires_grad or not is_differentiable(x):
        return x
    return engine.required(x.view_as(x))
