"""A loop as a function of explicit arguments, with a rule for every transformation.

Two operations are closed under all of them. `Whole` maps (constants, first carry, stacked arrays) to the last carry
and the ys; `Reversed` maps the same and cotangents to the gradient. The derivative of a loop is a loop on the state and
its tangent (`joint`); the derivative of `Reversed` along its arguments is `Reversed` of that one; and what reverse mode
asks of `Reversed` is one run of the joint loop, and one reversal of it. Lanes are a loop as well (`lanes`). So memory
stays bounded at every order. `Reversed` keeps nothing from `Whole`: it runs the loop forward again, by a schedule for
the number of steps, which is known by then.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dynloop.on_torch.asking import lacks_graph
from dynloop.on_torch.engine import alive
from dynloop.on_torch.joint import joint
from dynloop.on_torch.lanes import Batch
from dynloop.on_torch.program import Course, Program, pick
from dynloop.on_torch.reversal import reversed_gradient
from dynloop.on_torch.stepping import apart, cut_off
from dynloop.on_torch.structure import Tensors, is_differentiable
from dynloop.on_torch.substitution import Foreign
from dynloop.on_torch.verifying import last_of


class Whole(torch.autograd.Function):
    """tensors: constants, first carry, stacked arrays.

    Gives the last carry, the ys, the number of steps, and whether the bound cut the loop off.
    """

    @staticmethod
    def forward(program: Program, run: Course, *tensors: Tensor) -> Any:
        with undone_if_tried(run) if run.is_first else run.surroundings.again():
            if not run.is_first:
                run.surroundings.set(run.surroundings.first)
            outputs, steps = ran(program, run, tensors)
        run.steps, run.is_first = steps, False
        return (*outputs, torch.tensor(steps), torch.tensor(run.is_cut))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.program, ctx.run, *tensors = inputs
        ctx.mark_non_differentiable(*[x for x in output if not is_differentiable(x)])
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        program: Program = ctx.program
        masks = (*program.of_carry, *program.ys_mask(ctx.run))
        seeds = pick(cotangents[:-2], masks)
        saved = map(alive, (*ctx.saved_tensors, *seeds))
        found = iter(Reversed.apply(program, ctx.run, *saved))
        return None, None, *[next(found) if m else None for m in program.inputs]

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        program: Program = ctx.program
        tensors = [*map(alive, ctx.saved_tensors)]
        dense = program.dense(tensors, tangents[2:])
        out = Whole.apply(joint(program), replace(ctx.run), *program.joined(tensors, dense))
        carry, ys = program.tangents_of(ctx.run, out)
        return (*carry, *ys, None, None)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        program, run, *tensors = arguments
        batch = Batch(program, info, is_differentiated=False)
        lanes, given = batch.given(in_dims[2:], tensors)
        return batch.results(Whole.apply(lanes, run, *given))


@contextmanager
def undone_if_tried(run: Course) -> Iterator[None]:
    """Whatever a run that will begin again has drawn and moved is set back."""
    first = run.surroundings.first
    try:
        yield
    except (Foreign, RuntimeError) as failure:
        if isinstance(failure, Foreign) or lacks_graph(failure):
            run.surroundings.set(first)
        raise
    if run.is_trial:
        run.surroundings.set(first)


def ran(program: Program, run: Course, tensors: Tensors) -> tuple[Tensors, int]:
    """The last carry and the ys; and how many steps were taken."""
    constants, init, xs = program.split(tensors)
    carry, i, stacked = init, 0, None
    while program.goes_on(run, constants, i, carry):
        carry, y = program.step(constants, i, carry, program.rows(i, xs))
        carry, y = cut_off(carry), cut_off(y)
        if run.is_first and i == 0:
            run.surroundings.settle()
        stacked = program.written(stacked, i, y)
        if program.tell is not None and run.is_first:
            program.tell(i, carry)
        i += 1
    ys = stacked or (program.nothing_stacked(constants, init, xs) if i == 0 else [])
    if run.is_first:
        run.surroundings.finish()
        run.of_ys = tuple(is_differentiable(y) for y in ys)
    outputs = apart((*carry, *ys), tensors)
    if run.is_first:
        run.last, run.lanes = last_of(outputs[: len(carry)]), program.lanes_at_once
    return outputs, i


class Reversed(torch.autograd.Function):
    """tensors: as of `Whole`, and a cotangent for each floating leaf of its carry and of its ys.

    Gives the gradient by every floating one of the former.
    """

    @staticmethod
    def forward(program: Program, run: Course, *tensors: Tensor) -> Any:
        assert run.steps is not None, "the loop has been run"
        with run.surroundings.again():
            run.surroundings.set(run.surroundings.first)
            return apart(reversed_gradient(program, run, tensors), tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.program, ctx.run, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *directions: Any) -> Any:
        program: Program = ctx.program
        tensors, seeds = program.with_seeds([*map(alive, ctx.saved_tensors)])
        moved = program.joined(tensors, [*map(alive, directions)])
        both_at_once = joint(program, is_taped=True)
        out = Whole.apply(both_at_once, replace(ctx.run), *moved)
        carry, ys = program.tangents_of(ctx.run, out)
        for_seeds = [x for x in (*carry, *ys) if x is not None]
        nothing = [torch.zeros_like(x) for x in seeds]
        both = program.joint_seeds(nothing, seeds)
        found = iter(program.primal_inputs(Reversed.apply(both_at_once, replace(ctx.run), *moved, *both)))
        return None, None, *[next(found) if m else None for m in program.inputs], *for_seeds

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        program: Program = ctx.program
        tensors, seeds = program.with_seeds([*map(alive, ctx.saved_tensors)])
        of_tensors, of_seeds = program.with_seeds(tangents[2:])
        moved = program.joined(tensors, program.dense(tensors, of_tensors))
        of_seeds = [torch.zeros_like(x) if t is None else t for x, t in zip(seeds, of_seeds, strict=True)]
        both = program.joint_seeds(of_seeds, seeds)
        return tuple(program.primal_inputs(Reversed.apply(joint(program), replace(ctx.run), *moved, *both)))

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        program, run, *tensors = arguments
        batch = Batch(program, info, is_differentiated=True)
        own, seeds = program.with_seeds(tensors)
        dims, seed_dims = program.with_seeds(in_dims[2:])
        lanes, given = batch.given(dims, own)
        return batch.gradients(Reversed.apply(lanes, run, *given, *batch.seeds(seed_dims, seeds)))
