"""`guard`: an identity that raises while the program runs, and whose derivatives raise too.

A check on a loop's output alone is dead code when only the gradient is used: the compiler drops
the output and the check with it. The guard is linear in what it passes, so its tangent and its
transpose are guards as well, on the tangents and on the cotangents that the reverse sweep reads.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from dynloop.on_jax import internals

guard_p = internals.new_primitive("dynloop_guard")


def guarded(pred: Any, xs: Sequence[Any], message: str) -> list[Any]:
    """`xs`; running it raises `message` where the boolean scalar `pred` holds."""
    return guard_p.bind(pred, *xs, message=message)


def _meaning(pred: Any, *xs: Any, message: str) -> list[Any]:
    return eqx.error_if(list(xs), pred, message)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, message: str) -> tuple[list[Any], list[Any]]:
    pred = primals[0]
    out_tangents = [
        guarded(pred, [internals.instantiate(t)], message)[0] if internals.has_value(t) else t for t in tangents[1:]
    ]
    return guarded(pred, primals[1:], message), out_tangents


def _transpose(cotangents: Sequence[Any], pred: Any, *xs: Any, message: str) -> list[Any]:
    def back(x: Any, ct: Any) -> Any:
        if not internals.is_linear_input(x):
            return None
        return guarded(pred, [internals.instantiate(ct)], message)[0] if internals.has_value(ct) else ct

    return [None, *map(back, xs, cotangents)]


def _batch(axis_data: Any, args: Sequence[Any], dims: Sequence[Any], *, message: str) -> tuple[list[Any], list[Any]]:
    pred = args[0] if dims[0] is None else jnp.any(args[0], axis=dims[0])
    return guarded(pred, args[1:], message), list(dims[1:])


guard_p.def_impl(_meaning)
guard_p.def_abstract_eval(lambda pred, *avals, message: list(avals))
internals.set_lowering(guard_p, _meaning)
internals.set_jvp(guard_p, _jvp)
internals.set_transpose(guard_p, _transpose)
internals.set_batching(guard_p, _batch)
