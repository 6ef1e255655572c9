"""A loop without a step returns what it was given: the memory of both must not be used again as if it were two.

Inductor's Python program copies the carry of a loop that takes no step. Its C++ program (`cpp_wrapper`, and what is
compiled ahead of time) copies nothing, and takes carry and result for two places all the same: seen on torch 2.13,
where torch.while_loop too gives wrong numbers then. So in a C++ program no loop's carry or result is used again for
anything else, and a carry that is an argument of the program is copied before the loop.
"""

from collections.abc import Sequence
from typing import Any

import torch

from dynloop.on_torch.internals import SubgraphLowering, V, ir, lowerings, register_lowering

plain_loop: Any = torch.ops.higher_order.while_loop
lower_plain_loop: Any = lowerings[plain_loop]


def is_copied_by_program() -> bool:
    return not V.graph.cpp_wrapper


def own(carries: Sequence[Any]) -> list[Any]:
    """The carries in memory, with copies of those that belong to the caller of the program."""
    made = [ir.WhileLoop.realize_input(x) for x in carries]
    if is_copied_by_program() or isinstance(V.graph, SubgraphLowering):
        return made
    return [ir.ExternKernel.copy_input(x) if is_argument(x) else x for x in made]


def is_argument(x: Any) -> bool:
    return is_tensor(x) and x.get_name() in V.graph.graph_inputs


def is_tensor(x: Any) -> bool:
    return isinstance(x, ir.IRNode) and not isinstance(x, ir.ShapeAsConstantBuffer)


def keep(loop: ir.WhileLoop) -> None:
    """Keeps the loop's carries and results from being used again."""
    if is_copied_by_program():
        return
    for x in (*(loop.carried_inputs or ()), *(loop.outputs or ())):
        if is_tensor(x):
            V.graph.never_reuse_buffers.add(x.get_name())


def lower(cond: Any, body: Any, carries: Any, inputs: Any, **options: Any) -> Any:
    """torch.while_loop, as inductor lowers it, with what its C++ program leaves out."""
    out = lower_plain_loop(cond, body, tuple(own(carries)), tuple(inputs), **options)
    loop = next(made for made in reversed(V.graph.operations) if isinstance(made, ir.WhileLoop))
    keep(loop)
    return out


register_lowering(plain_loop, type_promotion_kind=None)(lower)
