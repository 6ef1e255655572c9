"""Joint programs: a loop on its state and its tangent together, which is what the derivative of a loop is.

One step of it is the forward-mode derivative of one step. The joint program of lanes is the lanes of the joint program,
so that whatever is done to it, the lanes stay outermost.

Where such a derivative serves a gradient of a gradient, what a step computes under `torch.no_grad()` is a constant, as
it is to a tape; forward mode by itself passes tangents on there (`unrecorded`).
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dynloop.on_torch import engine
from dynloop.on_torch.lanes import in_lanes
from dynloop.on_torch.program import Mask, Program, merge, pick
from dynloop.on_torch.structure import Tensors, is_differentiable
from dynloop.on_torch.unrecorded import Unrecorded


def joint(program: Program, *, is_taped: bool = False) -> Program:
    """The program on states and tangents; is_taped: for the gradient of a gradient."""
    lanes = program.lanes
    if lanes is None:
        return moving(program, is_taped)
    base = lanes.base
    several = zip((lanes.constants, lanes.rows), (base.of_constants, base.of_xs), strict=True)
    # A tangent differs between lanes where its constant does.
    constants, rows = ((*differ, *pick(differ, floating)) for differ, floating in several)
    return in_lanes(joint(base, is_taped=is_taped), lanes.size, constants, rows, lanes.randomness)


def moving(program: Program, is_taped: bool) -> Program:
    masks = (program.of_constants, program.of_carry, program.of_xs)

    def step(*arguments: Any) -> tuple[Tensors, Tensors]:
        constants, i, carry, rows = arguments
        parts = (constants, carry, rows)
        primals = [these[: len(m)] for these, m in zip(parts, masks, strict=True)]
        tangents = [t for these, m in zip(parts, masks, strict=True) for t in these[len(m) :]]
        floating: list[bool] = []

        def run(*xs: Tensor) -> tuple[Tensors, Tensors]:
            rest, given = list(xs), []
            for these, m in zip(primals, masks, strict=True):
                given.append(merge(m, rest[: sum(m)], these))
                rest = rest[sum(m) :]
            is_recorded = program.is_recorded or torch.is_grad_enabled()
            is_cutting = is_taped and program.is_recorded
            # So that only the user's own no_grad() counts, and not that of a step which runs ahead without a tape.
            with torch.set_grad_enabled(is_recorded), Unrecorded(program.name, is_cutting=is_cutting):
                after, y = program.step(given[0], i, given[1], given[2])
            out = (*after, *y)
            floating[:] = [is_differentiable(x) for x in out]
            return tuple(pick(out, floating)), tuple(pick(out, [not m for m in floating]))

        moved = [x for these, m in zip(primals, masks, strict=True) for x in pick(these, m)]
        if not moved:
            return program.step(primals[0], i, primals[1], primals[2])
        out, moved_out, fixed = engine.pushed_forward(run, tuple(moved), tuple(tangents))
        every = merge(tuple(floating), out, spread_out(floating, fixed))
        n, m = len(program.of_carry), sum(program.of_carry)
        return (*every[:n], *moved_out[:m]), (*every[n:], *moved_out[m:])

    def cond(constants: Tensors, carry: Tensors) -> Tensor:
        assert program.cond is not None, "it is left out otherwise"
        return program.cond(constants[: len(masks[0])], carry[: len(masks[1])])

    return replace(
        program,
        cond=cond if program.cond is not None else None,
        step=step,
        of_constants=doubled(masks[0]),
        of_carry=doubled(masks[1]),
        of_xs=doubled(masks[2]),
        tell=None,
        observers=(),
        primal=program,
    )


def doubled(mask: Mask) -> Mask:
    return (*mask, *[True] * sum(mask))


def spread_out(floating: list[bool], fixed: Tensors) -> list[Any]:
    """The other results in their places, and nothing in those of the floating ones."""
    rest = iter(fixed)
    return [None if m else next(rest) for m in floating]
