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
    """The tensors that a gradient reaches through the steps of a loop; a search's are there from the start."""

    def __init__(self, name: str, found: Found) -> None:
        self.name = name
        self.found = found
        self.tensors: list[Tensor] = []
        self.read: set[int] = set()
        self.edges: dict[tuple[Any, int], Tensor] = {}
        self.variables: set[int] = set()
        # What a step is given and may take a gradient by, by id.
        self.given: set[int] = set()
        for x in found.learnt:
            self.add(x)

    def add(self, x: Tensor) -> Tensor:
        """The tensor, or the one that stands for the same place in the graph already."""
        if x.is_leaf:
            if id(x) not in self.variables:
                self.variables.add(id(x))
                self.tensors.append(x)
            return x
        place = (x.grad_fn, x.output_nr)
        if place not in self.edges:
            self.edges[place] = x
            self.tensors.append(x)
        return self.edges[place]

    def look(self, outputs: Sequence[Tensor], since: int, again: Callable[[], Any]) -> None:
        """Finds what the step that made these outputs closes over.

        since: the number of the first node that it may have made.   again: runs the step once more, without a trace.
        """
        stack, seen = [], set[Any]()
        for x in outputs:
            if not x.requires_grad:
                continue
            node = x.grad_fn
            if id(x) in self.given:
                continue
            if node is None or engine.sequence_number(node) < since:
                # It is closed over, and returned as it is.
                self.note(self.add(x))
            elif node not in seen:
                seen.add(node)
                stack.append(node)
        # This runs at every step, for every node: no function is called but those of the nodes.
        edges, pop, push, mark = self.edges, stack.pop, stack.append, seen.add
        while stack:
            for node, at in pop().next_functions:
                if node is None or node in seen:
                    continue
                number = node._sequence_nr()
                if number == engine.OF_LEAVES:
                    mark(node)
                    if id(node.variable) not in self.given:
                        self.note(self.add(node.variable))
                elif number < since or (edges and (node, at) in edges):
                    self.note(edges[node, at] if (node, at) in edges else self.find(node, at, again))
                else:
                    mark(node)
                    push(node)

    def note(self, x: Tensor) -> None:
        """A step has read it."""
        self.read.add(id(x))

    def find(self, node: Any, at: int, again: Callable[[], Any]) -> Tensor:
        """The tensor that comes from this output of a node."""
        with torch.enable_grad(), Witness() as witness:
            again()
        for x in witness.seen.values():
            if x.requires_grad and x.grad_fn is node and x.output_nr == at:
                return self.add(x)
        raise DerivativeError(
            f"{self.name}: a step reads a tensor computed before the loop by {node.name()}, and nothing tells which; "
            "let body or cond close over it by name, or put it into the carry"
        )
