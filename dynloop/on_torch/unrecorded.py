"""What a step computes under `torch.no_grad()`, where forward mode serves a gradient of a gradient.

To a tape it is a constant. Forward mode heeds no grad mode and would pass tangents on (PyTorch documents that for
`torch.no_grad`), so the second derivative would be that of another function than the first one. A torch-function mode
sees each operation, and takes away the tangent of what is computed with the grad mode off. Where the user's own forward
mode is at work, its tangents pass, as they would in the plain loop.
"""

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dynloop.errors import DerivativeError
from dynloop.on_torch import engine


class Unrecorded(TorchFunctionMode):
    """One level of forward mode; is_cutting: it serves a gradient of a gradient.

    is_deep: it is a level of reverse mode, and what is a constant there is one to every level around it.
    """

    def __init__(self, name: str, *, is_cutting: bool, is_deep: bool = False) -> None:
        super().__init__()
        self.name = name
        self.is_cutting = is_cutting
        self.is_deep = is_deep

    def __enter__(self) -> "Unrecorded":
        self.depth = engine.depth()
        # The innermost level deals with those around it too.
        self.levels = [mode.is_cutting for mode in engine.modes() if isinstance(mode, Unrecorded)]
        super().__enter__()
        return self

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Below that depth runs the inside of an autograd.Function, which has its own rule for tangents.
        if torch.is_grad_enabled() or engine.depth() < self.depth or not any((*self.levels, self.is_cutting)):
            return func(*args, **(kwargs or {}))
        if not any(self.levels) and not self.is_deep:
            with engine.without_tangents():
                return func(*args, **(kwargs or {}))
        if all((*self.levels, self.is_cutting)):
            out = func(*args, **(kwargs or {}))
            if not any(out is x for x in args):
                return constant(out)
        raise DerivativeError(
            f"{self.name}: a third derivative, or one in lanes, meets what a step computes under torch.no_grad(), in "
            "place or where forward and reverse mode are mixed, and cannot tell which derivatives pass; compute it "
            "without no_grad(), of x.detach()"
        )


def constant(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach()
    if type(value) in (tuple, list):
        return type(value)(map(constant, value))
    return value


def is_cutting() -> bool:
    """Whether a gradient of a gradient takes what is computed here for a constant."""
    levels = [mode.is_cutting for mode in engine.modes() if isinstance(mode, Unrecorded)]
    return any(levels) and not torch.is_grad_enabled()
