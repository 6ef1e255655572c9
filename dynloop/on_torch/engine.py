"""What PyTorch's automatic differentiation keeps to itself, and this backend asks it: all of its names in one file.

Seen on torch 2.13. `tests/on_torch/test_engine.py` fails loudly where one of them moves.
"""

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode as _FakeTensorMode
from torch.autograd import forward_ad
from torch.overrides import _get_current_function_mode_stack

# Tensors with shapes and no entries, and operations on them.
FakeTensorMode = _FakeTensorMode
AccumulateGrad = torch._C._functions.AccumulateGrad


def next_sequence_number() -> int:
    """The number that the next node of the graph will have, in this thread; later nodes have greater ones."""
    return torch._C._autograd._get_sequence_nr()


def sequence_number(node: Any) -> int:
    return node._sequence_nr()


def is_graph_kept() -> bool:
    """Inside of a backward pass: may the same graph be run backward again?"""
    return torch._C._autograd._get_current_graph_task_keep_graph()


def is_transforming() -> bool:
    """Whether a transformation of `torch.func` or a level of forward mode is at work."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def is_wrapped(x: Tensor) -> bool:
    """Whether a transformation has made something of its own of the tensor, such as one lane's view of a batch."""
    return torch._C._functorch.is_functorch_wrapped_tensor(x)


def depth() -> int:
    """How many transformations are at work."""
    return torch._C._functorch.get_dynamic_layer_stack_depth()


def unwrapped(x: Tensor) -> Tensor:
    """What a transformation made something of its own of."""
    return torch._C._functorch.get_unwrapped(x)


def alive(x: Tensor) -> Tensor:
    """The tensor, or what a transformation that is over had wrapped."""
    return torch._C._functorch.unwrap_if_dead(x)


def is_at_hand(x: Tensor) -> bool:
    """Whether Python may look at the value."""
    return not torch.compiler.is_compiling() and not is_wrapped(x)


def has_tangent(x: Tensor) -> bool:
    return forward_ad._current_level >= 0 and not is_wrapped(x) and forward_ad.unpack_dual(x).tangent is not None


def modes() -> list[Any]:
    """The torch-function modes at work in this thread, the innermost last."""
    return list(_get_current_function_mode_stack())


def keeping_version(x: Tensor) -> Any:
    """A context in which a change in place does not count as one."""
    return torch.autograd._unsafe_preserve_version_counter(x)
