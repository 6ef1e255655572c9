"""Everything of torch that is private and that the compiled loops need, seen on torch 2.13.0.

An operator whose arguments are functions has rules for each layer of torch.compile: Dynamo traces the functions,
functionalization and the proxy tracer trace them again. What those layers offer for it lives in private modules, so
all of it is imported here; `tests/on_torch/test_internals.py` fails loudly where it moves.
"""

from typing import Any

from dynloop.errors import BackendError

try:
    import torch
    from torch._C import DispatchKey, _AutoDispatchBelowAutograd
    from torch._C._functorch import (
        TransformType,
        _jvp_decrement_nesting,
        _jvp_increment_nesting,
        _unwrap_for_grad,
        _wrap_for_grad,
    )
    from torch._dynamo.utils import _make_inlined, unpack_iterable
    from torch._dynamo.variables.builder import wrap_fx_proxy
    from torch._dynamo.variables.constant import ConstantVariable
    from torch._dynamo.variables.higher_order_ops import (
        TorchHigherOrderOperatorVariable,
        _hop_name_to_variable_class,
        _merge_graph_inputs,
        discard_graph_changes,
        make_attr,
        speculate_subgraph,
    )
    from torch._dynamo.variables.lazy import LazyVariableTracker
    from torch._dynamo.variables.tensor import SymNodeVariable
    from torch._guards import TracingContext
    from torch._higher_order_ops.utils import (
        _hop_compile_and_call,
        _maybe_run_with_interpreter,
        check_input_alias_and_mutation,
        materialize_as_graph,
        reenter_make_fx,
    )
    from torch._higher_order_ops.while_loop import while_loop_op as _while_loop_op
    from torch._inductor import config as inductor_config
    from torch._inductor import ir
    from torch._inductor.graph import SubgraphLowering
    from torch._inductor.lowering import lowerings, register_lowering
    from torch._inductor.virtualized import V
    from torch._ops import HigherOrderOperator as _HigherOrderOperator
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, is_fake
    from torch._subclasses.functional_tensor import FunctionalTensor
    from torch.fx.experimental.proxy_tensor import (
        ProxyTorchDispatchMode,
        disable_proxy_modes_tracing,
        get_proxy_mode,
        track_tensor_tree,
    )
    from torch.utils._pytree import tree_map
except ImportError as error:
    raise BackendError(
        f"dynloop's compiled loops use parts of torch that may move between its versions, and one has moved: {error}\n"
        "  they are known to work with torch 2.13"
    ) from error

# Its rules are set by decorators that its types do not tell of.
HigherOrderOperator: Any = _HigherOrderOperator
while_loop_op: Any = _while_loop_op

jvp_increment_nesting: Any = _jvp_increment_nesting
jvp_decrement_nesting: Any = _jvp_decrement_nesting
enter_dual_level: Any = torch._C._enter_dual_level
exit_dual_level: Any = torch._C._exit_dual_level
wrap_for_grad: Any = _wrap_for_grad
unwrap_for_grad: Any = _unwrap_for_grad

assert_async: Any = torch._assert_async  # pyright: ignore[reportPrivateImportUsage]

KeySets = tuple[torch._C.DispatchKeySet, torch._C.DispatchKeySet]


def dispatch_keys() -> KeySets:
    """The dispatch keys that this thread includes and excludes."""
    return torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()


__all__ = [
    "ConstantVariable",
    "DispatchKey",
    "V",
    "FakeTensor",
    "FakeTensorMode",
    "FunctionalTensor",
    "HigherOrderOperator",
    "KeySets",
    "LazyVariableTracker",
    "ProxyTorchDispatchMode",
    "SubgraphLowering",
    "SymNodeVariable",
    "TracingContext",
    "TransformType",
    "TorchHigherOrderOperatorVariable",
    "_AutoDispatchBelowAutograd",
    "_hop_compile_and_call",
    "_hop_name_to_variable_class",
    "_make_inlined",
    "_maybe_run_with_interpreter",
    "_merge_graph_inputs",
    "assert_async",
    "check_input_alias_and_mutation",
    "disable_proxy_modes_tracing",
    "discard_graph_changes",
    "dispatch_keys",
    "enter_dual_level",
    "exit_dual_level",
    "get_proxy_mode",
    "make_attr",
    "inductor_config",
    "ir",
    "is_fake",
    "jvp_decrement_nesting",
    "jvp_increment_nesting",
    "lowerings",
    "materialize_as_graph",
    "reenter_make_fx",
    "register_lowering",
    "speculate_subgraph",
    "track_tensor_tree",
    "tree_map",
    "unpack_iterable",
    "unwrap_for_grad",
    "while_loop_op",
    "wrap_for_grad",
    "wrap_fx_proxy",
]
