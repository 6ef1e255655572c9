"""Claims about `fori_loop` on JAX: lanes with bounds of their own, and transformations, equal the Python loop."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import adjoint
import dynloop
from tests.closeness import assert_close
from tests.oracles import indexed

LOWER, UPPER = jnp.asarray([0, -2, 3, 1, -1]), jnp.asarray([4, 6, 3, 0, 0])
XS, WS = jnp.asarray([0.3, -0.5, 0.9, 1.4, 0.1]), jnp.asarray([0.7, 1.1, 0.4, 0.9, 1.3])
# Far from the lanes' last legal index, the root of a step is not a number.
LIMITS = jnp.where(UPPER > LOWER, UPPER, -100)


def rooted(loop: Callable[..., Any]) -> Callable[..., Any]:
    def f(x: Any, w: Any, lower: Any, upper: Any, limit: Any) -> Any:
        return loop(lower, upper, lambda i, y: jnp.sin(w * y) + jnp.sqrt(limit - i) * y / 3, x)

    return f


def ours(**options: Any) -> Callable[..., Any]:
    return rooted(lambda *args: dynloop.fori_loop(*args, **options))


PLAIN = rooted(indexed)
MODES: dict[str, Callable[[Any], Any]] = {
    "value and gradient": lambda f: jax.value_and_grad(f, (0, 1, 4)),
    "reverse over reverse": lambda f: jax.grad(lambda *args: sum(jax.grad(f, (0, 1, 4))(*args)), (0, 1, 4)),
}


def alone(mode: Any) -> Any:
    lanes = zip(XS, WS, LOWER.tolist(), UPPER.tolist(), LIMITS * 1.0, strict=True)
    each = [mode(PLAIN)(x, w, a, b, limit) for x, w, a, b, limit in lanes]
    return jax.tree.map(lambda *xs: jnp.stack(xs), *each)


@pytest.mark.parametrize(
    ("name", "checkpoints"),
    [("value and gradient", c) for c in (1, 2, adjoint.Binomial(3), adjoint.Online(2, 3))]
    + [("reverse over reverse", 2)],
    ids=str,
)
def test_each_lane_with_its_own_bounds_gives_what_it_gives_alone(name: str, checkpoints: Any):
    found = jax.jit(jax.vmap(MODES[name](ours(checkpoints=checkpoints))))(XS, WS, LOWER, UPPER, LIMITS * 1.0)
    assert_close(found, alone(MODES[name]))


def test_lanes_that_share_their_bounds_give_what_they_give_alone():
    f = jax.vmap(MODES["value and gradient"](ours(checkpoints=2)), (0, 0, None, None, None))
    each = [MODES["value and gradient"](PLAIN)(x, w, -1, 5, 5.0) for x, w in zip(XS, WS, strict=True)]
    assert_close(jax.jit(f)(XS, WS, -1, 5, 5.0), jax.tree.map(lambda *xs: jnp.stack(xs), *each))


def test_each_lane_counts_its_own_steps():
    run = lambda a, b: dynloop.fori_loop(a, b, lambda i, y: y + i, 0, full_output=True)
    result = jax.vmap(run)(LOWER, UPPER)
    assert result.steps.tolist() == [4, 8, 0, 0, 1]
    assert result.carry.tolist() == [sum(range(a, b)) for a, b in zip(LOWER.tolist(), UPPER.tolist(), strict=True)]


INSIDE: dict[str, Callable[[Any], Any]] = {
    "checkpoint": lambda f: jax.grad(jax.checkpoint(f, static_argnums=(2, 3)), (0, 1)),
    "linearize": lambda f: lambda x, w, a, b, t: jax.linearize(lambda x, w: f(x, w, a, b, t), x, w)[1](x, w),
    "hessian": lambda f: jax.hessian(f, (0, 1)),
}


@pytest.mark.parametrize("name", INSIDE)
def test_a_transformation_equals_unrolled(name: str):
    given = (jnp.asarray(0.3), jnp.asarray(0.7), -1, 6, 6.0)
    found = jax.jit(INSIDE[name](ours(checkpoints=adjoint.Binomial(2))), static_argnums=(2, 3))(*given)
    assert_close(found, INSIDE[name](PLAIN)(*given))
