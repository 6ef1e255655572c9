"""Leaves: what may be one, and the tensor that it becomes."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dynloop.carry import Leaf
from dynloop.errors import CarryError, DynloopError
from dynloop.on_torch.structure import name_of

NUMBERS = (bool, int, float, complex)
ARRAYS = (np.ndarray, np.generic)


def as_tensor(
    name: str, label: str, x: Any, where: str, device: torch.device | None, error: type[DynloopError] = CarryError
) -> Tensor:
    """`x`, called `label`, as a tensor; `where` says who gave it, and `device` where it goes if it is none yet."""
    if isinstance(x, Tensor):
        return x
    if not isinstance(x, NUMBERS + ARRAYS):
        raise error(
            f"{name}: {label}{where} is {type(x).__name__} ({x!r}): every leaf must be an array or a number. "
            "Close over what is neither, or make it a static field of its pytree."
            + (f" {_FOREIGN}" if hasattr(x, "__dlpack__") else "")
        )
    try:
        # A copy: whoever changes the array in place later must not change a state.
        return torch.tensor(x, device=device)
    except (TypeError, RuntimeError, OverflowError, ValueError) as cause:
        raise error(f"{name}: {label}{where} is not an array PyTorch can hold: {cause}") from cause


_FOREIGN = "An array of another library becomes a tensor by torch.from_dlpack(...)."


def as_leaf(x: Any, like: Tensor, name: str, label: str, where: str) -> Tensor:
    """What body returned in the place of `like`: a number takes the dtype of the leaf, if that holds such numbers."""
    if isinstance(x, NUMBERS) and torch.result_type(like, x) == like.dtype:
        return torch.tensor(x, dtype=like.dtype, device=like.device)
    return as_tensor(name, label, x, where, like.device)


def device_of(*several: Any) -> torch.device | None:
    """The device of the first tensor."""
    for leaves in several:
        for x in leaves:
            if isinstance(x, Tensor):
                return x.device
    return None


def described(path: str, x: Tensor) -> Leaf:
    return Leaf(path, tuple(x.shape), name_of(x.dtype))


def in_words(x: Any) -> str:
    """A leaf's dtype and shape."""
    return f"{name_of(x.dtype)}{list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
