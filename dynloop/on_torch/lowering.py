"""How inductor compiles a storing loop: as its while loop, whose body writes to buffers that it is given.

Inductor's while loop lets a body write to what is no carry, but does not say so to what comes after: a reader that uses
no other result of the loop may run before it. Here each buffer that the body fills is registered as changed, so readers
wait. Inside the loops inductor's checks of sizes and alignment are left out: they would cost more at every
iteration than a small body does, and what they check was checked when the graph was traced.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from dynloop.on_torch import sharing
from dynloop.on_torch.internals import SubgraphLowering, TracingContext, V, inductor_config, ir, register_lowering
from dynloop.on_torch.storing_loop import storing_loop

aten = torch.ops.aten

# Inductor warns of every operator with functions as arguments that is not its own, and treats it rightly.
warnings.filterwarnings("ignore", message=f"Please add support for subgraph args to function {storing_loop.name()}")


class StoringLoop(ir.WhileLoop):
    """The loop in inductor's program; the buffers are the first of its additional inputs."""

    def codegen(self, wrapper: Any) -> None:
        with inductor_config.patch(size_asserts=False, alignment_asserts=False):
            super().codegen(wrapper)


def lower(cond: Any, body: Any, carries: Any, inputs: Any, *, buffers: int) -> list[Any]:
    """The loop's results: its final carries, and the buffers, which are those that it was given."""
    node: Any = V.graph.current_node
    fakes = [x.meta["val"] for x in node.args[2]], [meta(x) for x in node.args[3]]
    n = len(carries)
    carries = exact(ir.WhileLoop._clone_aliased_inputs(sharing.own(carries)), fakes[0])
    homes = own_memory([writable(x, fx) for x, fx in zip(inputs[:buffers], node.args[3], strict=False)])
    given = exact([*homes, *(ir.WhileLoop.realize_input(x) for x in inputs[buffers:])], fakes[1])
    for subgraph in (cond, body):
        compile_subgraph(subgraph, [*node.args[2], *node.args[3]], [*fakes[0], *fakes[1]])
    graph: Any = body.graph_module.graph
    (output,), placeholders = graph.find_nodes(op="output"), graph.find_nodes(op="placeholder")
    is_filled = [out is not home for out, home in zip(output.args[0][n:], placeholders[n:], strict=False)]
    body.graph.graph_outputs = exact(body.graph.graph_outputs[:n], fakes[0])
    if ir._has_aliased_buffers(body.graph.graph_outputs):
        raise AssertionError(f"two carries share their memory: {body.graph.graph_outputs}")
    device: Any = next(x.get_device() for x in (*carries, *given) if isinstance(x, ir.IRNode))
    loop = StoringLoop(
        carried_inputs=carries,
        additional_inputs=given,
        cond_subgraph=cond,
        body_subgraph=body,
        layout=ir.MultiOutputLayout(device=device),
        unbacked_bindings=None,
        stack_output=False,
    )
    loop.outputs = [result(loop, i, x) for i, x in enumerate(body.graph.graph_outputs)]
    loop.mutation_outputs = [
        ir.MutationOutput(x.get_layout(), x, loop) for x, filled in zip(given, is_filled, strict=False) if filled
    ]
    sharing.keep(loop)
    return [ir.WhileLoop._maybe_wrap_as_tensor_box(x) for x in (*loop.outputs, *given[:buffers])]


def meta(x: Any) -> Any:
    return x.meta["val"] if isinstance(x, torch.fx.Node) else x


def exact(xs: Sequence[Any], fakes: Sequence[Any]) -> list[Any]:
    """The tensors with the very strides that their graph says."""

    def one(x: Any, fake: Any) -> Any:
        if not isinstance(fake, torch.Tensor):
            return x
        box = ir.WhileLoop._maybe_wrap_as_tensor_box(x)
        return ir.ExternKernel.require_exact_strides(box, fake.stride(), allow_padding=False)

    return [one(x, fake) for x, fake in zip(xs, fakes, strict=True)]


def writable(x: Any, node: Any) -> Any:
    """A buffer that the loop may write to: x itself, unless somebody else has a use for it."""
    if node.target is aten.clone.default and is_donated(node.args[0]):
        # What autograd saved for this very program is needed no more.
        return ir.WhileLoop.realize_input(V.graph.env[node.args[0]])
    # Inside a loop, what a program gives to an inner loop as a buffer is a buffer of the outer one.
    is_foreign = node.op == "placeholder" and not isinstance(V.graph, SubgraphLowering)
    is_read_later = any(V.graph.current_node < user for user in node.users)
    return ir.ExternKernel.copy_input(x) if is_foreign or is_read_later else ir.WhileLoop.realize_input(x)


def is_donated(node: Any) -> bool:
    if node.op != "placeholder" or len(node.users) > 1 or isinstance(V.graph, SubgraphLowering):
        return False
    box: Any = V.graph.env[node]
    if not isinstance(box, ir.TensorBox):
        return False
    home: Any = box.data
    return isinstance(home.data, ir.DonatedBuffer)


def own_memory(homes: list[Any]) -> list[Any]:
    """The buffers, no two of them in one place."""
    seen, own = set(), []
    for x in homes:
        name = x.get_name()
        own.append(ir.ExternKernel.copy_input(x) if name in seen else x)
        seen.add(name)
    return own


def compile_subgraph(subgraph: Any, nodes: list[Any], fakes: list[Any]) -> None:
    subgraph.graph = V.graph.make_subgraph(gm=subgraph.graph_module, example_inputs=nodes, subgraph_name=subgraph.name)
    with nothing_donated(), V.set_graph_handler(subgraph.graph):
        # It was made before, as inductor makes it.
        subgraph.graph.bw_donated_idxs = None
        subgraph.graph.run(*fakes)


@contextmanager
def nothing_donated() -> Iterator[None]:
    """Inductor takes what autograd gives away to a program, by its number among the arguments, for given away to every
    function in the program too (seen on torch 2.13); so a loop would overwrite what it only reads.
    """
    context = TracingContext.try_get()
    metadata: Any = context.fw_metadata if context else None
    donated = metadata.bw_donated_idxs if metadata else None
    if metadata:
        metadata.bw_donated_idxs = None
    try:
        yield
    finally:
        if metadata:
            metadata.bw_donated_idxs = donated


def result(loop: StoringLoop, place: int, x: Any) -> Any:
    layout = ir.FixedLayout(
        device=x.get_device(),
        dtype=x.get_dtype(),
        size=x.get_size(),
        stride=x.get_stride(),
        offset=x.get_layout().offset,
    )
    return ir.MultiOutput(layout, loop, [(list, place)])


register_lowering(storing_loop, type_promotion_kind=None)(lower)
