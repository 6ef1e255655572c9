"""One step of a compiled loop: the body, its vector-Jacobian product, and what a gradient needs of the state.

Both are graphs that torch's tracer makes of the body. From them follow

* which leaves of the state are *active*: those that depend on something a gradient is asked for. Since a leaf
  may become active only steps later, the active leaves are those that a step makes active, until no more are;
* which leaves are *kept*: those that the vector-Jacobian product reads, and those that these are computed from. A sum
  or a counter is in no buffer, and the recomputation leaves it out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dynloop.on_torch import internals
from dynloop.on_torch.arguments import Mask, cut, merge, pick


def is_differentiable(x: Any) -> bool:
    return isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())


@dataclass(frozen=True)
class Signature:
    """How the flat arguments of cond and body are laid out.

    cond: (*carries, *constants) -> (bool[],).   body: (*carries, *rows, *constants) -> (*carries, *ys).
    is_counted: the first carry is the number of steps so far, which body increases.
    """

    carries: int
    rows: int
    is_counted: bool

    @property
    def leaves(self) -> int:
        """Of the state: the carries beside the counter."""
        return self.carries - self.is_counted


class Body:
    """cond and body on (step, state, rows, constants)."""

    def __init__(self, cond: Callable[..., Any], body: Callable[..., Any], signature: Signature):
        self.cond, self.body, self.signature = cond, body, signature

    def holds(self, i: Tensor, state: Sequence[Tensor], constants: Sequence[Any]) -> Tensor:
        counter = (i,) if self.signature.is_counted else ()
        (holds,) = self.cond(*counter, *state, *constants)
        return holds

    def __call__(
        self, i: Tensor, state: Sequence[Tensor], rows: Sequence[Tensor], constants: Sequence[Any]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The next state, and the ys."""
        counter = (i,) if self.signature.is_counted else ()
        out = list(self.body(*counter, *state, *rows, *constants))[self.signature.is_counted :]
        return cut(out, self.signature.leaves)

    def activity(
        self, i: Tensor, state: Sequence[Tensor], rows: Sequence[Tensor], constants: Sequence[Any], active: Mask
    ) -> "Taped":
        """A step under the tape, with the leaves active that become so in any number of steps."""
        rows, constants = [[fresh(x, needs_grad(x)) for x in xs] for xs in (rows, constants)]
        with torch.enable_grad():
            while True:
                given = [fresh(x, a) for x, a in zip(state, active, strict=True)]
                new, ys = self(i, given, rows, constants)
                found = tuple(a or needs_grad(x) for a, x in zip(active, new, strict=True))
                if found == active:
                    return Taped(active, given, rows, constants, new, ys)
                active = found


@dataclass(frozen=True)
class Taped:
    active: Mask
    state: list[Tensor]
    rows: list[Tensor]
    constants: list[Any]
    new: list[Tensor]
    ys: list[Tensor]


def needs_grad(x: Any) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


def fresh(x: Any, needs: bool) -> Any:
    if not isinstance(x, Tensor):
        return x
    x = x.detach()
    return x.requires_grad_() if needs else x


class Step:
    """One step and its transpose, traced.

    active, kept: of the leaves of the state.   has_cotangent: of the ys.
    wanted_rows, wanted: the rows and the constants whose gradient is asked for.
    """

    def __init__(
        self,
        body: Body,
        keys: internals.KeySets,
        i: Tensor,
        state: Sequence[Tensor],
        rows: Sequence[Tensor],
        constants: Sequence[Any],
    ):
        self.body, n, r = body, len(state), len(rows)
        self.wanted_rows, self.wanted = ([needs_grad(x) for x in xs] for xs in (rows, constants))
        args = (i, *state, *rows, *constants)
        needed = [needs_grad(x) for x in args]

        def parts(flat: Sequence[Any]) -> Any:
            (i,), state, rows, constants = cut(flat, 1, n, r)
            return [i, state, rows, constants]

        plain = traced(body, keys, i, state, rows, constants)
        self.outputs = [node.meta["val"] for node in results_of(plain)]
        self.aliases = aliases(self.outputs, args)
        taped: list[Taped] = []

        def transposed(*flat: Any) -> tuple[Tensor, ...]:
            given, seeds = cut(flat, len(args))
            given = [fresh(x, needs) for x, needs in zip(given, needed, strict=True)]
            index, state, rows, constants = parts(given)
            tape = body.activity(index, state, rows, constants, tuple(needed[1 : n + 1]))
            taped.append(tape)
            pairs = zip([*tape.new, *tape.ys], seeds, strict=True)
            outs = [(out, seed) for out, seed in pairs if needs_grad(out)]
            inputs = [x for x in (*tape.state, *tape.rows, *tape.constants) if needs_grad(x)]
            found: Any = [None] * len(inputs)
            if outs:
                found = torch.autograd.grad(
                    [o for o, _ in outs], inputs, [s.to(o.dtype) for o, s in outs], allow_unused=True
                )
            pairs = zip(inputs, found, strict=True)
            return tuple(
                torch.zeros_like(x, memory_format=torch.contiguous_format) if g is None else owned(g) for x, g in pairs
            )

        self.transpose = internals.materialize_as_graph(
            transposed, (*args, *self.outputs), *keys, force_enable_grad=True
        )
        self.transpose.graph.eliminate_dead_code()
        self.transpose.recompile()
        self.active = taped[-1].active
        self.has_cotangent = [needs_grad(y) for y in taped[-1].ys]
        self.kept = self.leaves_read(plain)

    def leaves_read(self, plain: torch.fx.GraphModule) -> Mask:
        """The leaves that the transpose reads, and those from which a step computes them."""
        n = len(self.active)
        results = results_of(plain)[:n]
        inputs = plain.graph.find_nodes(op="placeholder")[1 : n + 1]
        places = {node: i for i, node in enumerate(inputs)}
        reads = [{places[x] for x in ancestors(node) if x in places} for node in results]
        needed = [bool(node.users) for node in self.transpose.graph.find_nodes(op="placeholder")[1 : n + 1]]
        todo = [i for i in range(n) if needed[i]]
        while todo:
            for i in reads[todo.pop()]:
                if not needed[i]:
                    needed[i] = True
                    todo.append(i)
        return tuple(needed)

    def advance(
        self, i: Tensor, state: Sequence[Tensor], rows: Sequence[Tensor], constants: Sequence[Any]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The next state and the ys, as tensors of their own, laid out as a loop's carries must be."""
        new, ys = self.body(i, state, rows, constants)
        flat = [owned(x) if a else x.contiguous() for x, a in zip([*new, *ys], self.aliases, strict=True)]
        return cut(flat, len(new))

    def turn(
        self,
        i: Tensor,
        state: Sequence[Tensor],
        rows: Sequence[Tensor],
        constants: Sequence[Any],
        seeds: Sequence[Tensor],
        y_seeds: Sequence[Tensor],
    ) -> list[list[Tensor]]:
        """The transposed step: cotangents of the active leaves before it, of the rows, and of the constants.

        seeds, y_seeds: cotangents of the active leaves after it, and of the ys that have one.
        """
        n = len(self.outputs) - len(self.has_cotangent)
        given = [*merge(self.active, seeds, list(state)), *merge(self.has_cotangent, y_seeds, self.outputs_of_ys(i))]
        assert len(given) == n + len(self.has_cotangent)
        out = self.transpose(i, *state, *rows, *constants, *given)
        return cut(list(out), sum(self.active), sum(self.wanted_rows))

    def outputs_of_ys(self, i: Tensor) -> list[Tensor]:
        """Something in the place of cotangents that nobody reads."""
        return [i] * len(self.has_cotangent)

    def whole(self, kept: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
        """A stored state with something in the place of what nobody reads."""
        return merge(self.kept, kept, [torch.zeros_like(x, memory_format=torch.contiguous_format) for x in like])

    def stored(self, state: Sequence[Tensor]) -> list[Tensor]:
        return pick(state, self.kept)


def traced(
    body: Body,
    keys: internals.KeySets,
    i: Tensor,
    state: Sequence[Tensor],
    rows: Sequence[Tensor],
    constants: Sequence[Any],
) -> torch.fx.GraphModule:
    """A step as a graph of (i, *state, *rows, *constants)."""

    def forward(*flat: Any) -> tuple[Tensor, ...]:
        (i,), given, given_rows, given_constants = cut(flat, 1, len(state), len(rows))
        new, ys = body(i, given, given_rows, given_constants)
        return (*new, *ys)

    return internals.materialize_as_graph(forward, (i, *state, *rows, *constants), *keys)


def owned(x: Tensor) -> Tensor:
    """A tensor of its own, with plain strides."""
    return x.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def results_of(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    nodes: Any = graph.graph
    (output,) = nodes.find_nodes(op="output")
    return list(output.args[0])


def ancestors(node: torch.fx.Node) -> set[torch.fx.Node]:
    """The nodes that a node is computed from, itself included."""
    seen, todo = set[torch.fx.Node](), [node]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += node.all_input_nodes
    return seen


def aliases(outputs: Sequence[Tensor], inputs: Sequence[Any]) -> list[bool]:
    """Which outputs share their memory with an input or with an output before them."""
    seen = {storage(x) for x in inputs if isinstance(x, Tensor)}
    found = []
    for x in outputs:
        found.append(storage(x) in seen)
        seen.add(storage(x))
    return found


def storage(x: Tensor) -> int:
    return x.untyped_storage()._cdata
