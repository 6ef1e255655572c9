"""Forward mode inside of torch.compile: a loop of values and tangents, which is a loop like any other.

A carry with a floating dtype gets a tangent, zero where it has none at the start; a constant or a row gets one where it
has one. So the derivative of the derivative, and the gradient of it, are loops too.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from dynloop.on_torch import internals
from dynloop.on_torch.arguments import cut, merge, pick
from dynloop.on_torch.operator import STATIC, Call, Untraced, loop_operator
from dynloop.on_torch.structure import is_differentiable

# torch has one level of forward mode; nested ones are levels of torch.func.
DUAL = 0


@loop_operator.py_impl(internals.TransformType.Jvp)
def _push_forward(interpreter: Any, *args: Any) -> tuple[Tensor, ...]:
    call = Call(*(list(x) if isinstance(x, list | tuple) else x for x in args))
    level = interpreter.level()

    def lowered(x: Any) -> tuple[Any, Any]:
        if not isinstance(x, Tensor):
            return x, None
        return split(x, level)

    groups = call.counter, call.state, call.xs, call.constants, call.counts
    (counter, _), (state, dstate), (xs, dxs), (constants, dconstants), (counts, _) = [
        _columns([lowered(x) for x in group]) for group in groups
    ]
    with interpreter.lower():
        twice = Twice(call, state, dxs, dconstants)
        dstate = [zero_if_none(d, x) for x, d in zip(state, dstate, strict=True)]
        carries = [*counter, *state, *pick(dstate, twice.is_moving)]
        rows = [*xs, *pick(dxs, twice.has_row)]
        given = [*constants, *pick(dconstants, twice.has_constant)]
        out = twice.run(carries, rows, counts, given)
    counter, state, moving, ys, dys, is_nan = twice.parts(out)
    tangents = [*merge(twice.is_moving, moving, [None] * len(state)), *merge(twice.is_stacked, dys, [None] * len(ys))]
    dual = [joined(x, d, level) for x, d in zip([*state, *ys], tangents, strict=True)]
    return (*[joined(x, None, level) for x in counter], *dual, *[joined(x, None, level) for x in is_nan])


def split(x: Tensor, level: int) -> tuple[Tensor, Tensor | None]:
    """Value and tangent of a transformation's level, both below it."""
    value, tangent = forward_ad.unpack_dual(x, level=DUAL)
    below = None if tangent is None else internals.unwrap_for_grad(tangent, level)
    return internals.unwrap_for_grad(value, level), below


def joined(value: Tensor, tangent: Tensor | None, level: int) -> Tensor:
    wrapped = internals.wrap_for_grad(value, level)
    if tangent is None:
        return wrapped
    return forward_ad.make_dual(wrapped, internals.wrap_for_grad(tangent, level), level=DUAL)


def pushed(function: Any, values: Sequence[Tensor], tangents: Sequence[Tensor]) -> tuple[list[Tensor], list[Any]]:
    """What the function gives, and its derivative in the direction of the tangents; None for what has none.

    torch.func.jvp would enter torch's level of forward mode, which holds nothing inside of itself; in a compiled
    program it cannot know that it is inside already.
    """
    level = internals.jvp_increment_nesting()
    try:
        with a_level_of_torch(), forward_ad._set_fwd_grad_enabled(True):
            out = function(*[joined(x, d, level) for x, d in zip(values, tangents, strict=True)])
            pairs = [split(x, level) for x in out]
    finally:
        internals.jvp_decrement_nesting()
    return _columns(pairs)


@contextmanager
def a_level_of_torch() -> Iterator[None]:
    """torch's level of forward mode, entered unless the program is inside of it: a backward pass is not."""
    try:
        internals.enter_dual_level()
    except RuntimeError:
        # It has no other way to say that it is inside.
        yield
        return
    try:
        yield
    finally:
        internals.exit_dual_level(level=DUAL)


def _columns(pairs: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    return [value for value, _ in pairs], [tangent for _, tangent in pairs]


def zero_if_none(tangent: Tensor | None, x: Tensor) -> Tensor:
    return torch.zeros_like(x) if tangent is None else tangent


class Twice:
    """The loop of values and tangents.

    is_moving, has_row, has_constant, is_stacked: which carries, rows, constants and ys have a tangent.
    """

    def __init__(self, call: Call, state: Sequence[Any], dxs: Sequence[Any], dconstants: Sequence[Any]) -> None:
        self.call = call
        self.is_moving = [is_differentiable(x) for x in state]
        self.has_row = [d is not None for d in dxs]
        self.has_constant = [d is not None for d in dconstants]
        self.is_stacked: list[bool] = []

    def run(self, carries: list[Any], xs: list[Any], counts: list[Any], constants: list[Any]) -> Any:
        static = {STATIC: self.call.static}
        # No graphs are made of these: what they call is to be differentiated by its own rules, and by ours again.
        cond, body = Untraced(self.cond, static, self.call.reads), Untraced(self.body, static, ())
        return loop_operator(cond, body, carries, xs, counts, self.call.sizes, constants)

    def cond(self, *flat: Any) -> Any:
        values, rest = cut(flat, len(self.call.carries))
        constants = rest[sum(self.is_moving) :][: len(self.call.constants)]
        return self.call.cond(*values, *constants)

    def body(self, *flat: Any) -> tuple[Tensor, ...]:
        call = self.call
        n, r, k = len(call.state), len(call.xs), len(call.constants)
        counter, state, dstate, rows, drows, constants, dconstants = cut(
            flat, len(call.counter), n, sum(self.is_moving), r, sum(self.has_row), k
        )
        values = [*state, *rows, *constants]
        has = [*self.is_moving, *self.has_row, *self.has_constant]

        def step(*active: Tensor) -> tuple[Tensor, ...]:
            return tuple(call.body(*counter, *merge(has, active, values)))

        out, tangents = pushed(step, pick(values, has), [*dstate, *drows, *dconstants])
        counter, state, ys = cut(out, len(call.counter), n)
        _, dstate, dys = cut(tangents, len(call.counter), n)
        self.is_stacked = [is_differentiable(y) for y in ys]
        moved = [zero_if_none(d, x) for x, d in zip(state, dstate, strict=True)]
        stacked = [zero_if_none(d, y) for y, d in zip(ys, dys, strict=True)]
        return (*counter, *state, *pick(moved, self.is_moving), *ys, *pick(stacked, self.is_stacked))

    def parts(self, out: Sequence[Any]) -> Any:
        """counter, state, its tangents, ys, their tangents, whether there is a NaN."""
        sizes = len(self.call.counter), len(self.call.state), sum(self.is_moving), len(self.is_stacked)
        return cut(out, *sizes, sum(self.is_stacked))
