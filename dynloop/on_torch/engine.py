"""What PyTorch's automatic differentiation keeps to itself, and this backend asks it: all of its names in one file.

Seen on torch 2.13. `tests/on_torch/test_engine.py` fails loudly where one of them moves.
"""

import sys
import warnings
from typing import Any

import torch
from torch import Tensor

from dynloop.errors import BackendError
from dynloop.result import Result

WORKS_WITH = "torch 2.13"

# Its names are made in C++, and no stub knows them.
C: Any = torch._C
try:
    from torch._functorch import eager_transforms
    from torch._subclasses.fake_tensor import DataDependentOutputException as DataDependentOutputException
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
    from torch.autograd import forward_ad
    from torch.autograd.grad_mode import _unsafe_preserve_version_counter
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils import _pytree

    for module, names in (
        (C._autograd, ("_get_sequence_nr", "_get_current_graph_task_keep_graph")),
        (C._functorch, ("is_functorch_wrapped_tensor", "get_dynamic_layer_stack_depth", "get_unwrapped")),
        (C._functorch, ("is_batchedtensor",)),
        (C._functorch, ("unwrap_if_dead",)),
        (C, ("_are_functorch_transforms_active", "DisableTorchFunction")),
        (C._functorch, ("get_inplace_requires_grad_allowed", "set_inplace_requires_grad_allowed")),
        (eager_transforms, ("JVP_NESTING",)),
        (forward_ad, ("_current_level", "_set_fwd_grad_enabled", "_maybe_load_decompositions")),
    ):
        for name in names:
            getattr(module, name)
except (ImportError, AttributeError) as error:
    raise BackendError(
        f"dynloop reads what PyTorch {torch.__version__} has no more, or in another place ({error}); it works with "
        f"{WORKS_WITH}, so install that"
    ) from error

DECOMPOSITIONS = "torch._decomp.decompositions_for_jvp"
# The number of every node that gathers the gradient of a leaf of the graph, since it is to run first.
OF_LEAVES = 2**64 - 1


def parts_of_result(result: Result) -> tuple[list[Any], None]:
    """Without ys if there are none, since None is a leaf there, and a batch has none but tensors."""
    return [result.carry, result.steps, result.status, *([] if result.ys is None else [result.ys])], None


# A function under `torch.vmap` may return one.
_pytree.register_pytree_node(
    Result,
    parts_of_result,
    lambda parts, _: Result(*parts),
    serialized_type_name="dynloop.Result",
)


def next_sequence_number() -> int:
    """The number that the next node of the graph will have, in this thread; later nodes have greater ones."""
    return C._autograd._get_sequence_nr()


def sequence_number(node: Any) -> int:
    return node._sequence_nr()


def variable_of(node: Any) -> Tensor | None:
    """The tensor for which a node gathers the gradient, if it is such a node."""
    return node.variable if node._sequence_nr() == OF_LEAVES else None


def is_graph_kept() -> bool:
    """Inside of a backward pass: may the same graph be run backward again?"""
    return C._autograd._get_current_graph_task_keep_graph()


def is_transforming() -> bool:
    """Whether a transformation of `torch.func` or a level of forward mode is at work."""
    return C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def is_wrapped(x: Tensor) -> bool:
    """Whether a transformation has made something of its own of the tensor, such as one lane's view of a batch."""
    return C._functorch.is_functorch_wrapped_tensor(x)


def is_batched(x: Tensor) -> bool:
    """Whether it is one lane's view of a batch, on the innermost level."""
    return C._functorch.is_batchedtensor(x)


def depth() -> int:
    """How many transformations are at work."""
    return C._functorch.get_dynamic_layer_stack_depth()


def unwrapped(x: Tensor) -> Tensor:
    """What a transformation made something of its own of."""
    return C._functorch.get_unwrapped(x)


def alive(x: Tensor) -> Tensor:
    """The tensor, or what a transformation that is over had wrapped."""
    return C._functorch.unwrap_if_dead(x)


def is_at_hand(x: Tensor) -> bool:
    """Whether Python may look at the value."""
    return not torch.compiler.is_compiling() and not is_wrapped(x)


def has_tangent(x: Tensor) -> bool:
    """Whether forward mode, without a transformation, has given the tensor a tangent."""
    if forward_ad._current_level < 0 or depth() or is_wrapped(x):
        return False
    with C.DisableTorchFunction():
        return forward_ad.unpack_dual(x).tangent is not None


def required(x: Tensor) -> Tensor:
    """The tensor, which requires a gradient from here on, on the innermost level of transformations."""
    before = C._functorch.get_inplace_requires_grad_allowed()
    C._functorch.set_inplace_requires_grad_allowed(True)
    try:
        return x.requires_grad_()
    finally:
        C._functorch.set_inplace_requires_grad_allowed(before)


def forward_mode_ready() -> None:
    """Loads what PyTorch loads at the first use of its forward mode, where it warns of itself."""
    if DECOMPOSITIONS not in sys.modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            forward_ad._maybe_load_decompositions()


def pushed_forward(f: Any, primals: tuple[Tensor, ...], tangents: tuple[Tensor, ...]) -> Any:
    """Of a function that returns (tensors, others): the tensors, their tangents, and the others.

    As `torch.func.jvp`, which cannot begin where forward mode is at work without a transformation. There the level that
    is at work serves again; whatever has tangents on it is an argument here.
    """
    forward_mode_ready()
    if forward_ad._current_level < 0 or eager_transforms.JVP_NESTING:
        return torch.func.jvp(f, primals, tangents, has_aux=True)
    with forward_ad._set_fwd_grad_enabled(True):
        bare = [forward_ad.unpack_dual(x).primal for x in primals]
        out, others = f(*map(forward_ad.make_dual, bare, tangents))
        pairs = [forward_ad.unpack_dual(x) for x in out]
    found = tuple([torch.zeros_like(p.primal) if p.tangent is None else p.tangent for p in pairs])
    return tuple([p.primal for p in pairs]), found, others


def without_tangents() -> Any:
    """A context in which operations give no tangents on the innermost level of forward mode."""
    return forward_ad._set_fwd_grad_enabled(False)


def modes() -> list[Any]:
    """The torch-function modes at work in this thread, the innermost last."""
    return list(_get_current_function_mode_stack())


def keeping_version(x: Tensor) -> Any:
    """A context in which a change in place does not count as one."""
    return _unsafe_preserve_version_counter(x)
