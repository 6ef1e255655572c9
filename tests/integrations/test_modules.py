"""Modules of Equinox and Flax in a loop, as a carry and as what it closes over, and loops in a training step of optax.

The oracle is the same loop unrolled in Python, or a step written out by hand.
"""

from typing import Any

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import dynloop

X = jnp.array([0.3, -0.2])
STEPS = 3


def close(ours: Any, theirs: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14), ours, theirs)


def looped(step: Any, carry: Any) -> Any:
    """As many steps of a while loop, whose number no compiler knows, as `unrolled` takes."""
    go_on = lambda counted: counted[0] < STEPS
    return dynloop.while_loop(go_on, lambda counted: (counted[0] + 1, step(counted[1])), (0, carry), checkpoints=2)[1]


def unrolled(step: Any, carry: Any) -> Any:
    for _ in range(STEPS):
        carry = step(carry)
    return carry


def test_an_equinox_module_is_closed_over_and_gets_its_gradient() -> None:
    network = eqx.nn.MLP(2, 2, 4, 1, activation=jnp.tanh, key=jax.random.key(0))
    loss = lambda network, loop: jnp.sum(loop(network, X) ** 2)
    ours, theirs = (eqx.filter_grad(loss)(network, loop) for loop in (looped, unrolled))
    close(ours, theirs)
    assert jnp.any(ours.layers[0].weight != 0)


def test_an_equinox_module_is_carried() -> None:
    # A module whose leaves are all arrays is a carry as it is; an activation in it is part of the structure.
    layer = eqx.nn.Linear(2, 2, key=jax.random.key(1))

    def descend(layer: eqx.nn.Linear) -> eqx.nn.Linear:
        slope = jax.grad(lambda layer: jnp.sum(layer(X) ** 2))(layer)
        return jax.tree.map(lambda leaf, by: leaf - 0.1 * by, layer, slope)

    loss = lambda layer, loop: jnp.sum(loop(descend, layer)(X) ** 2)
    close(*(jax.grad(loss)(layer, loop) for loop in (looped, unrolled)))


def test_an_equinox_module_with_functions_in_it_is_carried_in_two_parts() -> None:
    network = eqx.nn.MLP(2, 2, 3, 1, activation=jnp.tanh, key=jax.random.key(2))
    weights, static = eqx.partition(network, eqx.is_array)
    shrink = lambda weights: jax.tree.map(lambda leaf: 0.5 * leaf, weights)
    loss = lambda weights, loop: jnp.sum(eqx.combine(loop(shrink, weights), static)(X) ** 2)
    close(*(jax.grad(loss)(weights, loop) for loop in (looped, unrolled)))


def test_a_linen_module_is_closed_over_and_its_variables_are_carried() -> None:
    layer = linen.Dense(2)
    variables = layer.init(jax.random.key(3), X)

    def loss(variables: Any, loop: Any) -> jax.Array:
        step = lambda c: (jax.tree.map(lambda v: 0.9 * v, c[0]), layer.apply(variables, c[1]))
        shrunk, y = loop(step, (variables, X))
        return jnp.sum(jnp.asarray(layer.apply(shrunk, y)) ** 2)

    close(*(jax.grad(loss)(variables, loop) for loop in (looped, unrolled)))


def test_an_nnx_module_is_closed_over_and_its_state_is_carried() -> None:
    graph, state = nnx.split(nnx.Linear(2, 2, param_dtype=jnp.float64, rngs=nnx.Rngs(4)))

    def loss(state: Any, loop: Any) -> jax.Array:
        layer = nnx.merge(graph, state)

        def step(carry: Any) -> Any:
            carried, y = carry
            return jax.tree.map(lambda leaf: 0.9 * leaf, carried), layer(nnx.merge(graph, carried)(y))

        return jnp.sum(loop(step, (state, X))[1] ** 2)

    close(*(jax.grad(loss)(state, loop) for loop in (looped, unrolled)))


def test_an_nnx_module_keeps_its_running_averages() -> None:
    norm = nnx.BatchNorm(2, momentum=0.5, rngs=nnx.Rngs(5))
    batch = jnp.stack([X, -X, 3 * X]).astype(jnp.float32)

    def moved(loop: Any) -> Any:
        graph, state = nnx.split(norm)

        def step(state: Any) -> Any:
            layer = nnx.merge(graph, state)
            layer(batch)
            return nnx.state(layer)

        return loop(step, state)

    close(moved(looped), moved(unrolled))


def test_a_loop_lies_in_a_training_step_of_optax() -> None:
    """Fits the rate of a decay until it is small: a loop in the loss, its gradient in each step."""
    optimiser = optax.adam(0.1)

    def loss(rate: jax.Array, loop: Any) -> jax.Array:
        return (loop(lambda y: y * jnp.exp(-rate), jnp.array(2.0)) - 0.5) ** 2

    @jax.jit
    def train(rate: jax.Array, state: Any) -> Any:
        slope = jax.grad(loss)(rate, looped)
        change, state = optimiser.update(slope, state, rate)
        return optax.apply_updates(rate, change), state

    rate = jnp.array(0.1)
    state = optimiser.init(rate)
    for _ in range(200):
        rate, state = train(rate, state)
    np.testing.assert_allclose(rate, np.log(4) / STEPS, atol=1e-4)


def test_a_training_of_optax_is_a_loop_and_has_a_gradient() -> None:
    """Trains until the gradient is small, and differentiates the end by the learning rate's logarithm."""

    def trained(logarithm: jax.Array, loop: Any) -> jax.Array:
        optimiser = optax.sgd(jnp.exp(logarithm), momentum=0.5)
        loss = lambda w: jnp.sum((w - X) ** 2)

        def step(carry: Any) -> Any:
            w, state = carry
            change, state = optimiser.update(jax.grad(loss)(w), state, w)
            return optax.apply_updates(w, change), state

        w = jnp.zeros(2)
        return loss(loop(step, (w, optimiser.init(w)))[0])

    close(*(jax.value_and_grad(trained)(jnp.array(-2.0), loop) for loop in (looped, unrolled)))
