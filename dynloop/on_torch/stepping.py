"""One step after another: when a loop goes on, which rows a step takes, where its y goes, and its pull-back."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dynloop.errors import ArgumentError
from dynloop.on_torch.structure import Loop, Tensors, is_differentiable
from dynloop.options import bound_message


class Walk:
    """One run of a loop, whose values Python may look at."""

    def __init__(self, loop: Loop, xs: Tensors, count: int | None) -> None:
        if loop.options.sync and not dist.is_initialized():
            raise ArgumentError(
                f"{loop.name}: sync={loop.options.sync!r} is for processes that torch.distributed has joined; call "
                "torch.distributed.init_process_group first, or leave it out"
            )
        self.loop = loop
        self.xs = xs
        self.count = agreed(count, torch.int64) if loop.options.sync and count is not None else count
        self.is_cut = False
        self.stacked: list[Tensor] | None = None

    def goes_on(self, i: int, carry: Tensors) -> bool:
        """Whether step i follows; also learns whether the bound alone forbids it."""
        loop = self.loop
        if self.count is not None and i >= self.count:
            return False
        if loop.cond is not None:
            holds = bool(loop.cond(*carry))
            if not (agreed(holds, torch.int32) if loop.options.sync else holds):
                return False
        if loop.bound is not None and i >= loop.bound:
            self.is_cut = True
            return False
        return True

    def rows(self, i: int) -> Tensors:
        if not self.xs:
            return ()
        row = self.loop.row(i)
        return tuple([x[row] for x in self.xs])

    def write(self, i: int, y: Tensors) -> None:
        """Puts a y into its row."""
        if not y:
            return
        if self.stacked is None:
            self.stacked = [x.new_zeros((self.loop.length or 0, *x.shape)) for x in y]
        row = self.loop.row(i)
        with torch.no_grad():
            for buffer, x in zip(self.stacked, y, strict=True):
                buffer[row] = x


def check_bound(loop: Loop, is_cut: bool) -> None:
    """Raises where the loop was cut off and the user wants to hear of it so."""
    if is_cut and loop.options.on_max_steps == "raise":
        assert loop.bound is not None, "it was reached"
        raise RuntimeError(bound_message(loop.name, loop.bound))


def agreed(value: int, dtype: torch.dtype) -> int:
    """The largest of the processes' values: they go on while one of them does."""
    # NCCL takes tensors on the process's GPU only.
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else "cpu"
    shared = torch.tensor(int(value), dtype=dtype, device=device)
    dist.all_reduce(shared, op=dist.ReduceOp.MAX)
    return int(shared)


def cut_off(xs: Sequence[Tensor]) -> Tensors:
    """The tensors without their graphs."""
    return tuple([x.detach() for x in xs])


def with_gradient(xs: Sequence[Tensor]) -> Tensors:
    """The same values as leaves of a new graph."""
    return tuple([x.detach().requires_grad_(is_differentiable(x)) for x in xs])


def apart(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Tensors:
    """The outputs, without their graphs, and copied where they share memory with an input or with each other."""
    taken = {address(x) for x in inputs}
    out = []
    for x in outputs:
        place = address(x)
        out.append(x.detach().clone() if place in taken else x.detach())
        taken.add(place)
    return tuple(out)


def address(x: Tensor) -> Any:
    """Where a tensor's memory lies; one without any of its own, such as a zero of forward mode, stands for itself."""
    try:
        return x.untyped_storage().data_ptr() or id(x)
    except RuntimeError:
        return id(x)


def pulled_back(
    outputs: Sequence[Tensor], cotangents: Sequence[Tensor | None], inputs: Sequence[Tensor]
) -> list[Tensor | None]:
    """The cotangents of those inputs that require a gradient; None where nothing reaches them."""
    pairs = [(x, c) for x, c in zip(outputs, cotangents, strict=True) if c is not None and x.requires_grad]
    wanted = [x for x in inputs if x.requires_grad]
    if not pairs or not wanted:
        return [None] * len(inputs)
    found = iter(torch.autograd.grad([x for x, _ in pairs], wanted, [c for _, c in pairs], allow_unused=True))
    return [next(found) if x.requires_grad else None for x in inputs]


def added(total: Tensor | None, more: Tensor | None) -> Tensor | None:
    if more is None:
        return total
    return more if total is None else total + more
