"""Loops where a transformation is at work: its closed-over tensors become arguments, and `whole` does the rest."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dynloop.on_torch import engine
from dynloop.on_torch.asking import asking, is_asking
from dynloop.on_torch.program import Course, program_of
from dynloop.on_torch.searching import search
from dynloop.on_torch.status import nan_of
from dynloop.on_torch.stepping import Walk, check_bound
from dynloop.on_torch.structure import Loop, Outcome, Tensors, is_differentiable
from dynloop.on_torch.substitution import Foreign, Outsiders, matters, resolved
from dynloop.on_torch.surroundings import Surroundings, without_autocast_cache
from dynloop.on_torch.whole import Reversed, Whole


def run(loop: Loop, carry: Tensors, xs: Tensors, count: Any) -> Outcome:
    """See `structure.Run`."""
    # It looks at the options.
    Walk(loop, (), None)
    if isinstance(count, Tensor) and not engine.is_wrapped(count):
        count = int(count)
    out, is_cut = attempted(Attempt(loop, carry, xs, count))
    check_bound(loop, is_cut)
    n = len(carry)
    is_nan = nan_of(loop, out[:n]) if loop.options.full_output else None
    return Outcome(tuple(out[:n]), tuple(out[n:-2]), out[-2], out[-1], is_nan)


class Attempt:
    """Runs of one loop, with the tensors that it is known to close over."""

    def __init__(self, loop: Loop, carry: Tensors, xs: Tensors, count: Any) -> None:
        self.loop, self.carry, self.xs, self.count = loop, carry, xs, count
        self.found = search(loop.functions)
        self.originals = [x for _, x in self.found.tensors if matters(x)]
        self.outsiders = Outsiders()

    def once(self, *, is_trial: bool = False) -> tuple[Any, bool]:
        """is_trial: nobody sees anything of it but its results."""
        this = Course(Surroundings(self.found), is_trial=is_trial)
        loop = replace(self.loop, tell=None) if is_trial else self.loop
        program, constants = program_of(loop, self.originals, self.carry, self.xs, self.count, self.outsiders)
        self.outsiders.met.clear()
        try:
            with without_autocast_cache():
                out = Whole.apply(program, this, *map(resolved, constants), *self.carry, *self.xs)
        except RuntimeError as error:
            if not is_asking(self.loop, error):
                raise
            self.loop = asking(self.loop, told=0)
            return self.once(is_trial=is_trial)
        return out, this.is_cut


def attempted(attempt: Attempt) -> tuple[Any, bool]:
    """The results, and whether the bound has cut the loop off, once it is known what the loop closes over."""
    outsiders, shown = attempt.outsiders, None
    while True:
        try:
            out = attempt.once()
        except Foreign as foreign:
            if shown is not None and id(shown) not in outsiders.used:
                # This run has not met it, so it was made inside of the last one.
                attempt.originals.pop()
                return collected(attempt)
            shown = foreign.tensor
            attempt.originals.append(shown)
        else:
            outsiders.is_settled = True
            return out


def collected(attempt: Attempt) -> tuple[Any, bool]:
    """The same, where steps make tensors by something that no mode sees."""
    outsiders = attempt.outsiders
    outsiders.is_collecting = True
    while True:
        met: list[dict[int, Tensor]] = []
        for _ in range(2):
            attempt.once(is_trial=True)
            met.append(dict(outsiders.met))
        outside = [x for key, x in met[0].items() if key in met[1]]
        if not outside:
            break
        attempt.originals += outside
    outsiders.is_collecting, outsiders.is_settled = False, True
    return attempt.once()


def gradient_of(
    past: Any, carry: Tensors, xs: Tensors, captured: Tensors, cotangents: tuple[Tensor | None, ...]
) -> list[Tensor | None]:
    """The gradient of a recorded loop, as a function that can be differentiated again."""
    loop, walk = past.loop, past.walk
    program, constants = program_of(loop, captured, carry, xs, walk.count, None)
    of_ys = tuple(is_differentiable(y) for y in walk.stacked or ())
    this = Course(past.surroundings, past.steps, walk.is_cut, of_ys, is_first=False, last=past.last)
    outputs = [*carry, *(walk.stacked or ())]
    several = zip(outputs, cotangents, strict=True)
    seeds = [torch.zeros_like(x) if c is None else c for x, c in several if is_differentiable(x)]
    found = iter(Reversed.apply(program, this, *constants, *carry, *xs, *seeds))
    by_input = [next(found) if m else None for m in program.inputs]
    n = len(constants)
    return [*by_input[n:], *by_input[:n]]
