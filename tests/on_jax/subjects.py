"""Functions with a loop inside, for every transformation to be tried on, and the same functions unrolled.

Each takes `repeat(n, body, carry)`, which applies `carry = body(i, carry)` for i = 0..n - 1, and gives a function of
(x, w), a vector of 3 and a 3 by 3 matrix. `repeat` is dynloop's loop, or for the oracle a Python one.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import dynloop

Repeat = Callable[[int, Callable[[Any, Any], Any], Any], Any]
Function = Callable[[jax.Array, jax.Array], jax.Array]

STEPS = 5
_RANDOM = np.random.default_rng(7)
X, V = jnp.asarray([0.3, -0.5, 0.9]), jnp.asarray([1.0, 0.4, -0.7])
W = jnp.asarray(_RANDOM.normal(size=(3, 3)) * 0.3)


def unrolled(n: int, body: Callable[[Any, Any], Any], carry: Any) -> Any:
    for i in range(n):
        carry = body(i, carry)
    return carry


def looped(**options: Any) -> Repeat:
    """`repeat` by `dynloop.while_loop`, with these options."""

    def repeat(n: int, body: Callable[[Any, Any], Any], carry: Any) -> Any:
        start = (jnp.asarray(0, jnp.int32), carry)
        return dynloop.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, body(*c)), start, **options)[1]

    return repeat


def simple(repeat: Repeat) -> Function:
    """A state, an accumulator that starts constant, a flag, and a closed-over tracer."""

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        def body(i: Any, c: Any) -> Any:
            h, total, flag = c
            h = jnp.tanh(w @ h + 0.1 * jnp.sin(total) + 0.01 * i)
            return h, total + h[0] * h[1] * jnp.sum(w[0]), ~flag

        h, total, _ = repeat(STEPS, body, (x, jnp.asarray(0.3), jnp.asarray(True)))
        return jnp.sum(h * jnp.asarray([1.0, 2.0, 3.0])) + total**2

    return f


def nested(repeat: Repeat) -> Function:
    """A loop in a loop; the inner one closes over the outer carry and over what the outer one closes over."""

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        u = jnp.sin(w)

        def body(i: Any, h: Any) -> Any:
            return repeat(3, lambda j, d: jnp.sin(w @ d) + 0.1 * h * jnp.sum(u) + 0.01 * j, h)

        return jnp.sum(repeat(3, body, x) ** 2)

    return f


def closures(repeat: Repeat) -> Function:
    """The loop closes over tracers of three nested gradients."""

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        def outer(y: jax.Array) -> jax.Array:
            def middle(z: jax.Array) -> jax.Array:
                return jnp.sum(repeat(STEPS, lambda i, h: jnp.sin(w @ h) * z[0] + y + x, x))

            return jnp.sum(jax.grad(middle)(y * 2.0) ** 2)

        return jnp.sum(jax.grad(outer)(x) * w[0])

    return f


def scan_in_the_body(repeat: Repeat) -> Function:
    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        def body(i: Any, h: Any) -> Any:
            return lax.scan(lambda h, u: (jnp.sin(w @ h) * u, None), h, jnp.asarray([1.0, 0.9]))[0]

        return jnp.sum(repeat(STEPS, body, x) ** 2)

    return f


def cond_in_the_body(repeat: Repeat) -> Function:
    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        def body(i: Any, h: Any) -> Any:
            return lax.cond(h[0] > 0, lambda h: jnp.sin(w @ h), lambda h: h * h + x, h)

        return jnp.sum(repeat(STEPS, body, x) ** 2)

    return f


@jax.custom_vjp
def _doubled(x: jax.Array) -> jax.Array:
    return jnp.sin(x)


# A rule that is not the true derivative, so that only who uses it gets its value.
_doubled.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (2 * jnp.cos(x) * g,))


def custom_vjp_in_the_body(repeat: Repeat) -> Function:
    return lambda x, w: jnp.sum(repeat(STEPS, lambda i, h: _doubled(w @ h) + h, x))


def several_dtypes(repeat: Repeat) -> Function:
    """float64, float32 and complex leaves that read each other."""

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        def body(i: Any, c: Any) -> Any:
            h, single, z = c
            return jnp.cos(w @ h) + single.astype(jnp.float64) * 0.1, single * jnp.float32(0.5), z * jnp.exp(1j * h[0])

        h, _, z = repeat(STEPS, body, (x, x.astype(jnp.float32), jnp.asarray(1 + 0.5j)))
        return jnp.sum(h) + jnp.real(z)

    return f


def typed_keys(repeat: Repeat) -> Function:
    """A typed random key in the carry, split in each step."""

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        def body(i: Any, c: Any) -> Any:
            key, h = c
            key, used = jax.random.split(key)
            return key, h * jnp.cos(jax.random.normal(used, (3,), jnp.float64) + w @ h)

        return jnp.sum(repeat(STEPS, body, (jax.random.key(0), x))[1] ** 2)

    return f


SUBJECTS: dict[str, Callable[[Repeat], Function]] = {
    f.__name__: f
    for f in (
        simple,
        nested,
        closures,
        scan_in_the_body,
        cond_in_the_body,
        custom_vjp_in_the_body,
        several_dtypes,
        typed_keys,
    )
}
