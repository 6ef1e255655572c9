"""Ys of a scan that takes no step: zeros of the shapes that its step would stack, which it is asked for without values.

The step runs once on tensors that have shapes and no entries (`FakeTensorMode`).
"""

import torch
from torch import Tensor

from dynloop.on_torch.engine import FakeTensorMode
from dynloop.on_torch.structure import Loop, Tensors


def nothing_stacked(loop: Loop, carry: Tensors, xs: Tensors) -> list[Tensor]:
    """Zeros for every y."""
    if loop.length is None:
        return []
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        made = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in carry]
        rows = [torch.empty(x.shape[1:], dtype=x.dtype, device=x.device) for x in xs]
        y = loop.body(0, tuple(made), tuple(rows))[1]
        shapes = [(tuple(x.shape), x.dtype, x.device) for x in y]
    return [torch.zeros((loop.length, *shape), dtype=dtype, device=device) for shape, dtype, device in shapes]
