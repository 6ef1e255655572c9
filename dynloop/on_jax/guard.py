"""`guard`: an identity that raises while the program runs, and whose derivatives raise too.

A check on a loop's output alone is dead code when only the gradient is used: the compiler drops
the output and the check with it. The guard is linear in what it passes, so its tangent and its
transpose are guards as well, on the tangents and on the cotangents that the reverse sweep reads.

To raise, the program calls Python. One that is exported, or compiled for a machine without such
calls, cannot: the guard refuses to be lowered there, rather than to pass what it should have stopped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from dynloop.errors import ArgumentError
from dynloop.on_jax import internals
from dynloop.on_jax.flat import merge, pick
from dynloop.on_jax.varying import vary_all


@dataclass(frozen=True)
class Alarm:
    """message: what the running program raises.   cause: what the user gave that made it look.

    advice: what to give instead where no program can raise.
    """

    message: str
    cause: str
    advice: str


guard_p = internals.new_primitive("dynloop_guard")


def guarded(pred: Any, xs: Sequence[Any], alarm: Alarm) -> list[Any]:
    """`xs`; running it raises the alarm's message where the boolean scalar `pred` holds."""
    return guard_p.bind(pred, *xs, alarm=alarm)


def _meaning(pred: Any, *xs: Any, alarm: Alarm) -> list[Any]:
    # A known predicate needs no callback; error_if raises for a false one inside of `jax.ensure_compile_time_eval`.
    if not isinstance(pred, internals.Tracer) and not bool(pred):
        return list(xs)
    names = internals.varying_axes([pred, *xs])
    if not names:
        return eqx.error_if(list(xs), pred, alarm.message)
    # The branches of error_if do not vary alike between devices, which matters while it is traced and never after.
    same = [internals.shaped(x.shape, x.dtype) for x in (pred, *xs)]
    closed = jax.make_jaxpr(lambda pred, *xs: eqx.error_if(list(xs), pred, alarm.message))(*same)
    return vary_all(internals.evaluate(closed.jaxpr, closed.consts, [pred, *xs]), names)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, alarm: Alarm) -> tuple[list[Any], list[Any]]:
    return guarded(primals[0], primals[1:], alarm), _guarded_values(primals[0], tangents[1:], alarm)


def _transpose(cotangents: Sequence[Any], pred: Any, *xs: Any, alarm: Alarm) -> list[Any]:
    linear = [internals.is_linear_input(x) for x in xs]
    passed = _guarded_values(pred, pick(cotangents, linear), alarm)
    return [None, *merge(linear, passed, [None] * len(xs))]


def _guarded_values(pred: Any, tangents: Sequence[Any], alarm: Alarm) -> list[Any]:
    """One guard for all tangents, or cotangents, that are not zero for certain."""
    mask = [internals.has_value(t) for t in tangents]
    if not any(mask):
        return list(tangents)
    return merge(mask, guarded(pred, [internals.instantiate(t) for t in pick(tangents, mask)], alarm), tangents)


def _batch(axis_data: Any, args: Sequence[Any], dims: Sequence[Any], *, alarm: Alarm) -> tuple[list[Any], list[Any]]:
    pred = args[0] if dims[0] is None else jnp.any(args[0], axis=dims[0])
    return guarded(pred, args[1:], alarm), list(dims[1:])


def _refusal(reason: str, *, alarm: Alarm) -> ArgumentError:
    return ArgumentError(
        f"{alarm.cause} needs a program that can call Python while it runs, and this one cannot ({reason}). "
        + alarm.advice
    )


guard_p.def_impl(_meaning)
guard_p.def_abstract_eval(lambda pred, *avals, alarm: list(avals))
internals.set_calling_lowering(guard_p, _meaning, _refusal)
internals.set_jvp(guard_p, _jvp)
internals.set_transpose(guard_p, _transpose)
internals.set_batching(guard_p, _batch)
