"""`storing_while_loop`: a while loop that fills buffers, row by row and in place.

torch's while_loop has carries only, and the compiler copies a carry whole at each step that changes a row of it. This
operator takes buffers besides: as values they go in and come out, like carries, so every pass over a graph sees
who writes and who reads; but the loop owns them, and once its body has been traced each write to a row happens
where the buffer lies. So nobody may read a buffer that was given to a loop: its result has taken its place.

Inner loops may fill the buffers of outer ones, at any depth: a buffer goes in and out of them by the same rule.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dynloop.on_torch import internals
from dynloop.on_torch.internals import DispatchKey, FakeTensorMode, HigherOrderOperator, ProxyTorchDispatchMode

aten = torch.ops.aten


def put(buffers: Sequence[Tensor], values: Sequence[Tensor], row: Tensor) -> list[Tensor]:
    """Write a value to a row of each buffer; in place, once traced as part of the loop's body."""
    return [aten.index_put.default(b, [row], x) for b, x in zip(buffers, values, strict=True)]


def get(buffers: Sequence[Tensor], row: Tensor) -> list[Tensor]:
    return [aten.index.Tensor(b, [row]) for b in buffers]


class StoringLoop(HigherOrderOperator):
    """cond: (*carries, *buffers, *constants) -> bool[].   body: the same -> (*carries, *buffers).

    Returns the final carries and the filled buffers.
    """

    def __init__(self) -> None:
        super().__init__("dynloop_storing_while_loop")

    def __call__(self, cond: Any, body: Any, carries: Any, inputs: Any, /, *, buffers: int) -> Any:
        """inputs: the buffers, and then the constants."""
        return super().__call__(cond, body, tuple(carries), tuple(inputs), buffers=buffers)


storing_loop = StoringLoop()


Cond = Callable[[list[Tensor], list[Tensor], list[Any]], Tensor]
Step = Callable[[list[Tensor], list[Tensor], list[Any]], Any]


def run(
    cond: Cond, body: Step, carries: Sequence[Tensor], buffers: Sequence[Tensor], constants: Sequence[Any]
) -> tuple[list[Tensor], list[Tensor]]:
    """The loop, its functions being given (carries, buffers, constants): the final carries, and the buffers."""
    n, k = len(carries), len(buffers)
    functions = flat(cond, body, n, k)
    out = storing_loop(*functions, tuple(carries), (*buffers, *constants), buffers=k)
    return list(out[:n]), list(out[n:])


def run_carrying(
    cond: Cond, body: Step, carries: Sequence[Tensor], buffers: Sequence[Tensor], constants: Sequence[Any]
) -> tuple[list[Tensor], list[Tensor]]:
    """The same by torch's own loop, which copies the buffers at each step."""
    n, k = len(carries), len(buffers)
    out = internals.while_loop_op(*flat(cond, body, n, k), (*carries, *buffers), tuple(constants))
    return list(out[:n]), list(out[n:])


def flat(cond: Cond, body: Step, carries: int, buffers: int) -> tuple[Callable[..., Tensor], Callable[..., Any]]:
    """The functions with flat arguments."""
    n, end = carries, carries + buffers

    def flat_cond(*given: Any) -> Tensor:
        return cond(list(given[:n]), list(given[n:end]), list(given[end:]))

    def flat_body(*given: Any) -> tuple[Tensor, ...]:
        new, filled = body(list(given[:n]), list(given[n:end]), list(given[end:]))
        return (*new, *filled)

    return flat_cond, flat_body


@storing_loop.py_impl(DispatchKey.CompositeExplicitAutograd)
def _dense(cond: Any, body: Any, carries: Any, inputs: Any, *, buffers: int) -> tuple[Tensor, ...]:
    final, n = carries, len(carries)
    while cond(*final, *inputs):
        # Once traced, the body fills the buffers that it is given; before, it returns others.
        out = body(*final, *inputs)
        final, inputs = out[:n], (*out[n:], *inputs[buffers:])
    # A loop that takes no step returns nothing that it was given.
    return (*(x.clone() for x in final), *inputs[:buffers]) if final is carries else (*final, *inputs[:buffers])


@storing_loop.py_impl(DispatchKey.Autograd)
def _below_autograd(*args: Any, **static: Any) -> Any:
    # Programs are written below autograd, which their loops' derivatives are not taken from.
    with internals._AutoDispatchBelowAutograd():
        return storing_loop(*args, **static)


@storing_loop.py_impl(FakeTensorMode)
def _fake(mode: Any, cond: Any, body: Any, carries: Any, inputs: Any, *, buffers: int) -> tuple[Tensor, ...]:
    with mode:
        return tuple(like(x) for x in (*carries, *inputs[:buffers]))


def like(x: Tensor) -> Tensor:
    return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)


@storing_loop.py_functionalize_impl
def _functionalize(ctx: Any, cond: Any, body: Any, carries: Any, inputs: Any, *, buffers: int) -> Any:
    unwrapped = ctx.unwrap_tensors(carries), ctx.unwrap_tensors(inputs)
    with ctx.redispatch_to_next():
        cond, body = [ctx.functionalize(internals._maybe_run_with_interpreter(f)) for f in (cond, body)]
        return ctx.wrap_tensors(storing_loop(cond, body, *unwrapped, buffers=buffers))


@storing_loop.py_impl(ProxyTorchDispatchMode)
def _trace(mode: Any, cond: Any, body: Any, carries: Any, inputs: Any, *, buffers: int) -> Any:
    def traced(function: Any) -> torch.fx.GraphModule:
        # A carry that is a constant before the loop is none in it.
        given = [varying(x) for x in carries]
        return internals.reenter_make_fx(function)(*given, *inputs)

    with internals.disable_proxy_modes_tracing():
        graphs = traced(cond), write_in_place(traced(body), len(carries), buffers)
    root = mode.tracer.root
    number = 0
    while hasattr(root, f"storing_loop_body_{number}"):
        number += 1
    for name, graph in zip(("cond", "body"), graphs, strict=True):
        root.register_module(f"storing_loop_{name}_{number}", graph)
    args = (*graphs, tuple(carries), tuple(inputs))
    proxies = internals.tree_map(mode.tracer.unwrap_proxy, args)
    proxy = mode.tracer.create_proxy("call_function", storing_loop, proxies, {"buffers": buffers})
    out = storing_loop(*args, buffers=buffers)
    return internals.track_tensor_tree(out, proxy, constant=None, tracer=mode.tracer)


def varying(x: Any) -> Any:
    if not isinstance(x, Tensor):
        return x
    x = x.clone()
    if getattr(x, "constant", None) is not None:
        x.constant = None  # pyright: ignore[reportAttributeAccessIssue]
    return x


def write_in_place(graph: torch.fx.GraphModule, carries: int, buffers: int) -> torch.fx.GraphModule:
    """The body's graph with every write to a row done in its buffer.

    The buffers stay among its results, so that what fills them is not taken for dead code.
    """
    nodes: Any = graph.graph
    homes = nodes.find_nodes(op="placeholder")[carries : carries + buffers]
    (output,) = nodes.find_nodes(op="output")
    for home, node in zip(homes, output.args[0][carries:], strict=True):
        while node is not home:
            # The second, where a graph is traced once more.
            if node.target in (aten.index_put.default, aten.index_put_.default):
                node.target = aten.index_put_.default
                node = node.args[0]
            else:
                # An inner loop's buffer.
                assert node.target is operator.getitem, node.format_node()
                loop, place = node.args
                assert loop.target is storing_loop, loop.format_node()
                node = loop.args[3][place - len(loop.args[2])]
    graph.recompile()
    return graph
