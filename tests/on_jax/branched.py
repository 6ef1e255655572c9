"""Functions that take branches, for every transformation to be tried on, and the same functions for one lane alone.

Each takes `cond` and gives a function of (x, w), two numbers. `cond` is dynloop's or lax's, or the oracle's, which
asks a number and so evaluates one branch only. Their branches are undefined on much of each other's data.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import dynloop

Cond = Callable[..., Any]
Function = Callable[[jax.Array, jax.Array], jax.Array]

XS = np.array([0.7, -0.4, 1.6, 0.2, -1.3])
WS = np.array([0.2, 1.1, 0.4, 0.2, -1.3])
W = np.asarray(0.2)


def alone(pred: Any, true_fn: Any, false_fn: Any, *operands: Any) -> Any:
    """One branch, in Python: what a lane gives by itself."""
    return true_fn(*operands) if bool(pred) else false_fn(*operands)


def root(cond: Cond) -> Function:
    """A root and a logarithm, of operands."""
    return lambda x, w: cond(
        x > 0, lambda x, w: jnp.sqrt(x) * jnp.sin(w), lambda x, w: jnp.log(-x) * w + jnp.exp(w), x, w
    )


def pole(cond: Cond) -> Function:
    """A quotient that is 1 / 0 in the lanes where x is w, of what is closed over."""
    return lambda x, w: cond(x == w, lambda: x * jnp.cos(w) + w, lambda: jnp.sin(x) / (x - w))


def nested(cond: Cond) -> Function:
    """Three levels; each branch is undefined beyond its own interval."""

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        def positive() -> Any:
            y = x * jnp.cosh(w)
            return cond(x > 1, lambda: jnp.sqrt(x - 1) * y, lambda: inner(y)) * y

        def inner(y: Any) -> Any:
            return cond(x > 0.5, lambda y: jnp.sqrt(x - 0.5) * y * w, lambda y: jnp.log(0.5 - x) * y**2, y)

        return cond(x > 0, positive, lambda: jnp.arcsin(x / 2) * jnp.sqrt(-x) * w)

    return f


def several(cond: Cond) -> Function:
    """A pytree with an integer, a passed-through operand and an output that only one branch perturbs."""

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        def positive(c: Any) -> Any:
            return {"y": jnp.sqrt(c["x"]) * c["w"], "n": jnp.asarray(2, jnp.int32), "one": jnp.tanh(c["x"])}, c["w"]

        def other(c: Any) -> Any:
            return {"y": jnp.log(-c["x"]), "n": jnp.asarray(3, jnp.int32), "one": jnp.ones(())}, c["w"]

        out, kept = cond(x > 0, positive, other, {"x": x, "w": w})
        return out["y"] * out["n"] * out["one"] * kept

    return f


def scanned(cond: Cond) -> Function:
    """A cond in the body of a scan whose states leave one branch for the other."""

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        def body(c: Any, u: Any) -> Any:
            return cond(c > 0, lambda: -jnp.sqrt(c) * u - 0.1, lambda: jnp.log(-c) * jnp.sin(w) + 0.7), c

        if cond is alone:
            seen = []
            for u in (1.0, 0.8, 1.3):
                x, c = body(x, u)
                seen.append(c)
            return x + sum(seen)
        out, seen = lax.scan(body, x, jnp.asarray([1.0, 0.8, 1.3]))
        return out + jnp.sum(seen)

    return f


def looped(cond: Cond) -> Function:
    """A cond in the body of a loop."""

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        def body(c: Any) -> Any:
            return c[0] + 1, cond(
                c[1] > 0, lambda y: -jnp.sqrt(y) - 0.1, lambda y: jnp.log(-y) * jnp.sin(w) + 0.7, c[1]
            )

        if cond is alone:
            return body(body(body((0, x))))[1]
        return dynloop.while_loop(lambda c: c[0] < 3, body, (jnp.int32(0), x), checkpoints=2)[1]

    return f


def by_custom_jvp(cond: Cond) -> Function:
    """A function whose rule differentiates the cond."""
    inner = root(cond)

    @jax.custom_jvp
    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        return inner(x, w)

    f.defjvp(lambda primals, tangents: jax.jvp(inner, primals, tangents))
    return f


@jax.custom_vjp
def _steep(x: jax.Array) -> jax.Array:
    return jnp.sqrt(x)


# A rule that is not the true derivative, so that only who uses it gets its value.
_steep.defvjp(lambda x: (jnp.sqrt(x), x), lambda x, g: (3 * g / jnp.sqrt(x),))


def custom_vjp(cond: Cond) -> Function:
    """A function with a rule of its own in a branch: reverse mode only."""
    return lambda x, w: cond(x > 0, lambda: _steep(x) * w, lambda: jnp.log(-x) * w**2)


SUBJECTS: dict[str, Callable[[Cond], Function]] = {
    f.__name__: f for f in (root, pole, nested, several, scanned, looped, by_custom_jvp, custom_vjp)
}
