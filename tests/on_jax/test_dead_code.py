"""Claims about dead code: results that nobody uses are not computed, and what is left is right."""

from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import pytest
from jax.interpreters import partial_eval as pe

import dynloop
from tests.closeness import assert_close

X, W = jnp.asarray([0.3, -0.5]), jnp.asarray([[0.2, 0.7], [-0.4, 0.9]])
ROWS = jnp.asarray([[1.0, 2.0], [0.5, -1.0], [0.3, 0.2]])


def used_alone(f: Any, *args: Any, results: tuple[bool, ...]) -> tuple[Any, list[Any], list[bool]]:
    """What is left of a function of which some results are used: its jaxpr, those results, the used arguments."""
    closed = jax.make_jaxpr(f)(*args)
    jaxpr, used = pe.dce_jaxpr(closed.jaxpr, list(results))
    flat = [x for x, u in zip(jax.tree.leaves(args), used, strict=True) if u]
    return jaxpr, jax.core.eval_jaxpr(jaxpr, closed.consts, *flat), used


def several(x: Any, w: Any, u: Any) -> Any:
    """A state, a sum that hangs on it, and a product of its own that reads u."""

    def body(c: Any) -> Any:
        i, y, total, other = c
        return i + 1, jnp.tanh(w @ y), total + jnp.sum(y), other * jnp.cos(u)

    return dynloop.while_loop(lambda c: c[0] < 5, body, (jnp.asarray(0), x, jnp.asarray(0.0), x), checkpoints=2)


def stacking(x: Any, w: Any, u: Any) -> Any:
    step = lambda y, row: (jnp.tanh(w @ y + row), (y * 2, u * row))
    return dynloop.scan(step, x, ROWS, checkpoints=2)


def carried(jaxpr: Any) -> int:
    """How many carries the loops of a jaxpr have."""
    return sum(eqn.params["loop"].carries for eqn in jaxpr.eqns if "loop" in eqn.params)


@pytest.mark.parametrize(
    ("results", "carries", "needs"),
    [
        ((False, True, False, False), 2, [True, True, False]),
        ((False, False, False, True), 2, [True, False, True]),
        ((True, False, False, False), 1, [False, False, False]),
        ((False, False, True, False), 3, [True, True, False]),
        ((True, True, True, True), 4, [True, True, True]),
        ((False, False, False, False), 0, [False, False, False]),
    ],
)
def test_a_loop_carries_what_is_used(results: tuple[bool, ...], carries: int, needs: list[bool]):
    jaxpr, found, used = used_alone(several, X, W, X, results=results)
    assert carried(jaxpr) == carries
    assert used == needs
    expected = [x for x, u in zip(several(X, W, X), results, strict=True) if u]
    assert_close(found, expected)


@pytest.mark.parametrize("results", [(True, False, False), (False, False, True), (False, True, False)])
def test_a_scan_stacks_what_is_used(results: tuple[bool, ...]):
    jaxpr, found, _ = used_alone(stacking, X, W, X, results=results)
    (loop,) = [eqn.params["loop"] for eqn in jaxpr.eqns if "loop" in eqn.params]
    assert loop.ys == sum(results[1:])
    expected = [x for x, u in zip(jax.tree.leaves(stacking(X, W, X)), results, strict=True) if u]
    assert_close(found, expected)


def test_unused_tangents_are_not_carried():
    def f(x: Any, w: Any) -> Any:
        return jax.jvp(lambda x: several(x, w, x)[1], (x,), (x,))

    jaxpr, found, _ = used_alone(f, X, W, results=(True, False))
    assert carried(jaxpr) == 2
    assert_close(found, [several(X, W, X)[1]])


def test_a_gradient_that_is_unused_stores_nothing():
    def f(x: Any, w: Any) -> Any:
        return jax.value_and_grad(lambda x: jnp.sum(several(x, w, x)[1]))(x)

    jaxpr, found, _ = used_alone(f, X, W, results=(True, False))
    assert [eqn.primitive.name for eqn in jaxpr.eqns if "loop" in eqn.params] == ["dynloop"]
    assert_close(found, [jnp.sum(several(X, W, X)[1])])


def test_lanes_lose_what_is_unused_too():
    def f(x: Any, n: Any) -> Any:
        body = lambda c: (c[0] + 1, jnp.sin(c[1]) * c[2], c[2] * 0.5, c[3] + c[1])
        return dynloop.while_loop(lambda c: c[0] < n, body, (jnp.asarray(0), x, x, x))

    xs, ns = jnp.asarray([0.3, 0.7, 0.9]), jnp.asarray([0, 3, 5])
    jaxpr, found, _ = used_alone(jax.vmap(f), xs, ns, results=(False, True, False, False))
    assert carried(jaxpr) == 3
    assert_close(found, [jax.vmap(f)(xs, ns)[1]])


def test_an_effect_keeps_all():
    def f(x: Any) -> Any:
        show = dynloop.on_step(lambda i, c: None)
        return dynloop.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, 2 * c[1]), (0, x), observe=show)

    jaxpr, _, _ = used_alone(f, jnp.asarray(1.0), results=(False, False))
    assert carried(jaxpr) == 2


def test_what_is_left_is_differentiated():
    def f(x: Any, w: Any, u: Any) -> Any:
        return jnp.sum(jax.checkpoint(lambda x: several(x, w, u)[1])(x))

    def unrolled(x: Any, w: Any, u: Any) -> Any:
        for _ in range(5):
            x = jnp.tanh(w @ x)
        return jnp.sum(x)

    assert_close(jax.jit(jax.grad(f, (0, 1, 2)))(X, W, X), jax.grad(unrolled, (0, 1, 2))(X, W, X))
