"""Checking a reverse sweep while it runs: is every state that it uses what the step before makes of the state before?

Turning step i, which starts from state i, the sweep has turned step i + 1 already; so the state that it used there is
compared with what step i makes of state i.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from dynloop.observers import Observer, Verify
from dynloop.on_torch.structure import Tensors, is_differentiable

CHANGED = (
    "verify: an integer or boolean leaf of a state that the reverse sweep used differs from what its step makes of the "
    "state before it: the body is not a function of its carry alone, or rounding has changed a decision in it"
)


class Check:
    """drift: the largest so far."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.reports = [observer.report for observer in observers if isinstance(observer, Verify)]
        self.following: Tensors | None = None
        self.drift = 0.0

    def turned(self, state: Tensors, made: Tensors) -> None:
        """A step has been turned from `state`, of which it makes `made`."""
        if not self.reports:
            return
        for x, y in zip(made, self.following or made, strict=True):
            if is_differentiable(x):
                self.drift = max(self.drift, drift_of(x.detach(), y.detach()))
            elif not torch.equal(x, y):
                raise RuntimeError(CHANGED)
        self.following = state

    def finish(self) -> None:
        for report in self.reports:
            report(self.drift)


def drift_of(x: Tensor, y: Tensor) -> float:
    """The largest difference of two entries, divided by the larger of 1 and the entry."""
    if not x.numel():
        return 0.0
    is_same = (x == y) | (torch.isnan(x) & torch.isnan(y))
    relative = torch.nan_to_num((x - y).abs() / y.abs().clamp(min=1), nan=torch.inf)
    return float(torch.where(is_same, 0, relative).max())
