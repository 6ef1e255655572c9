"""`after`: values that do not exist before others do.

XLA may run what depends on nothing whenever it likes, and it likes to early: a forward pass that a later sweep needs
then fills its buffers while another sweep's are still in use. `jax.lax.optimization_barrier` does not prevent that,
since it is taken away before the program is put in order; so the values are made to depend on the others by a
comparison whose outcome XLA does not see.

It is a primitive of its own because the values do not depend on what comes first in any other way: a batch of that
makes no batch of them, no tangent passes from it, and values that are known stay known where it is not, so that what is
computed of them is no linear function of it.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from dynloop.on_jax import internals
from dynloop.on_jax.flat import complement, cut, merge, pick

after_p = internals.new_primitive("dynloop_after")


def after(values: Sequence[Any], first: Sequence[Any]) -> list[Any]:
    """The values, unchanged, none of whose floating ones is there before all of `first` are."""
    shared = frozenset.intersection(*(internals.varying_axes([x]) for x in values)) if values else frozenset()
    first = [x for x in first if _can_delay(jax.typeof(x), shared)]
    return after_p.bind(*values, *first, count=len(values)) if values and first else list(values)


def _can_delay(aval: Any, shared: frozenset[str]) -> bool:
    """Can one of its entries be read here, without a mesh axis over which the values are the same or it is laid out?"""
    return (
        jnp.issubdtype(aval.dtype, jnp.inexact)
        and aval.size > 0
        and internals.varying_axes([aval]) <= shared
        and internals.explicit_sharding(aval) is None
    )


def _meaning(*flat: Any, count: int) -> list[Any]:
    values, first = cut(flat, count, len(flat) - count)
    entries: list[Array] = [jnp.real(x[(0,) * x.ndim]).astype(jnp.int32) for x in first]
    # No integer becomes zero by setting its lowest bit; XLA does not reason about bits.
    always = (sum(entries[1:], entries[0]) | 1) != 0
    return [jnp.where(always, x, 0) if jnp.issubdtype(x.dtype, jnp.inexact) else x for x in values]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, count: int) -> tuple[list[Any], list[Any]]:
    return after_p.bind(*primals, count=count), list(tangents[:count])


def _batch(axis_data: Any, args: Sequence[Any], dims: Sequence[Any], *, count: int) -> tuple[list[Any], list[Any]]:
    first = [
        x if d is None else jax.lax.index_in_dim(x, 0, d, keepdims=False)
        for x, d in zip(args[count:], dims[count:], strict=True)
    ]
    return after_p.bind(*args[:count], *first, count=count), list(dims[:count])


def _partial_eval(trace: Any, *tracers: Any, count: int) -> list[Any]:
    values, first = cut(tracers, count, len(tracers) - count)
    is_known = [internals.is_known(x) for x in values]
    known_first = [x for x in first if internals.is_known(x)]
    known, unknown = pick(values, is_known), pick(values, complement(is_known))
    if known and known_first:
        known = internals.bind_partly(trace, after_p, [*known, *known_first], {"count": len(known)})
    if unknown:
        unknown = internals.bind_partly(trace, after_p, [*unknown, *first], {"count": len(unknown)})
    return merge(is_known, known, merge(complement(is_known), unknown, values))


def _transpose(cotangents: Sequence[Any], *args: Any, count: int) -> list[Any]:
    given = [None if internals.is_zero(ct) else ct for ct in cotangents]
    return [*internals.asked_for(given, args[:count]), *[None] * (len(args) - count)]


after_p.def_impl(lambda *args, **params: jax.jit(partial(_meaning, **params))(*args))
after_p.def_abstract_eval(lambda *avals, count: list(avals[:count]))
internals.set_lowering(after_p, _meaning)
internals.set_jvp(after_p, _jvp)
internals.set_batching(after_p, _batch)
internals.set_partial_eval(after_p, _partial_eval)
internals.set_transpose(after_p, _transpose)
