"""Which tensors a step closes over, found exactly: by the edges of its graph that leave it.

The states that a step starts from are cut off from the graph, so whatever else its results depend on lies behind such
an edge: a parameter, or a tensor that was computed before the loop. A node's number tells whether it was made before
the step. For a parameter the edge tells the tensor itself; for another one it tells where it comes from, and the
tensor is found among those that the functions close over (`searching`), or by running the step once more while
somebody watches what its operations read.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dynloop.errors import DerivativeError
from dynloop.on_torch import engine
from dynloop.on_torch.searching import Found
from dynloop.on_torch.substitution import Witness


class Captured:
    """The tensors that a gradient reaches through the steps of a loop; a search's are there from the start.

    is_apart: some of them may depend on others, so that a step is to be taped on copies of them.
    """

    def __init__(self, name: str, found: Found) -> None:
        self.name = name
        self.found = found
        self.tensors: list[Tensor] = []
        self.read: set[int] = set()
        self.edges: dict[tuple[Any, int], Tensor] = {}
        self.variables: set[int] = set()
        for x in found.learnt:
            self.add(x)

    @property
    def is_apart(self) -> bool:
        return bool(self.edges) and len(self.tensors) > 1

    def add(self, x: Tensor) -> None:
        if x.is_leaf:
            if id(x) in self.variables:
                return
            self.variables.add(id(x))
        else:
            if (x.grad_fn, x.output_nr) in self.edges:
                return
            self.edges[(x.grad_fn, x.output_nr)] = x
        self.tensors.append(x)

    def look(self, outputs: Sequence[Tensor], since: int, again: Callable[[], Any]) -> None:
        """Finds what the step that made these outputs closes over.

        since: the number of the first node that it may have made.   again: runs the step once more, without a trace.
        """
        stack = []
        for x in outputs:
            if x.requires_grad:
                if x.grad_fn is None:
                    self.add(x)
                elif engine.sequence_number(x.grad_fn) < since or (x.grad_fn, x.output_nr) in self.edges:
                    self.add(x)
                    self.read.add(id(self.edges[(x.grad_fn, x.output_nr)]))
                else:
                    stack.append(x.grad_fn)
                if x.grad_fn is None:
                    self.read.add(id(x))
        seen = set(stack)
        while stack:
            for node, at in stack.pop().next_functions:
                if node is None or node in seen:
                    continue
                if type(node) is engine.AccumulateGrad:
                    seen.add(node)
                    self.add(node.variable)
                    self.read.add(id(node.variable))
                elif (node, at) in self.edges:
                    self.read.add(id(self.edges[(node, at)]))
                elif engine.sequence_number(node) < since:
                    self.find(node, at, again)
                    self.read.add(id(self.edges[(node, at)]))
                else:
                    seen.add(node)
                    stack.append(node)

    def find(self, node: Any, at: int, again: Callable[[], Any]) -> None:
        """The tensor that comes from this output of a node."""
        with torch.enable_grad(), Witness() as witness:
            again()
        for x in witness.seen.values():
            if x.requires_grad and x.grad_fn is node and x.output_nr == at:
                self.add(x)
                return
        raise DerivativeError(
            f"{self.name}: a step reads a tensor computed before the loop by {node.name()}, and nothing tells which; "
            "let body or cond close over it by name, or put it into the carry"
        )
