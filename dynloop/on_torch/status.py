"""Why a loop stopped, as far as its last carry tells: did the condition read NaN?"""

import torch
from torch import Tensor

from dynloop.on_torch.structure import Loop, Tensors, is_differentiable
from dynloop.on_torch.substitution import read_by


def nan_of(loop: Loop, carry: Tensors) -> Tensor:
    """Whether a floating leaf that the condition reads is NaN."""
    if loop.cond is None:
        return torch.tensor(False)
    read = [torch.isnan(x.detach()).any().cpu() for x in read_by(loop.cond, carry) if is_differentiable(x)]
    return torch.stack(read).any() if read else torch.tensor(False)
