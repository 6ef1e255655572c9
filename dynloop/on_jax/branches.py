"""A pair of branches as a value, and what differentiation derives from it.

Both branches take the same inputs and return outputs of the same types, so a derived pair is found
by deriving from each. A *joint* pair computes outputs and their tangents in one pass. Reverse mode
takes it apart into a *known* pair, which also returns what the linear half needs (its residuals),
and a *linear* pair on residuals and tangents; nothing is computed twice. What the two branches store
shares room wherever it is of the same type, since only one of them runs; in a batch whose lanes take
different branches both run, and what they store stays apart.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dynloop.on_jax import internals
from dynloop.on_jax.flat import Mask, complement, cut, merge, pick
from dynloop.on_jax.probe import perturbed_outputs
from dynloop.on_jax.tiers import in_branch
from dynloop.on_jax.traced import Traced, pushforward, remembered, tangent_avals, with_active, zeros


class Linearity(NamedTuple):
    """The masked outputs are linear in the masked inputs, taken together; the other outputs do not read them."""

    inputs: Mask
    outputs: Mask


@dataclass(frozen=True, eq=False)
class Branches:
    """Two functions of the same flat inputs; compared by identity, as JAX's caches need.

    origin: of a joint pair, the pair that it differentiates.
    owners: for each output, the branch from which alone it is ever read; None: from whichever was taken
    (empty: None for all).
    """

    true: Traced
    false: Traced
    linearity: Linearity | None = None
    origin: "Origin | None" = None
    owners: tuple[bool | None, ...] = ()
    memory: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def inputs(self) -> list[Any]:
        return self.true.inputs

    @property
    def outputs(self) -> list[Any]:
        return self.true.outputs

    @property
    def effects(self) -> frozenset[Any]:
        return self.true.effects | self.false.effects

    @property
    def linear_inputs(self) -> Mask:
        return self.linearity.inputs if self.linearity else (False,) * len(self.inputs)

    @property
    def is_linear(self) -> bool:
        """Is every output linear in the linear inputs?"""
        return self.linearity is not None and all(self.linearity.outputs)

    def owner(self, output: int) -> bool | None:
        return self.owners[output] if self.owners else None

    def __getitem__(self, which: bool) -> Traced:
        return self.true if which else self.false

    def __repr__(self) -> str:
        return f"Branches(inputs={len(self.inputs)}, outputs={len(self.outputs)})"


@dataclass(frozen=True)
class Origin:
    """The pair that a joint pair differentiates; which of its inputs and outputs have tangents."""

    branches: Branches
    inputs: Mask
    outputs: Mask


def filler(aval: Any) -> Any:
    """What stands where the branch that was not taken would have put a value; nobody reads it."""
    if not internals.is_extended(aval.dtype):
        return internals.zeros_of(aval)
    names: list[Any] = []

    def data(key: Any) -> Any:
        names.append(jax.random.key_impl(key))
        return jax.random.key_data(key)

    plain = jax.eval_shape(data, aval)
    return jax.random.wrap_key_data(jnp.zeros(plain.shape, plain.dtype), impl=names[0])


# ---- the joint pair


@remembered
def tangents_out(branches: Branches, mask: Mask) -> Mask:
    """Outputs that have a tangent in either branch when the masked inputs have one."""
    return tuple(map(any, zip(*(perturbed_outputs(branches[w], mask) for w in (True, False)), strict=True)))


@remembered
def joint(branches: Branches, mask: Mask) -> Branches:
    """The pair on (x, dx[mask]) that returns outputs and the tangents of `tangents_out`."""
    out_mask = tangents_out(branches, mask)
    avals = [*branches.inputs, *tangent_avals(pick(branches.inputs, mask))]

    def derived(branch: Traced) -> Traced:
        push = pushforward(branch, mask, out_mask)

        def run(*flat: Any) -> list[Any]:
            outputs, tangents = push(*flat)
            return [*outputs, *tangents]

        return Traced(run, avals)

    linearity = Linearity(
        (False,) * len(mask) + (True,) * sum(mask), (False,) * len(out_mask) + (True,) * sum(out_mask)
    )
    origin = Origin(branches, mask, out_mask)
    owners = (*branches.owners, *pick(branches.owners, out_mask)) if branches.owners else ()
    return Branches(derived(branches.true), derived(branches.false), linearity, origin, owners)


@remembered
def primal_half(branches: Branches) -> Branches:
    """What is left of a joint pair without the tangents."""
    assert branches.linearity is not None
    primals = pick(branches.inputs, complement(branches.linearity.inputs))

    def derived(which: bool) -> Traced:
        return Traced(lambda *args: _outputs_and_linear(branches, which, args)[0], primals)

    return Branches(derived(True), derived(False))


# ---- taking a joint pair apart


@dataclass(frozen=True)
class Residual:
    """Something that the linear half of one branch reads: the pair's input or output `at`, or a stored value."""

    kind: str
    at: int


@dataclass(frozen=True)
class Halves:
    """A joint pair taken apart.

    known: (*primals) -> (*primal outputs, *stored).
    linear: (*[primals at inputs], *[primal outputs at outputs], *stored, *tangents) -> tangents.
    """

    known: Branches
    linear: Branches
    inputs: list[int]
    outputs: list[int]
    primal_outputs: int


class _Linear(NamedTuple):
    """A linear function of tangents; a constant that is None is a residual."""

    jaxpr: Any
    constants: list[Any]


class _Half(NamedTuple):
    """One branch: its primal outputs and new residuals, its linear part, and where that finds each residual."""

    known: Traced
    linear: _Linear
    residuals: list[Residual]
    stored: list[Any]


@remembered
def halves(branches: Branches, is_apart: bool) -> Halves:
    """The joint pair taken apart; `is_apart`: the branches share no room for what they store."""
    assert branches.linearity is not None
    is_tangent, is_tangent_out = branches.linearity
    primal_avals, tangents = pick(branches.inputs, complement(is_tangent)), pick(branches.inputs, is_tangent)
    primal_outputs = len(is_tangent_out) - sum(is_tangent_out)
    split = [_split(branches, which, primal_avals, tangents) for which in (True, False)]
    inputs, outputs = (
        sorted({r.at for half in split for r in half.residuals if r.kind == kind}) for kind in ("input", "output")
    )
    stored, places = room_for([half.stored for half in split], is_apart)
    owned = branches.owners or (None,) * len(is_tangent_out)
    stored_owners = [at in places[0] if is_apart else None for at in range(len(stored))]
    known_owners = (*pick(owned, complement(is_tangent_out)), *stored_owners)
    operands = [*(("input", i) for i in inputs), *(("output", i) for i in outputs)]
    operand_avals = [*(primal_avals[i] for i in inputs), *(split[0].known.outputs[i] for i in outputs), *stored]

    def known(half: _Half, place: list[int]) -> Traced:
        def run(*primals: Any) -> list[Any]:
            primal, own = cut(half.known(*primals), primal_outputs, len(half.stored))
            mine = dict(zip(place, own, strict=True))
            return [*primal, *(mine[i] if i in mine else filler(a) for i, a in enumerate(stored))]

        return Traced(run, primal_avals)

    def linear(half: _Half, place: list[int]) -> Traced:
        def position(residual: Residual) -> int:
            if residual.kind == "stored":
                return len(operands) + place[residual.at]
            return operands.index((residual.kind, residual.at))

        def run(*flat: Any) -> list[Any]:
            read, t = cut(flat, len(operand_avals), len(tangents))
            found = iter([read[position(r)] for r in half.residuals])
            constants = [next(found) if c is None else c for c in half.linear.constants]
            return internals.evaluate(half.linear.jaxpr, constants, t)

        return Traced(run, [*operand_avals, *tangents])

    linearity = Linearity(
        (False,) * len(operand_avals) + (True,) * len(tangents), (True,) * (len(is_tangent_out) - primal_outputs)
    )
    return Halves(
        Branches(known(split[0], places[0]), known(split[1], places[1]), owners=known_owners),
        Branches(
            linear(split[0], places[0]),
            linear(split[1], places[1]),
            linearity,
            owners=tuple(pick(owned, is_tangent_out)),
        ),
        inputs,
        outputs,
        primal_outputs,
    )


def _split(branches: Branches, which: bool, primals: list[Any], tangents: list[Any]) -> _Half:
    assert branches.linearity is not None
    owners = pick(branches.owners or (None,) * len(branches.outputs), complement(branches.linearity.outputs))
    primal_outputs = len(owners)
    linear = _Linear(None, [])

    def run(*args: Any) -> list[Any]:
        nonlocal linear
        outputs, push = _outputs_and_linear(branches, which, args)
        closed = jax.make_jaxpr(push)(*tangents)
        # Tracers that the linear function has captured, residuals, come out as the constants of its trace.
        is_residual = [isinstance(c, internals.Tracer) for c in closed.consts]
        linear = _Linear(closed.jaxpr, [None if r else c for c, r in zip(closed.consts, is_residual, strict=True)])
        return [*outputs, *pick(closed.consts, is_residual)]

    everything = Traced(run, primals)
    out, ins = everything.closed.jaxpr.outvars, everything.closed.jaxpr.invars
    names: dict[Any, Residual] = {}
    for i, (var, owner) in enumerate(zip(out, owners, strict=False)):
        if owner in (None, which):
            names.setdefault(_key(var), Residual("output", i))
    names |= {var: Residual("input", i) for i, var in enumerate(ins)}
    kept, residuals = list(range(primal_outputs)), []
    for i, var in enumerate(out[primal_outputs:], primal_outputs):
        if _key(var) not in names:
            names[_key(var)] = Residual("stored", len(kept) - primal_outputs)
            kept.append(i)
        residuals.append(names[_key(var)])
    is_kept = [i in kept for i in range(len(out))]
    known = Traced(lambda *args: pick(everything(*args), is_kept), primals)
    return _Half(known, linear, residuals, known.outputs[primal_outputs:])


def _key(var: Any) -> Any:
    """Literals are equal by value and then not hashable; each stands for itself."""
    return var if isinstance(var, internals.Var) else id(var)


def _outputs_and_linear(
    branches: Branches, which: bool, primals: Sequence[Any]
) -> tuple[list[Any], Callable[..., list[Any]]]:
    """Of one branch of a joint pair: its primal outputs, and its tangents as a linear function.

    They are taken from the branch that it differentiates, where that is known, so that a function with a
    `jax.custom_vjp` rule is met before its derivative has been taken. A pair that was batched when it was
    joint already has lost it, and is linearized in its tangents.
    """
    assert branches.linearity is not None
    if origin := branches.origin:
        function = with_active(origin.branches[which], origin.inputs, primals)
        with in_branch():
            outputs, push = jax.linearize(function, *pick(primals, origin.inputs))
        return outputs, lambda *t: pick(push(*t), origin.outputs)
    is_tangent, is_tangent_out = branches.linearity
    at_zero = zeros(pick(branches.inputs, is_tangent))
    whole = merge(complement(is_tangent), primals, branches.inputs)
    with in_branch():
        outputs, push = jax.linearize(with_active(branches[which], is_tangent, whole), *at_zero)
    return pick(outputs, complement(is_tangent_out)), lambda *t: pick(push(*t), is_tangent_out)


def room_for(wanted: Sequence[list[Any]], is_apart: bool) -> tuple[list[Any], list[list[int]]]:
    """Room for what each branch stores, shared by values of equal types unless apart; and where each value goes."""
    room: list[Any] = []
    places: list[list[int]] = []
    for avals in wanted:
        free = [] if is_apart else list(range(len(room)))
        place: list[int] = []
        for aval in avals:
            at = next((i for i in free if room[i] == aval), None)
            if at is None:
                at = len(room)
                room.append(aval)
            else:
                free.remove(at)
            place.append(at)
        places.append(place)
    return room, places


# ---- the transposed pair


@remembered
def transposed(branches: Branches, linear: Mask, cotangents: Mask) -> Branches:
    """(*inputs that are not linear, *cotangents of the masked outputs) -> cotangents of the linear inputs."""
    avals = pick(branches.inputs, complement(linear))
    ct_avals = [internals.cotangent_aval(a) for a in pick(branches.outputs, cotangents)]
    n = len(avals)

    def derived(branch: Traced) -> Traced:
        def run(*flat: Any) -> list[Any]:
            whole = merge(complement(linear), flat[:n], branches.inputs)

            def of_linear(*xs: Any) -> list[Any]:
                return pick(branch(*merge(linear, xs, whole)), cotangents)

            return list(jax.linear_transpose(of_linear, *pick(branches.inputs, linear))(list(flat[n:])))

        return Traced(run, [*avals, *ct_avals])

    linearity = Linearity((False,) * n + (True,) * len(ct_avals), (True,) * sum(linear))
    return Branches(derived(branches.true), derived(branches.false), linearity)
