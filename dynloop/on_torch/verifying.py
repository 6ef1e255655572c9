"""Checking a reverse sweep while it runs: is every state that it uses what the step before makes of the state before?

Turning step i, which starts from state i, the sweep has turned step i + 1 already; so the state that it used there is
compared with what step i makes of state i; and what the last step makes with what the loop returned. So whatever a
step reads besides its carry and has changed since it ran first is found out, wherever it lies: a list that the body
appends to, memory shared with NumPy, random numbers of Python's own, an attribute of a class.

`dynloop.verify()` reports how much they differ. Without it a difference larger than rounding is an error: on a CPU at
every step; elsewhere, where a look at a value waits for the device, at steps 1, 2, 4, 8 ... from the end.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from dynloop.errors import DerivativeError
from dynloop.observers import Observer, Verify
from dynloop.on_torch.structure import Tensors, is_differentiable

CHANGED = (
    "verify: an integer or boolean leaf of a state that the reverse sweep used differs from what its step makes of the "
    "state before it: the body is not a function of its carry alone, or rounding has changed a decision in it"
)
# A tensor with its version.
Last = tuple[tuple[Tensor, int], ...]


def last_of(carry: Sequence[Tensor]) -> Last:
    """What a loop returns, for its gradient to compare with; aliases, so that no graph is kept alive."""
    return tuple([(x.detach(), x._version) for x in carry])


class Check:
    """drift: the largest so far.   last: what the loop returned; None where it is not known."""

    def __init__(self, name: str, observers: Sequence[Observer], last: Last | None = None) -> None:
        self.name = name
        self.reports = [observer.report for observer in observers if isinstance(observer, Verify)]
        self.following: Sequence[Tensor | None] | None = None
        if last is not None:
            # The user may have changed one in place, as any tensor.
            self.following = [x if x._version == version else None for x, version in last]
        self.drift = 0.0
        self.turns = 0

    def turned(self, state: Tensors, made: Tensors) -> None:
        """A step has been turned from `state`, of which it makes `made`."""
        self.turns += 1
        following, self.following = self.following, state
        # A derivative's carry begins with that of the loop.
        for x, y in zip(made, following or (), strict=False):
            if y is None or x.shape != y.shape:
                continue
            if self.reports:
                self.report(x.detach(), y.detach())
            elif x.device.type == "cpu" or self.turns & (self.turns - 1) == 0:
                self.compare(x.detach(), y.detach())

    def report(self, x: Tensor, y: Tensor) -> None:
        if is_differentiable(x):
            self.drift = max(self.drift, drift_of(x, y))
        elif not torch.equal(x, y):
            raise RuntimeError(CHANGED)

    def compare(self, x: Tensor, y: Tensor) -> None:
        if x.layout is not torch.strided or x.is_meta or torch.equal(x, y):
            return
        if is_differentiable(x) and drift_of(x, y) <= torch.finfo(x.dtype).eps ** 0.5:
            return
        raise DerivativeError(
            f"{self.name}: a step that ran again for the gradient made something else of its carry than at first, so "
            "the gradient would be wrong: body reads something that has changed since, such as a list that it appends "
            "to, an attribute of a class, memory that a tensor shares with NumPy or through .data, or random numbers "
            "of Python's or NumPy's; put it into the carry, or pass it as a row of xs"
        )

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
