"""How a running loop tells its observers of a step: the carry goes to them as NumPy arrays."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dynloop.observers import told
from dynloop.on_torch.trees import paths_of, unflatten
from dynloop.settings import Options


def teller(options: Options, tree: Any) -> Callable[[int, Sequence[Tensor]], None] | None:
    """The function that tells of a step; None where nobody watches the steps."""
    observers = told(options.observers)
    if not observers:
        return None
    is_read = any(observer.reads_carry for observer in observers)

    def tell(step: int, carry: Sequence[Tensor]) -> None:
        seen = [as_numpy(x) for x in carry] if is_read else []
        named = list(zip(paths_of(tree), seen, strict=True)) if is_read else []
        for observer in observers:
            observer.see(options.name, step, unflatten(tree, seen) if is_read else None, named)

    return tell


def as_numpy(x: Tensor) -> np.ndarray:
    """A copy; what NumPy has no dtype for, as float32."""
    x = x.detach().cpu().resolve_conj()
    if x.dtype.is_floating_point and x.dtype not in (torch.float16, torch.float32, torch.float64):
        x = x.float()
    return x.numpy().copy()
