"""Arrays in pinned memory of the host, inside a program: made, written and read by rows, and nothing else.

XLA's host offloader follows such an array from a broadcast, through while loops, to a `dynamic_update_slice` of a row
that was moved to the host, and to a `dynamic_slice` that is moved to the device. Whatever else a program does with it
would be computed on the host, or not at all. On CPUs the moves are nothing, and the types are the same.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from dynloop.on_jax import internals


def host_avals(aval: Any, rows: int) -> Any:
    """The abstract value of so many rows, each like this, in pinned memory of the host; of keys, their numbers."""
    plain = jax.make_jaxpr(_numbers)(aval).out_avals[0]
    return internals.stacked_aval(plain, rows).update(memory_space=internals.HOST)


def _numbers(x: Any) -> Any:
    """Typed keys as the numbers they consist of: arrays of keys do not tell where they lie."""
    return jax.random.key_data(x) if internals.is_extended(x.dtype) else x


def _filled(x: Any, *, count: int) -> list[Any]:
    # With a value that no other broadcast has: XLA would make one of two that are equal, and give both to the host.
    rows = jax.lax.broadcast(_numbers(x), (count,))
    if jnp.issubdtype(rows.dtype, jnp.inexact):
        return [jax.lax.full_like(rows, jnp.nan)]
    return [jax.lax.full_like(rows, True if rows.dtype == bool else jnp.iinfo(rows.dtype).max)]


def host_rows(x: Any, count: int) -> Any:
    """An array in memory of the host, of this many rows, each of the type of `x`; what they hold is not to be read.

    It is not moved there from the device, where there may be no room for it: XLA allocates what is broadcast, and then
    only written by `put_in_host`, on the host.
    """
    return _host_rows_p.bind(x, count=count)[0]


_host_rows_p = internals.new_primitive("dynloop_host_rows")
_host_rows_p.def_abstract_eval(lambda aval, count: [host_avals(aval, count)])
internals.set_lowering(_host_rows_p, _filled)


@_host_rows_p.def_impl
def _evaluate_host_rows(x: Any, *, count: int) -> list[Any]:
    return jax.jit(lambda x: _host_rows_p.bind(x, count=count))(x)


def unread(aval: Any) -> Any:
    """Something of this abstract value that nobody reads."""
    if not internals.is_on_host(aval):
        return internals.zeros_of(aval)
    return host_rows(internals.zeros_of(internals.row_aval(aval.update(memory_space=internals.DEVICE))), aval.shape[0])


def on_host(values: Sequence[Any]) -> list[Any]:
    """The values, those among them that lie on the host being told to JAX, which gives results their place by that.

    JAX looks for moves to the host in a program and the functions among its parameters; so here is one.
    """
    found = [internals.is_on_host(jax.typeof(x)) for x in values]
    moved = iter(
        _on_host_p.bind(*[x for x, f in zip(values, found, strict=True) if f], move=_move()) if any(found) else ()
    )
    return [next(moved) if f else x for x, f in zip(values, found, strict=True)]


@cache
def _move() -> Any:
    return jax.make_jaxpr(lambda x: jax.device_put(x, internals.HOST))(jax.ShapeDtypeStruct((), jnp.int32))


_on_host_p = internals.new_primitive("dynloop_on_host")
_on_host_p.def_impl(lambda *xs, move: list(xs))
_on_host_p.def_abstract_eval(lambda *avals, move: list(avals))
internals.set_lowering(_on_host_p, lambda *xs, move: list(xs))
internals.set_jvp(_on_host_p, lambda xs, tangents, move: (_on_host_p.bind(*xs, move=move), list(tangents)))
internals.set_batching(_on_host_p, lambda axis, xs, dims, move: (_on_host_p.bind(*xs, move=move), list(dims)))


def taken_for_host(x: Any) -> Any:
    """An array of the host that JAX has lost sight of, as `jax.shard_map` outside of `jax.jit` does."""
    return x if internals.is_on_host(jax.typeof(x)) else _taken_for_host_p.bind(x)[0]


_taken_for_host_p = internals.new_primitive("dynloop_taken_for_host")
_taken_for_host_p.def_abstract_eval(lambda aval: [aval.update(memory_space=internals.HOST)])
internals.set_lowering(_taken_for_host_p, lambda x: [x])


def put_in_host(rows: Any, x: Any, row: Any) -> Any:
    """Rows in memory of the host with one of them written from the device."""
    moved = jax.device_put(jax.lax.expand_dims(_numbers(x), (0,)), internals.HOST)
    return jax.lax.dynamic_update_slice_in_dim(rows, moved, row, 0)


def get_from_host(rows: Any, row: Any, like: Any) -> Any:
    """One of the rows in memory of the host, on the device, of the dtype of `like`."""
    moved = jax.device_put(jax.lax.dynamic_slice_in_dim(rows, row, 1), internals.DEVICE)
    x = jax.lax.squeeze(moved, (0,))
    return jax.random.wrap_key_data(x, impl=jax.random.key_impl(like)) if internals.is_extended(like.dtype) else x
