"""The five primitives, declared without rules so that each rule may name any of them.

    loop             (constants, carry)                        -> carry'
    forward          (constants, carry)                        -> carry', cache
    tangent          (constants, carry, cache, tangents)       -> tangents'            linear in tangents
    reverse          (constants, carry, cache, cotangents)     -> sums, cotangents'    linear in cotangents
    reverse_tangent  (joint constants, joint carry, steps,
                      cotangents, their tangents)              -> tangents of reverse  linear in all tangents

`cache` is the stored states and where they are: a pure function of (constants, carry), so any
rule may drop it and run `forward` again, for as many steps. That closes the set under every transformation:
for the map (x, ct) -> J(x)^T ct, reverse mode with cotangent v needs J(x) v, a loop on the
doubled state, and the reverse gradient of x -> <J(x) v, ct>, a reverse sweep of that loop.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from dynloop.errors import DerivativeError
from dynloop.on_jax import internals, reporting

loop_p = internals.new_primitive("dynloop")
forward_p = internals.new_primitive("dynloop_forward")
tangent_p = internals.new_primitive("dynloop_tangent")
reverse_p = internals.new_primitive("dynloop_reverse")
reverse_tangent_p = internals.new_primitive("dynloop_reverse_tangent")


def define(primitive: Any, meaning: Callable[..., Any], outputs: Callable[..., list[Any]]) -> None:
    """Give a primitive its meaning in JAX operations, traced when it is lowered or evaluated.

    outputs: its abstract outputs for its parameters. Written down rather than traced, since tracing
    the meaning a second time would cost more than all else that is done before compiling.
    """

    def evaluate(*args: Any, **params: Any) -> Any:
        # What tells a listener of its runs is a program for that listener only.
        if reporting.is_on():
            return jax.jit(partial(meaning, **params))(*args)
        memory = params["loop"].memory
        entry = (primitive, params.get("step"), params.get("is_joint"))
        if entry not in memory:
            # The meaning, not the bind: under `jax.debug_nans` JAX runs once more, without its jit, what gave a NaN.
            memory[entry] = jax.jit(partial(meaning, **params))
        # The body was traced before; under `jax.disable_jit` its steps would be run equation by equation.
        with jax.disable_jit(False):
            return memory[entry](*args)

    def abstract(*avals: Any, **params: Any) -> Any:
        loop, step = params["loop"], params.get("step")
        traced, observed = [loop.cond, loop.body, *([step.run] if step else [])], loop.observed
        if observed and observed.watch and primitive in (loop_p, forward_p):
            traced.append(observed.watch)
        effects = set().union(*(function.closed.effects for function in traced))
        if primitive is not loop_p and any(map(internals.is_ordered, effects)):
            raise DerivativeError(
                "a loop whose body or cond has an ordered effect has no reverse mode, which runs steps again and out "
                "of order; make the callback unordered, which then fires in repeated steps too, or use jax.jvp"
            )
        if observed and observed.report and primitive in (reverse_p, reverse_tangent_p):
            effects |= internals.callback_effects()
        return outputs(**params), effects

    primitive.def_impl(evaluate)
    primitive.def_effectful_abstract_eval(abstract)
    internals.set_lowering(primitive, meaning)
