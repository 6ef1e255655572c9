"""Loops on several devices beside the same loops in Python: run by test_sharding.py in a process with 8 devices.

A case returns (found, expected). Most are one function of (loops, w, x), run by each device on its own x and
summed over the devices; the oracle runs it with Python's loops on one x after the other.
"""

from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import dynloop
from tests.on_jax.device_process import report

XS = jnp.asarray([1.0, 3.0, 6.0, 20.0])
"""Doubled while below 10: 4, 2, 1 and 0 steps."""
W = jnp.asarray(2.0)


def mesh(**sizes: int) -> Any:
    devices = jax.devices()[: int(np.prod(list(sizes.values())))]
    kinds = (jax.sharding.AxisType.Auto,) * len(sizes)
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=kinds, devices=devices)


def on_devices(f: Any, check: bool, ins: Any, outs: Any, **sizes: int) -> Any:
    return jax.shard_map(f, mesh=mesh(**(sizes or {"i": 4})), in_specs=ins, out_specs=outs, check_vma=check)


# ---- Python's loops


def plain_while(cond: Any, body: Any, carry: Any) -> Any:
    while bool(cond(carry)):
        carry = body(carry)
    return carry


def plain_fori(lower: Any, upper: Any, body: Any, carry: Any) -> Any:
    for i in range(int(lower), int(upper)):
        carry = body(i, carry)
    return carry


def plain_scan(step: Any, carry: Any, xs: Any, until: Any) -> Any:
    ys = []
    for x in xs:
        if bool(until(carry)):
            break
        carry, y = step(carry, x)
        ys.append(y)
    return carry, jnp.stack(ys + [jnp.zeros(())] * (len(xs) - len(ys)))


def plain_cond(pred: Any, yes: Any, no: Any, *operands: Any) -> Any:
    return yes(*operands) if bool(pred) else no(*operands)


PLAIN = SimpleNamespace(while_loop=plain_while, fori_loop=plain_fori, scan=plain_scan, cond=plain_cond)
OURS = SimpleNamespace(
    cond=lax.cond,
    while_loop=partial(dynloop.while_loop, checkpoints=2),
    fori_loop=partial(dynloop.fori_loop, checkpoints=2),
    scan=partial(dynloop.scan, checkpoints=2),
)


# ---- one function of (loops, w, x), summed over the devices


def growing(body: Callable[[Any, Any], Any]) -> Any:
    return lambda loops, w, x: loops.while_loop(lambda y: y < 10, lambda y: body(w, y), x)


def branches(loops: Any, w: Any, x: Any) -> Any:
    return growing(lambda w, y: loops.cond(y > 2, lambda y: w * y, lambda y: w * y * 1.1, y))(loops, w, x)


def branches_of_shared(loops: Any, w: Any, x: Any) -> Any:
    return growing(lambda w, y: y * loops.cond(w > 1, lambda: w, lambda: -w))(loops, w, x)


def indexed(loops: Any, w: Any, x: Any) -> Any:
    return loops.fori_loop(0, (x % 5).astype(int), lambda i, y: w * y + i, x)


def stopping_scan(loops: Any, w: Any, x: Any) -> Any:
    carry, ys = loops.scan(lambda c, r: (c * w + r, c * r), x, jnp.arange(1.0, 5.0) * w, until=lambda c: c > 30)
    return carry + jnp.sum(ys)


def inner_loop(loops: Any, w: Any, x: Any) -> Any:
    def body(y: Any) -> Any:
        return loops.while_loop(lambda z: z < 1.5 * y, lambda z: z * w**0.5, 0.9 * y)

    return loops.while_loop(lambda y: y < 10, body, x)


def inner_scan(loops: Any, w: Any, x: Any) -> Any:
    """With the cast that the error message of such a loop advises."""
    if loops is PLAIN:
        return growing(lambda w, y: y * w**0.5 * w**0.5)(loops, w, x)
    if jax.typeof(x).mat.varying:
        w = lax.pcast(w, ("i",), to="varying")
    return growing(lambda w, y: lax.scan(lambda c, _: (c * w**0.5, None), y, None, length=2)[0])(loops, w, x)


product = growing(lambda w, y: w * y + 0.1 * w**2)
FUNCTIONS: dict[str, Any] = {
    "product": product,
    "jitted pieces": growing(jax.jit(lambda w, y: jnp.where(y > 2, w * y, w * y * 1.1))),
    "branches": branches,
    "branches of shared values": branches_of_shared,
    "fori_loop": indexed,
    "scan with until": stopping_scan,
    "loop in a loop": inner_loop,
    "scan in a loop, cast as advised": inner_scan,
}


def derivatives(f: Any, w: Any, x: Any) -> list[Any]:
    """Value, gradient, tangent and Hessian."""
    one = jnp.ones(())
    value, gradient = jax.value_and_grad(f, (0, 1))(w, x)
    return [value, gradient, *jax.jvp(jax.grad(f), (w, x), (one, 0 * x)), jax.jvp(f, (w, x), (one, x))[1]]


@cache
def unrolled(f: Any) -> list[Any]:
    return derivatives(lambda w, xs: sum(f(PLAIN, w, x) for x in xs), W, XS)


def reversed_twice(check: bool) -> tuple[Any, Any]:
    f = on_devices(lambda w, x: lax.psum(product(OURS, w, x[0]), "i"), check, (jax.P(), jax.P("i")), jax.P())
    return jax.jit(jax.grad(jax.grad(f)))(W, XS), unrolled(product)[3]


def summed(f: Any, check: bool) -> tuple[Any, Any]:
    def local(w: Any, x: Any) -> Any:
        return lax.psum(f(OURS, w, x[0]), "i")

    everywhere = on_devices(local, check, (jax.P(), jax.P("i")), jax.P())
    return jax.jit(partial(derivatives, everywhere))(W, XS), unrolled(f)


# ---- other ways to use the devices


def doubled(x: Any, **options: Any) -> Any:
    return dynloop.while_loop(lambda y: y < 10, lambda y: 2 * y, x, checkpoints=2, **options)


def local_gradients(check: bool, devices: int) -> tuple[Any, Any]:
    """Of the sum, taken outside, and taken inside by each device; devices past the fourth take no step."""
    f = on_devices(lambda x: doubled(x[0])[None], check, jax.P("i"), jax.P("i"), i=devices)
    inside = on_devices(lambda x: jax.grad(doubled)(x[0])[None], check, jax.P("i"), jax.P("i"), i=devices)
    more = devices - 4
    xs = jnp.concatenate([XS, jnp.full(more, 20.0)])
    found = jax.jit(lambda x: (f(x), jax.grad(lambda x: jnp.sum(f(x)))(x), inside(x)))(xs)
    gradient = [16.0, 4.0, 2.0, 1.0] + [1.0] * more
    return found, ([16.0, 12.0, 12.0, 20.0] + [20.0] * more, gradient, gradient)


def replicated(check: bool, devices: int) -> tuple[Any, Any]:
    def local(w: Any, x: Any) -> Any:
        return lax.psum(dynloop.while_loop(lambda y: y < 10, lambda y: w * y, x[0], checkpoints=2), "i")

    f = on_devices(local, check, (jax.P(), jax.P("i")), jax.P(), i=devices)
    xs = jnp.concatenate([XS, jnp.full(devices - 4, 20.0)])
    return jax.jit(jax.value_and_grad(f))(W, xs), (60.0 + 20 * (devices - 4), 50.0)


def lanes_on_devices(check: bool) -> tuple[Any, Any]:
    """Two lanes on each of two devices, one of them without a step."""

    def local(w: Any, x: Any) -> Any:
        return lax.psum(jnp.sum(jax.vmap(partial(branches, OURS), (None, 0))(w, x)), "i")

    f = on_devices(local, check, (jax.P(), jax.P("i")), jax.P(), i=2)
    xs = jnp.asarray([3.0, 20.0, 6.0, 1.0])
    value, gradient = jax.jit(jax.value_and_grad(f, (0, 1)))(W, xs)
    expected, (for_w, for_x) = unrolled(branches)[:2]
    return (value, gradient), (expected, (for_w, for_x[jnp.asarray([1, 3, 2, 0])]))


def two_axes(check: bool) -> tuple[Any, Any]:
    xs = jnp.concatenate([XS, 1.3 * XS])

    def local(w: Any, x: Any) -> Any:
        return lax.psum(product(OURS, w, x[0]), ("i", "j"))

    everywhere = on_devices(local, check, (jax.P(), jax.P(("i", "j"))), jax.P(), i=4, j=2)
    found = jax.jit(jax.value_and_grad(everywhere, (0, 1)))(W, xs)
    return found, jax.value_and_grad(lambda w, xs: sum(product(PLAIN, w, x) for x in xs), (0, 1))(W, xs)


def one_of_two_axes(check: bool) -> tuple[Any, Any]:
    """w differs along j, x along i."""
    ws = jnp.asarray([2.0, 1.5])

    def local(w: Any, x: Any) -> Any:
        return lax.psum(product(OURS, w[0], x[0]), ("i", "j"))

    everywhere = on_devices(local, check, (jax.P("j"), jax.P("i")), jax.P(), i=4, j=2)
    found = jax.jit(jax.value_and_grad(everywhere, (0, 1)))(ws, XS)
    return found, jax.value_and_grad(lambda ws, xs: sum(product(PLAIN, w, x) for w in ws for x in xs), (0, 1))(ws, XS)


# ---- devices that go on together


def together(form: Any, check: bool) -> tuple[Any, Any]:
    """The body has the sum over all devices in it; beside it one loop on the whole array."""

    def local(w: Any, x: Any) -> Any:
        options: dict[str, Any] = {"checkpoints": 2, "sync": "any"}
        loops = SimpleNamespace(**{n: partial(getattr(dynloop, n), **options) for n in ("while_loop", "fori_loop")})
        return lax.psum(form(loops, w, x[0], lambda y: lax.psum(y, "i"), lambda b: b), "i")

    everywhere = on_devices(local, check, (jax.P(), jax.P("i")), jax.P())
    w = jnp.asarray(1.1)
    found = jax.jit(partial(derivatives, everywhere))(w, XS)
    return found, derivatives(lambda w, x: jnp.sum(form(PLAIN, w, x, jnp.sum, jnp.max)), w, XS)


def while_together(loops: Any, w: Any, x: Any, total: Any, most: Any) -> Any:
    return loops.while_loop(lambda y: most(-y) > -50, lambda y: w * y + 0.1 * total(y), x)


def fori_together(loops: Any, w: Any, x: Any, total: Any, most: Any) -> Any:
    return loops.fori_loop(0, most(x).astype(int) // 4, lambda i, y: w * y + 0.1 * total(y), x)


# ---- bounds, per device


def per_device(check: bool, **options: Any) -> Any:
    def local(x: Any) -> Any:
        result = doubled(x[0], max_steps=2, full_output=True, **options)
        return jax.tree.map(lambda x: x[None], (result.carry, result.steps, result.status))

    def slope(x: Any) -> Any:
        return jax.grad(lambda x: doubled(x, max_steps=2, **options))(x[0])[None]

    run, slopes = (on_devices(f, check, jax.P("i"), jax.P("i")) for f in (local, slope))
    return jax.jit(lambda x: (*run(x), slopes(x)))(XS)


def stopped_at_a_bound(check: bool) -> tuple[Any, Any]:
    bound, done = dynloop.StoppedBecause.BOUND.value, dynloop.StoppedBecause.CONDITION.value
    expected = [4.0, 12.0, 12.0, 20.0], [2, 2, 1, 0], [bound, done, done, done], [4.0, 4.0, 2.0, 1.0]
    return per_device(check, on_max_steps="stop"), expected


def nan_at_a_bound(check: bool) -> tuple[Any, Any]:
    """NaN on one device alone; no number would compare as equal to it."""
    carry, _, _, slopes = per_device(check, on_max_steps="nan")
    found = [jnp.isnan(carry).astype(int), jnp.isnan(slopes).astype(int), carry[1:], slopes[1:]]
    return found, ([1, 0, 0, 0], [1, 0, 0, 0], [12.0, 12.0, 20.0], [4.0, 2.0, 1.0])


def raises_at_a_bound(check: bool) -> tuple[Any, Any]:
    f = on_devices(lambda x: doubled(x[0], max_steps=2)[None], check, jax.P("i"), jax.P("i"))
    try:
        jax.block_until_ready(jax.jit(f)(XS))
    except RuntimeError as error:
        return int("max_steps=2 was reached" in str(error)), 1
    return 0, 1


CASES: dict[str, Callable[[], tuple[Any, Any]]] = {
    f"{name}, check_vma={check}": partial(f, check=check)
    for name, f in {
        "local gradients of 4": partial(local_gradients, devices=4),
        "local gradients of 8": partial(local_gradients, devices=8),
        "replicated w on 4": partial(replicated, devices=4),
        "replicated w on 8": partial(replicated, devices=8),
        **{name: partial(summed, f) for name, f in FUNCTIONS.items()},
        "reverse over reverse": reversed_twice,
        "lanes on each device": lanes_on_devices,
        "two axes": two_axes,
        "one of two axes": one_of_two_axes,
        "while_loop together": partial(together, while_together),
        "fori_loop together": partial(together, fori_together),
        "stopped at a bound": stopped_at_a_bound,
        "NaN at a bound": nan_at_a_bound,
        "raises at a bound": raises_at_a_bound,
    }.items()
    for check in (True, False)
    # Without check_vma nothing is cast, and these say nothing that the others do not.
    if check
    or name not in ("jitted pieces", "branches", "branches of shared values", "scan in a loop, cast as advised")
}

if __name__ == "__main__":
    report(CASES)
