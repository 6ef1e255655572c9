"""What a staged loop may carry: pytrees, dataclasses, modules, keys, numbers, arrays of every dtype."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynloop

pytestmark = pytest.mark.versions


class Pair(NamedTuple):
    left: Any
    right: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Ball:
    height: Any
    speed: Any
    name: str = dataclasses.field(default="ball", metadata={"static": True})


class Layer(eqx.Module):
    weight: jax.Array
    activation: Callable[..., Any]
    size: int = eqx.field(static=True, default=2)


def test_pytrees_are_carried() -> None:
    @dynloop.loop
    def fall(ball, pair, nothing, layer, words, n):
        for _ in range(n):
            ball = Ball(ball.height + ball.speed, ball.speed - 1.0, ball.name)
            pair = Pair(pair.right, pair.left)
            layer = eqx.tree_at(lambda one: one.weight, layer, layer.activation(layer.weight))
            words = {"kind": words["kind"], "steps": words["steps"] + 1}
            nothing = None
        return ball, pair, nothing, layer, words

    given = Ball(0.0, 2.0), Pair(1, (2.0,)[0]), None, Layer(jnp.array([0.5, 1.0]), jnp.tanh), {"kind": "k", "steps": 0}
    ball, pair, nothing, layer, words = eqx.filter_jit(fall)(*given, jnp.asarray(3))
    assert (float(ball.height), float(ball.speed), ball.name) == (3.0, -1.0, "ball")
    assert (float(pair.left), float(pair.right)) == (2.0, 1.0)
    assert nothing is None
    assert words["kind"] == "k"
    assert words["steps"] == 3
    np.testing.assert_allclose(layer.weight, np.tanh(np.tanh(np.tanh([0.5, 1.0]))))
    assert layer.activation is jnp.tanh


def test_typed_keys_are_carried() -> None:
    @dynloop.loop
    def draws(key, n):
        total = 0.0
        for _ in range(n):
            key, now = jax.random.split(key)
            total = total + jax.random.uniform(now)
        return total

    key = jax.random.key(0)
    np.testing.assert_allclose(jax.jit(draws)(key, 3), draws(key, 3), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "complex64"])
def test_arrays_keep_their_dtype(dtype: str) -> None:
    @dynloop.loop
    def scaled(x, n):
        for _ in range(n):
            x = x * 2
            x += 1
        return x

    assert jax.jit(scaled)(jnp.ones(2, dtype), 2).dtype == dtype


def test_a_number_takes_the_dtype_of_an_array() -> None:
    @dynloop.loop
    def total(x, n):
        s = 0
        for _ in range(n):
            s = s + x
        return s

    assert jax.jit(total)(jnp.float32(1.5), 2).dtype == jnp.float32


class Model(eqx.Module):
    weight: jax.Array

    @dynloop.loop
    def __call__(self, x, n):
        for _ in range(n):
            x = jnp.tanh(self.weight * x)
        return x


def test_a_module_gets_its_gradient() -> None:
    model = Model(jnp.asarray(0.7))
    loss = lambda model, n: model(jnp.asarray(1.0), n)
    unrolled = lambda w: jnp.tanh(w * jnp.tanh(w * jnp.tanh(w * 1.0)))
    slope = eqx.filter_jit(eqx.filter_grad(loss))(model, jnp.asarray(3))
    np.testing.assert_allclose(slope.weight, jax.grad(unrolled)(0.7), rtol=1e-12)
