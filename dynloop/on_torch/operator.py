"""`dynloop_while_loop`: the operator that a compiled loop is, and what each layer of torch.compile makes of it.

Dynamo traces cond and body, and lifts what they close over to arguments (`tracing`). Where a gradient is asked for, the
operator is an autograd Function whose forward and backward are programs of plain while loops (`forward`,
`reverse`); where none is, it is torch's while_loop, with a buffer for what is stacked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dynloop.checkpoints import Layout, Storage
from dynloop.errors import BatchingError, DerivativeError
from dynloop.on_torch import draws, internals, reverse, storing_loop
from dynloop.on_torch.arguments import cut, merge, pick
from dynloop.on_torch.forward import counter_device, storing, zeros
from dynloop.on_torch.internals import (
    DispatchKey,
    FakeTensorMode,
    HigherOrderOperator,
    ProxyTorchDispatchMode,
)
from dynloop.on_torch.step import (
    Body,
    Signature,
    Step,
    aliases,
    fresh,
    is_differentiable,
    needs_grad,
    owned,
    results_of,
    traced,
)
from dynloop.on_torch.storing_loop import get, put

# The key of a body graph's metadata under which its `Static` lies.
STATIC = "dynloop"


@dataclass(frozen=True)
class Static:
    """What is known of a loop before it is compiled.

    storage: without its bound, which is an argument, as it may be a symbol.   has_ys: something is stacked.
    """

    storage: Storage
    is_counted: bool
    has_ys: bool


class LoopOperator(HigherOrderOperator):
    """cond: (*carries, *constants) -> (bool[],).   body: (*carries, *rows, *constants) -> (*carries, *ys).

    xs: stacked.   counts: the number of steps, if it is known before the first one.
    sizes: the number of rows of what is stacked, and the bound on the number of steps, or -1.
    Returns the final carries, the ys, and whether a carry that cond reads is NaN. Whoever calls it directly leaves the
    constants out: Dynamo fills them in, and keeps the `Static` in the metadata of the body's graph.
    """

    def __init__(self) -> None:
        super().__init__("dynloop_while_loop")

    def __call__(
        self,
        cond: Any,
        body: Any,
        carries: Sequence[Tensor],
        xs: Sequence[Tensor],
        counts: Sequence[Tensor],
        sizes: Sequence[Any],
        constants: Sequence[Any],
        /,
        **static: Any,
    ) -> Any:
        return super().__call__(cond, body, carries, xs, counts, sizes, constants, **static)


loop_operator = LoopOperator()


class Probe(HigherOrderOperator):
    """Calls a function for what Python learns from it, while Dynamo traces; see `tracing.ProbeVariable`."""

    def __init__(self) -> None:
        super().__init__("dynloop_probe")

    def __call__(self, function: Any, /, *args: Any) -> None:
        raise AssertionError("Dynamo leaves this call out")


probe = Probe()


@dataclass(frozen=True)
class Untraced:
    """A cond or a body that is a function instead of a graph.   reads: of a cond: see `Call.reads`."""

    function: Any
    meta: dict[str, Any]
    reads: tuple[bool, ...]

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


@dataclass
class Call:
    """One call of the operator, its arguments by name."""

    cond: Any
    body: Any
    carries: list[Any]
    xs: list[Any]
    counts: list[Any]
    sizes: list[Any]
    constants: list[Any]

    @property
    def static(self) -> Static:
        return self.body.meta[STATIC]

    @property
    def signature(self) -> Signature:
        return Signature(len(self.carries), len(self.xs), self.static.is_counted)

    @property
    def functions(self) -> Body:
        return Body(self.cond, self.body, self.signature)

    @property
    def reads(self) -> tuple[bool, ...]:
        """Which of the first carries cond reads; the others it doesn't."""
        if isinstance(self.cond, Untraced):
            return self.cond.reads
        inputs = self.cond.graph.find_nodes(op="placeholder")
        return tuple([bool(node.users) for node in inputs[: len(self.carries)]])

    @property
    def length(self) -> Any:
        return self.sizes[0]

    @property
    def bound(self) -> Any:
        return None if isinstance(self.sizes[1], int) and self.sizes[1] < 0 else self.sizes[1]

    @property
    def counter(self) -> list[Any]:
        return self.carries[: self.static.is_counted]

    @property
    def state(self) -> list[Any]:
        return self.carries[self.static.is_counted :]

    @property
    def rows(self) -> list[Tensor]:
        """Rows as a step is given them, of no value."""
        return [fresh(x.new_empty(x.shape[1:]), needs_grad(x)) for x in self.xs]

    @property
    def flat(self) -> list[Any]:
        """What a gradient may be asked for."""
        return [*self.state, *self.xs, *self.constants]

    def again(self, flat: Sequence[Any]) -> "Call":
        state, xs, constants = cut(flat, len(self.state), len(self.xs))
        return replace(self, carries=[*self.counter, *state], xs=xs, constants=constants)

    def index(self) -> Tensor:
        return torch.zeros((), dtype=torch.int64, device=counter_device(self.carries))


def reads_nan(call: Call, final: Sequence[Tensor]) -> Tensor:
    """Whether a floating carry that cond reads is NaN."""
    read = [x for x, is_read in zip(final, call.reads, strict=False) if is_read and is_differentiable(x)]
    found = torch.zeros((), dtype=torch.bool, device=counter_device(final))
    for x in read:
        found = found | torch.isnan(x).any().to(found.device)
    return found


def apart(xs: Sequence[Tensor], others: Sequence[Any]) -> tuple[Tensor, ...]:
    """The tensors, none of them in the memory of another."""
    return tuple([owned(x) if a else x.contiguous() for x, a in zip(xs, aliases(xs, others), strict=True)])


def distinct(constants: Sequence[Any]) -> list[Any]:
    """The constants, no tensor among them in the memory of one before it."""
    tensors = [x for x in constants if isinstance(x, Tensor)]
    own = [owned(x) if a else x for x, a in zip(tensors, aliases(tensors, ()), strict=True)]
    return merge([isinstance(x, Tensor) for x in constants], own, constants)


def plain(*args: Any) -> tuple[Tensor, ...]:
    """The loop without a gradient."""
    call = Call(*(list(x) if isinstance(x, list | tuple) else x for x in args))
    n, r = len(call.carries), len(call.xs)

    def cond(*flat: Any) -> Tensor:
        return apart(call.cond(*flat), flat)[0]

    if not call.static.has_ys:

        def body(*flat: Any) -> tuple[Tensor, ...]:
            return apart(call.body(*flat), flat)

        constants = distinct(call.constants)
        carries = apart(call.carries, constants)
        final = internals.while_loop_op(cond, body, carries, tuple(constants))
        return (*final, reads_nan(call, final))
    ys = internals.materialize_as_graph(call.body, (*call.carries, *call.rows, *call.constants))
    values = [node.meta["val"] for node in results_of(ys)[n:]]

    def one(carries: list[Tensor], buffers: list[Tensor], constants: list[Any]) -> Any:
        xs, constants = cut(constants, r)
        new, ys = cut(call.body(*carries, *get(xs, carries[0]), *constants), n)
        return list(apart(new, [*carries, *constants])), put(buffers, ys, carries[0])

    # What is exported must be read where dynloop is not: there torch's loop carries the buffers, and copies them.
    run = storing_loop.run_carrying if torch.compiler.is_exporting() else storing_loop.run
    buffers = [zeros((call.length, *y.shape), y) for y in values]
    carries = [x.clone(memory_format=torch.contiguous_format) for x in call.carries]
    constants = [*call.xs, *call.constants]
    final, buffers = run(lambda c, _, k: cond(*c, *k[r:]), one, carries, buffers, constants)
    return (*final, *buffers, reads_nan(call, final))


loop_operator.py_impl(DispatchKey.CompositeExplicitAutograd)(plain)


@loop_operator.py_functionalize_impl
def _functionalize(ctx: Any, *args: Any) -> tuple[Tensor, ...]:
    # What the operator consists of is to be seen by the mode that has just been left.
    with ctx.mode:
        return plain(*args)


@loop_operator.py_impl(ProxyTorchDispatchMode)
def _trace(mode: Any, *args: Any) -> tuple[Tensor, ...]:
    with mode:
        return plain(*args)


@loop_operator.py_impl(FakeTensorMode)
def _fake(mode: Any, *args: Any) -> tuple[Tensor, ...]:
    call = Call(*(list(x) if isinstance(x, list | tuple) else x for x in args))
    with mode:
        out = call.body(*call.carries, *call.rows, *call.constants)
        n = len(call.carries)
        ys = [y.new_empty((call.length, *y.shape)) for y in out[n:]]
        final = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in call.carries)
        return (*final, *ys, call.index() > 0)


@loop_operator.py_impl(DispatchKey.Autograd)
def _autograd(*args: Any) -> Any:
    call = Call(*(list(x) if isinstance(x, list | tuple) else x for x in args))
    if not torch.is_grad_enabled() or not any(map(needs_grad, call.flat)):
        with internals._AutoDispatchBelowAutograd():
            return loop_operator(*args)
    is_shown_shapes = internals.get_proxy_mode() is None and any(map(internals.is_fake, call.flat))
    function = ShapeFunction if is_shown_shapes else LoopFunction
    # A step may choose a branch, whose gradient wants no two tensors in one place.
    state = apart(call.state, [*call.xs, *call.constants])
    return function.apply(call, internals.dispatch_keys(), *state, *call.xs, *call.constants)


@loop_operator.py_impl(internals.TransformType.Vmap)
def _batch(*_: Any) -> Any:
    raise BatchingError(
        "a loop inside torch.vmap inside torch.compile is not supported: its lanes would stop together. Call "
        "torch.vmap outside of torch.compile, or give the carry a batch axis and a flag for each lane."
    )


@loop_operator.py_impl(internals.TransformType.Grad)
def _pull_back(*_: Any) -> Any:
    raise DerivativeError(
        "a loop inside torch.func.grad, or another reverse mode of torch.func, inside torch.compile is not supported. "
        "Take the gradient of the compiled function by torch.autograd.grad or .backward(), which may go through "
        "torch.func.jvp inside of it, or call torch.func outside of torch.compile."
    )


class ShapeFunction(torch.autograd.Function):
    """The operator where only shapes are asked for, as in the first pass of a trace."""

    @staticmethod
    def forward(ctx: Any, call: Call, keys: Any, *flat: Any) -> tuple[Tensor, ...]:
        now = call.again(flat)
        with torch.enable_grad():
            taped = now.functions.activity(
                now.index(), now.state, now.rows, now.constants, tuple(needs_grad(x) for x in now.state)
            )
        state = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in now.state]
        ys = [y.new_empty((now.length, *y.shape)) for y in taped.ys]
        has = [*taped.active, *(needs_grad(y) for y in taped.ys)]
        out = [*state, *ys]
        counter = [torch.empty_like(x) for x in now.counter]
        is_nan = now.index() > 0
        ctx.mark_non_differentiable(*counter, is_nan, *pick(out, [not h for h in has]))
        return (*counter, *out, is_nan)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        raise AssertionError("only shapes were asked for")


class LoopFunction(torch.autograd.Function):
    """The operator with a gradient."""

    @staticmethod
    def forward(ctx: Any, call: Call, keys: Any, *flat: Any) -> tuple[Tensor, ...]:
        now = call.again(flat)
        with internals._AutoDispatchBelowAutograd():
            now, functions = repeatable(now, keys)
            step = Step(functions, keys, now.index(), now.state, now.rows, now.constants)
            layout = layout_of(now, step)
            count = now.counts[0] if now.counts else None
            bound = now.bound if isinstance(now.bound, int) else None
            result = storing(step, layout, bound, now.length, count, now.state, now.xs, now.constants)
        ctx.step, ctx.layout, ctx.call, ctx.result = step, layout, now, result
        ctx.constants = len(call.constants)
        has = [*step.active, *step.has_cotangent]
        out = [*result.state, *result.ys]
        steps = [result.steps.to(x.dtype) for x in now.counter]
        is_nan = reads_nan(now, [*steps, *result.state])
        ctx.mark_non_differentiable(*steps, is_nan, *pick(out, [not h for h in has]))
        return (*steps, *out, is_nan)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        step, call, result = ctx.step, ctx.call, ctx.result
        _, state, ys = cut(cotangents[:-1], len(call.counter), len(call.state))
        given = reverse.Given(pick(ys, step.has_cotangent), call.xs, call.state, call.constants)
        with internals._AutoDispatchBelowAutograd():
            found, stacked, sums = reverse.sweep(
                step,
                ctx.layout,
                call.length,
                bool(call.counts),
                result.steps,
                result.stored,
                result.buffers,
                pick(state, step.active),
                given,
            )
        none: list[Any] = [None] * len(call.flat)
        parts = cut(none, len(call.state), len(call.xs))
        masks = step.active, step.wanted_rows, step.wanted
        new = [merge(m, xs, old) for m, xs, old in zip(masks, (found, stacked, sums), parts, strict=True)]
        return (None, None, *new[0], *new[1], *new[2][: ctx.constants])


def repeatable(call: Call, keys: internals.KeySets) -> tuple[Call, Body]:
    """The call, and its functions with draws that a step repeats when it is run again."""
    body = call.functions
    graph = traced(body, keys, call.index(), call.state, call.rows, call.constants)
    draws.check(call.static.storage.name, graph)
    if not draws.random_operations(graph):
        return call, body
    seed = torch.randint(0, 2**31, (), dtype=torch.int64, device=call.index().device)
    return replace(call, constants=[*call.constants, seed]), draws.DrawingBody(body, graph)


def layout_of(call: Call, step: Step) -> Layout:
    """Which rows the buffers have. Sizes that are symbols count as they are at the first call."""
    if not any(step.kept):
        return Layout(0, 1)
    size = sum(hint(x.numel()) * x.element_size() for x in step.stored(call.state))
    return replace(call.static.storage, bound=call.bound).layout(size)


def hint(x: Any) -> int:
    return x.node.hint if isinstance(x, torch.SymInt) else x
