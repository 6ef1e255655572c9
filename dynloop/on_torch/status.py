"""Why a loop stopped, as far as its last carry tells: did the condition read NaN?"""

import torch
from torch import Tensor

from dynloop.on_torch.structure import Loop, Tensors, is_differentiable
from dynloop.on_torch.substitution import read_by


def nan_of(loop: Loop, carry: Tensors) -> Tensor:
    """Whether a floating leaf that the condition reads is NaN."""
    if loop.cond is None:
        return torch.tensor(False)
    is_nan = torch.tensor(False)
    for x in read_by(loop.cond, carry):
        if is_differentiable(x):
            found = torch.isnan(x.detach()).any()
            is_nan = is_nan.to(found.device) | found
    return is_nan
