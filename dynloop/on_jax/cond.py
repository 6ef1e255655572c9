"""`cond`: one of two branches is run; as a primitive with rules for every transformation.

    cond  (pred, *operands)  -> outputs of the branch that `pred` chooses

Its meaning is `jax.lax.cond`; so are its derivatives, which are conds on derived pairs of branches
(`branches`). It differs under `jax.vmap` with a predicate that differs between lanes, where lax
evaluates both branches for every lane (`branch_lanes`).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
from jax import lax

from dynloop.on_jax import internals
from dynloop.on_jax.branches import Branches, halves, joint, primal_half, tangents_out, transposed
from dynloop.on_jax.flat import complement, merge, pick
from dynloop.on_jax.probe import differs_between_lanes

cond_p = internals.new_primitive("dynloop_cond")


def meaning(pred: Any, *operands: Any, branches: Branches) -> list[Any]:
    return lax.cond(pred, branches.true.run, branches.false.run, *operands)


def evaluate(*args: Any, branches: Branches) -> list[Any]:
    if evaluate not in branches.memory:
        branches.memory[evaluate] = jax.jit(partial(cond_p.bind, branches=branches))
    # Under `jax.disable_jit` the jitted bind would be the bind, and would come back here.
    with jax.disable_jit(False):
        return branches.memory[evaluate](*args)


def jvp(primals: Sequence[Any], tangents: Sequence[Any], *, branches: Branches) -> tuple[list[Any], list[Any]]:
    pred, *operands = primals
    mask = tuple(map(internals.has_value, tangents[1:]))
    dense = [internals.instantiate(t) for t in pick(tangents[1:], mask)]
    if branches.is_linear and not any(pick(mask, complement(branches.linear_inputs))):
        outputs = cond_p.bind(*primals, branches=branches)
        moved = [internals.instantiate(t) for t in pick(tangents[1:], branches.linear_inputs)]
        return outputs, cond_p.bind(pred, *merge(branches.linear_inputs, moved, operands), branches=branches)
    out_mask = tangents_out(branches, mask)
    if not any(out_mask):
        outputs = cond_p.bind(*primals, branches=branches)
        return outputs, list(map(internals.zero_tangent_of, outputs))
    out = cond_p.bind(*primals, *dense, branches=joint(branches, mask))
    outputs = out[: len(out_mask)]
    return outputs, merge(out_mask, out[len(out_mask) :], map(internals.zero_tangent_of, outputs))


def split_equation(trace: Any, *tracers: Any, branches: Branches) -> Any:
    """Reverse mode knows the primals and not the tangents: a known cond, and a linear one on what it stored."""
    known = [internals.is_known(t) for t in tracers]
    primal = complement(branches.linear_inputs)
    if branches.linearity is None or branches.is_linear or all(known) or not all(pick(known, (True, *primal))):
        return internals.bind_partly(trace, cond_p, tracers, {"branches": branches})
    pred, *operands = tracers
    primals = pick(operands, primal)
    with internals.under(trace):
        parts = halves(branches, differs_between_lanes(pred))
        out = cond_p.bind(pred, *primals, branches=parts.known)
        outputs, stored = out[: parts.primal_outputs], out[parts.primal_outputs :]
        read = [*(primals[i] for i in parts.inputs), *(outputs[i] for i in parts.outputs), *stored]
        tangents = cond_p.bind(pred, *read, *pick(operands, branches.linear_inputs), branches=parts.linear)
    is_tangent = branches.linearity.outputs
    return merge(is_tangent, tangents, merge(complement(is_tangent), outputs, is_tangent))


def primal_part(eqn: Any) -> tuple[Sequence[bool], Sequence[bool], Any] | None:
    """The primal half of a joint equation, as `internals.set_checkpoint` asks for it."""
    branches: Branches = eqn.params["branches"]
    if branches.linearity is None or branches.is_linear:
        return None
    is_primal = (True, *complement(branches.linear_inputs))
    return is_primal, complement(branches.linearity.outputs), {"branches": primal_half(branches)}


def transpose(cotangents: Sequence[Any], pred: Any, *operands: Any, branches: Branches) -> list[Any]:
    linear = tuple(map(internals.is_linear_input, operands))
    mask = tuple(map(internals.has_value, cotangents))
    nothing = [None] * (1 + len(operands))
    if not any(mask):
        return nothing
    seeds = pick(cotangents, mask)
    primals = pick(operands, complement(linear))
    out = cond_p.bind(pred, *primals, *seeds, branches=transposed(branches, linear, mask))
    return merge((False, *linear), out, nothing)


cond_p.def_impl(evaluate)
cond_p.def_effectful_abstract_eval(lambda *avals, branches: (branches.outputs, branches.effects))
internals.set_lowering(cond_p, meaning)
internals.set_jvp(cond_p, jvp)
internals.set_transpose(cond_p, transpose)
internals.set_partial_eval(cond_p, split_equation)
internals.set_checkpoint(cond_p, primal_part)
