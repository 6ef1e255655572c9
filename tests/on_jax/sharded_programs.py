"""Programs for several devices: run by test_sharding.py in a process with 8 devices.

What they communicate inside and outside of their loops; carries and batches that `jax.jit` or explicit axes of a
mesh divide among the devices. A case returns (found, expected).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import dynloop
from tests.on_jax.device_process import report
from tests.on_jax.programs import collectives, compiled, lines_inside_loops, temporary_bytes
from tests.on_jax.sharded_loops import XS, W, mesh, on_devices

SIZE = 2**13


def communicated(f: Any, *args: Any) -> tuple[int, int]:
    """How many operations of the compiled program wait for other devices: inside its loops, and outside."""
    text = compiled(f, *args).as_text()
    inside = len(collectives(lines_inside_loops(text)))
    return inside, len(collectives(text.splitlines())) - inside


def times(w: Any, x: Any) -> Any:
    return dynloop.while_loop(lambda y: y < 10, lambda y: w * y, x, checkpoints=2)


def reported_steps() -> tuple[Any, Any]:
    """Each device tells of its own run, forward and back."""
    f = on_devices(lambda w, x: times(w, x[0])[None], True, (jax.P(), jax.P("i")), jax.P("i"))
    (loop,) = dynloop.explain(jax.grad(lambda w: jnp.sum(f(w, XS))))(W).loops
    steps = []
    for x in XS.tolist():
        steps.append(0)
        while x < 10:
            x, steps[-1] = W.item() * x, steps[-1] + 1
    found = [loop.runs, loop.reversals, loop.steps, loop.longest]
    return found, [len(steps), len(steps), sum(steps), max(steps)]


# ---- what devices say to each other


def gradient_is_summed_once(check: bool) -> tuple[Any, Any]:
    def local(w: Any, x: Any) -> Any:
        return times(w, x[0])[None]

    f = on_devices(local, check, (jax.P(), jax.P("i")), jax.P("i"))
    return communicated(jax.grad(lambda w, x: jnp.sum(f(w, x))), W, XS), (0, 1)


def second_gradient_is_summed_once(check: bool) -> tuple[Any, Any]:
    f = on_devices(lambda w, x: times(w, x[0])[None], check, (jax.P(), jax.P("i")), jax.P("i"))
    slope = jax.grad(lambda w, x: jnp.sum(f(w, x)))
    inside, outside = communicated(lambda w, x: jax.jvp(slope, (w, x), (jnp.ones(()), x))[1], W, XS)
    return (inside, int(outside > 0)), (0, 1)


def communication_inside_a_loop_is_seen(check: bool) -> tuple[Any, Any]:
    def local(w: Any, x: Any) -> Any:
        return dynloop.while_loop(lambda y: y < 50, lambda y: w * y + lax.psum(y, "i"), x[0], sync="any")[None]

    inside, _ = communicated(on_devices(local, check, (jax.P(), jax.P("i")), jax.P("i")), W, XS)
    return int(inside > 0), 1


# ---- jax.jit divides


def batch_divided_by_jit() -> tuple[Any, Any]:
    xs = jax.device_put(XS, jax.NamedSharding(mesh(i=4), jax.P("i")))
    f = jax.jit(jax.grad(lambda w, xs: jnp.sum(jax.vmap(times, (None, 0))(w, xs)), (0, 1)))
    return f(W, xs), (50.0, [16.0, 4.0, 2.0, 1.0])


def large_carry(x: Any, w: Any) -> Any:
    body = lambda y: jnp.sin(y) * w + y
    return jnp.sum(dynloop.while_loop(lambda y: jnp.sum(y) < 2 * SIZE, body, x, checkpoints=4))


def large_carry_divided_by_jit() -> tuple[Any, Any]:
    layout = jax.NamedSharding(mesh(i=8), jax.P("i"))
    x, w = jnp.linspace(1.0, 2.0, SIZE), jnp.linspace(0.1, 0.2, SIZE)
    slope = jax.jit(jax.grad(large_carry, (0, 1)))
    found = slope(jax.device_put(x, layout), jax.device_put(w, layout))
    kept_apart = [int(g.sharding.is_equivalent_to(layout, 1)) for g in found]
    return (found, kept_apart), (slope(x, w), [1, 1])


def memory_divided_by_jit() -> tuple[Any, Any]:
    """Each of 8 devices needs an eighth of the memory, apart from a few numbers."""
    layout = jax.NamedSharding(mesh(i=8), jax.P("i"))
    x = jnp.ones(8 * SIZE)

    needed = partial(temporary_bytes, jax.grad(large_carry, (0, 1)))
    divided = jax.device_put(x, layout)
    return int(needed(divided, divided) < needed(x, x) / 8 + 2**14), 1


# ---- explicit axes


def explicit(f: Callable[[Any, Any], Any], x: Any) -> Any:
    """f(w, x) where the first axis of x is divided by an explicit axis of the mesh."""
    devices = jax.make_mesh((4,), ("i",), axis_types=(jax.sharding.AxisType.Explicit,), devices=jax.devices()[:4])
    with jax.set_mesh(devices):
        found = jax.jit(f)(W, jax.device_put(x, jax.P("i")))
        return jax.device_get(found)


def total(w: Any, x: Any) -> Any:
    return jnp.sum(dynloop.while_loop(lambda y: jnp.sum(y) < 1000, lambda y: w * y + y**2 * 1e-3, x, checkpoints=2))


def scanned(w: Any, x: Any) -> Any:
    carry, ys = dynloop.scan(lambda c, r: (c * w + r, c * r), jnp.sum(x), x * w, checkpoints=2)
    return carry + jnp.sum(ys)


def explicit_carry() -> tuple[Any, Any]:
    f = lambda w, x: jax.jvp(jax.value_and_grad(total, (0, 1)), (w, x), (jnp.ones(()), x))
    return explicit(f, XS), f(W, XS)


def explicit_rows_of_a_scan() -> tuple[Any, Any]:
    """xs is divided along another axis than that of the steps."""
    f = lambda w, x: jax.value_and_grad(lambda w, x: jnp.sum(scan_over_columns(w, x)), (0, 1))(w, x)
    x = jnp.outer(XS, jnp.arange(1.0, 4.0))
    return explicit(f, x), f(W, x)


def scan_over_columns(w: Any, x: Any) -> Any:
    return dynloop.scan(lambda c, r: (c * w + r, c * r), x[:, 0], x.T, checkpoints=2)[1]


def explicit_lanes_of_one_length() -> tuple[Any, Any]:
    f = lambda w, x: jax.grad(lambda w, x: jnp.sum(jax.vmap(scanned, (None, 0))(w, x)), (0, 1))(w, x)
    x = jnp.outer(XS, jnp.arange(1.0, 4.0))
    return explicit(f, x), f(W, x)


def explicit_carry_of_lanes() -> tuple[Any, Any]:
    """Lanes along one axis, which stop by themselves, and devices along the other."""
    f = lambda w, x: jax.grad(lambda w, x: jnp.sum(jax.vmap(total, (None, 1))(w, x)), (0, 1))(w, x)
    x = jnp.outer(XS, jnp.arange(1.0, 4.0))
    return explicit(f, x), f(W, x)


def explicit_lanes_are_refused() -> tuple[Any, Any]:
    try:
        explicit(jax.vmap(times, (None, 0)), XS)
    except dynloop.BatchingError as error:
        return int("auto_axes" in str(error) and "shard_map" in str(error)), 1
    return 0, 1


def explicit_lanes_as_advised(way: str) -> tuple[Any, Any]:
    def f(w: Any, x: Any) -> Any:
        lanes = jax.vmap(times, (None, 0))
        if way == "auto_axes":
            auto: Any = jax.sharding.auto_axes(lanes, out_sharding=jax.P("i"))
            return jnp.sum(auto(w, x))
        return jnp.sum(jax.shard_map(lanes, in_specs=(jax.P(), jax.P("i")), out_specs=jax.P("i"))(w, x))

    return explicit(jax.grad(f, (0, 1)), XS), (50.0, [16.0, 4.0, 2.0, 1.0])


CASES: dict[str, Callable[[], tuple[Any, Any]]] = {
    **{
        f"{f.__name__}, check_vma={check}".replace("_", " "): partial(f, check)
        for f in (gradient_is_summed_once, second_gradient_is_summed_once, communication_inside_a_loop_is_seen)
        for check in (True, False)
    },
    **{
        f.__name__.replace("_", " "): f
        for f in (
            batch_divided_by_jit,
            large_carry_divided_by_jit,
            memory_divided_by_jit,
            explicit_carry,
            explicit_rows_of_a_scan,
            explicit_lanes_of_one_length,
            explicit_carry_of_lanes,
            explicit_lanes_are_refused,
            reported_steps,
        )
    },
    **{f"explicit lanes by {way}": partial(explicit_lanes_as_advised, way) for way in ("auto_axes", "shard_map")},
}

if __name__ == "__main__":
    report(CASES)
