"""Decorated functions under more than `jax.jit`: exports, processes; and functions that no path falls out of."""

import concurrent.futures
import multiprocessing
from collections.abc import Callable
from typing import Any

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynloop


@dynloop.loop
def root(a):
    x = a
    while abs(x * x - a) > 1e-12:
        x = 0.5 * (x + a / x)
    return x


def test_lanes_of_derivatives() -> None:
    a = jnp.array([2.0, 9.0, 16.0])
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(root)))(a), 0.5 * a**-0.5, rtol=1e-9)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.hessian(root)))(a), -0.25 * a**-1.5, rtol=1e-9)


def test_an_export_runs() -> None:
    exported = jax.export.export(jax.jit(root))(jax.ShapeDtypeStruct((), jnp.float64))
    again = jax.export.deserialize(exported.serialize())
    np.testing.assert_allclose(again.call(9.0), 3.0, rtol=1e-12)


class Layer(equinox.Module):
    """A module that is called until it has been called often enough."""

    weight: jax.Array

    @dynloop.loop
    def __call__(self, x):
        k = 0
        while True:
            x, k = jnp.tanh(self.weight * x) + 1, k + 1
            if k > 5:
                return x


def test_a_module_that_returns_out_of_an_endless_loop_has_its_gradient() -> None:
    def unrolled(weight, x):
        for _ in range(6):
            x = jnp.tanh(weight * x) + 1
        return x

    found = equinox.filter_grad(lambda layer, x: equinox.filter_jit(layer)(x))(Layer(jnp.array(0.5)), 1.0).weight
    np.testing.assert_allclose(found, jax.grad(unrolled)(0.5, 1.0), rtol=1e-12)


def leaving(n):
    while n < 10:
        n = n + 3
        if n == 7:
            return 70
    else:
        return n


def endless_inside(n):
    s = 0
    for i in range(n):
        if i > 2:
            while True:
                s = s + 1
                if s % 3 == 0:
                    return s, 2 * i
                if s % 5 == 0:
                    return s, i
        s = s + i
    return s, -1


@pytest.mark.parametrize("function", [leaving, endless_inside])
def test_what_stands_behind_a_loop_that_never_ends_is_not_asked_for(function: Callable[..., Any]) -> None:
    staged = jax.jit(dynloop.loop(function))
    for n in (0, 1, 2, 3, 4, 9):
        np.testing.assert_array_equal(staged(n), function(n))
        np.testing.assert_array_equal(dynloop.loop(function)(n), function(n))


def test_another_process_finds_it_by_its_name() -> None:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        assert pool.submit(root, 4.0).result() == root(4.0)
