"""A loop as a value: flat functions of tensors, and what it is to be run with.

`entry` makes one of every call, whatever its form, and hands it to the engine: `eager.run` outside of `torch.compile`,
`compiled.run` inside. Both take the same arguments and return an `Outcome`; trees are entry's business alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dynloop.checkpoints import Storage
from dynloop.on_torch.trees import paths_of
from dynloop.settings import Options

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Loop:
    """A loop, ready to run.

    cond: maps the leaves of the carry to whether another step follows, a boolean 0-d tensor; None: always.
    body: maps (i, leaves of the carry, rows) to (leaves of the next carry, leaves of the y), each a tuple of tensors.
    i is the number of steps taken before this one, a Python int or, inside a compiled program, an int64 0-d tensor.
    labels: what the user calls cond and body.   tree: of the carry.   numbers: for each leaf, the Python number that
    init had there, or None; such a leaf takes the dtype that the first step gives it.
    length: the number of rows, or None where nothing is stacked.   is_backward: rows go from the last to the first.
    tell: tells the observers of a real step, as tell(i, leaves of the carry it made); None: nobody watches.
    functions: the user's own functions, to be searched for what they close over.
    is_asking: body takes gradients by its carry (`asking`).
    """

    cond: Callable[..., Tensor] | None
    body: Callable[[Any, Tensors, Tensors], tuple[Tensors, Tensors]]
    options: Options
    labels: tuple[str, str]
    storage: Storage
    tree: Any
    numbers: tuple[Any, ...]
    length: int | None = None
    is_backward: bool = False
    tell: Callable[[int, Sequence[Tensor]], None] | None = None
    functions: tuple[Any, ...] = ()
    is_asking: bool = False

    @property
    def name(self) -> str:
        return self.options.name

    @property
    def paths(self) -> list[str]:
        """Of the leaves of the carry, as text."""
        return paths_of(self.tree)

    @property
    def bound(self) -> int | None:
        """`max_steps`."""
        return self.options.max_steps

    def row(self, i: Any) -> Any:
        """The row of stacked tensors that step i reads and writes."""
        assert self.length is not None
        return self.length - 1 - i if self.is_backward else i


class Outcome(NamedTuple):
    """What running a loop gives.

    carry: the leaves at the end, none of them the very tensor that went in.   ys: stacked, zeros where no step was.
    steps: how many were taken, an integer 0-d tensor.
    is_cut: whether the bound ended it and the condition still held, a boolean 0-d tensor. With
    `on_max_steps="raise"` the engine raises there; with `"nan"` entry makes NaN of the results.
    is_nan: whether a floating leaf that the condition reads is NaN, a boolean 0-d tensor; None without `full_output`.
    """

    carry: Tensors
    ys: Tensors
    steps: Tensor
    is_cut: Tensor
    is_nan: Tensor | None


# run(loop, carry, xs, count).  carry: leaves.  xs: stacked leaves [length, ...].  count: the number of steps, or the
# most of them where there is a condition too: a Python int, an integer 0-d tensor, or None for no such limit.
Run = Callable[[Loop, Tensors, Tensors, Any], Outcome]


def is_differentiable(x: Tensor) -> bool:
    return x.dtype.is_floating_point or x.dtype.is_complex


def name_of(dtype: torch.dtype) -> str:
    """A dtype as messages say it."""
    return str(dtype).removeprefix("torch.")


def bytes_of(carry: Sequence[Tensor]) -> int:
    """The size of a state."""
    return sum(x.numel() * x.element_size() for x in carry)
