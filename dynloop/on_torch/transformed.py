"""Loops where a transformation is at work: its closed-over tensors become arguments, and `whole` does the rest."""

from typing import Any

import torch
from torch import Tensor

from dynloop.errors import DerivativeError
from dynloop.on_torch import engine
from dynloop.on_torch.program import Run, program_of
from dynloop.on_torch.searching import search
from dynloop.on_torch.status import nan_of
from dynloop.on_torch.stepping import Walk, check_bound
from dynloop.on_torch.structure import Loop, Outcome, Tensors, is_differentiable
from dynloop.on_torch.substitution import Foreign, matters, resolved
from dynloop.on_torch.surroundings import Surroundings, without_autocast_cache
from dynloop.on_torch.whole import Reversed, Whole

# Tensors that nothing but running shows; each begins the loop again.
MOST_FOREIGN = 16


def run(loop: Loop, carry: Tensors, xs: Tensors, count: Any) -> Outcome:
    """See `structure.Run`."""
    Walk(loop, (), None)
    found = search(loop.functions)
    originals = [x for _, x in found.tensors if matters(x)]
    if isinstance(count, Tensor) and not engine.is_wrapped(count):
        count = int(count)
    for _ in range(MOST_FOREIGN):
        surroundings = Surroundings(found)
        this = Run(surroundings)
        program, constants = program_of(loop, originals, carry, xs, count, is_strict=True)
        try:
            with without_autocast_cache():
                out = Whole.apply(program, this, *map(resolved, constants), *carry, *xs)
            break
        except Foreign as foreign:
            surroundings.set(surroundings.first)
            originals.append(foreign.tensor)
    else:
        raise DerivativeError(
            f"{loop.name}: a step makes tensors that a transformation of torch.func cannot tell from those it closes "
            "over, as a custom autograd.Function in it does; call the loop outside of torch.func"
        )
    check_bound(loop, this.is_cut)
    n = len(carry)
    is_nan = nan_of(loop, out[:n]) if loop.options.full_output else None
    return Outcome(tuple(out[:n]), tuple(out[n:-2]), out[-2], out[-1], is_nan)


def gradient_of(
    record: Any, carry: Tensors, xs: Tensors, captured: Tensors, cotangents: tuple[Tensor | None, ...]
) -> list[Tensor | None]:
    """The gradient of a recorded loop, as a function that can be differentiated again."""
    loop, walk = record.loop, record.walk
    program, constants = program_of(loop, captured, carry, xs, walk.count, is_strict=False)
    of_ys = tuple(is_differentiable(y) for y in walk.stacked or ())
    this = Run(record.surroundings, record.steps, walk.is_cut, of_ys, is_first=False)
    outputs = [*carry, *(walk.stacked or ())]
    several = zip(outputs, cotangents, strict=True)
    seeds = [torch.zeros_like(x) if c is None else c for x, c in several if is_differentiable(x)]
    found = iter(Reversed.apply(program, this, *constants, *carry, *xs, *seeds))
    by_input = [next(found) if m else None for m in program.inputs]
    n = len(constants)
    return [*by_input[n:], *by_input[:n]]
