"""Functions traced once: the form in which conds, bodies and their derivatives are kept.

A `Traced` knows its abstract inputs and outputs and runs by evaluating a jaxpr, so the user's
Python code runs once whatever is derived from it. What is derived from a loop is remembered on
the loop itself (`remembered`): a derived loop must keep its identity, because JAX's caches
compare the parameters of a primitive, and a new one each time would trace and compile again.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from dynloop.on_jax import internals
from dynloop.on_jax.flat import Mask, merge, pick


class Traced:
    """A flat function `(*inputs) -> list`, traced at abstract values that keep weak types."""

    def __init__(self, function: Callable[..., Any], avals: Sequence[Any]):
        self.closed = jax.make_jaxpr(function)(*avals)
        self.run = internals.as_function(self.closed)
        self.inputs: list[Any] = list(avals)
        self.outputs: list[Any] = list(self.closed.out_avals)
        self.memory: dict[Any, Any] = {}

    @property
    def effects(self) -> frozenset[Any]:
        return frozenset(self.closed.effects)

    def __call__(self, *args: Any) -> list[Any]:
        return self.run(*args)


def remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Cache `function(owner, *key)` on `owner.memory`, so that it lives as long as its owner."""

    @functools.wraps(function)
    def wrapper(owner: Any, *key: Any) -> Any:
        entry = (function, key)
        if entry not in owner.memory:
            owner.memory[entry] = function(owner, *key)
        return owner.memory[entry]

    return wrapper


def tangent_avals(avals: Sequence[Any]) -> list[Any]:
    return [internals.tangent_aval(a) for a in avals]


def zeros(avals: Sequence[Any]) -> list[Any]:
    return [internals.zeros_of(a) for a in avals]


def with_active(function: Callable[..., Any], mask: Mask, args: Sequence[Any]) -> Callable[..., Any]:
    """`function` of its masked arguments only; the others are closed over.

    Differentiating the result never meets an integer argument, hence no float0 tangent.
    """
    return lambda *active: function(*merge(mask, active, args))


def pushforward(function: Traced, mask: Mask, out_mask: Mask) -> Callable[..., Any]:
    """`(*args, *tangents[mask]) -> (outputs, tangents[out_mask])`."""

    def run(*flat: Any) -> tuple[list[Any], list[Any]]:
        args, tangents = flat[: len(mask)], flat[len(mask) :]
        if not any(mask):
            return function(*args), zeros(tangent_avals(pick(function.outputs, out_mask)))
        outputs, out_tangents = jax.jvp(with_active(function, mask, args), pick(args, mask), list(tangents))
        return outputs, pick(out_tangents, out_mask)

    return run
