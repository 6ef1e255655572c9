"""Claims about derivatives: those of the unrolled loop, whatever is stored."""

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.closeness import assert_close
from tests.dynloop.backends import JAX_EAGER, Backend, taking_turns, with_checkpoints, with_checkpoints_swapped
from tests.dynloop.problems import PROBLEMS, W_DOT, X_DOT, W, X
from tests.oracles import unrolled

LENGTHS = (0, 1, 2, 3, 4, 5, 7, 13, 20)
names = pytest.mark.parametrize("name", PROBLEMS)


def function(backend: Backend, name: str, **options: Any) -> Callable[..., Any]:
    """The problem as a function of (x, w, n) whose loop is the library's."""

    def loop(cond: Any, body: Any, init: Any) -> Any:
        return backend.while_loop(cond, body, init, **options)

    return lambda x, w, n: PROBLEMS[name](loop, backend, x, w, n)


def oracle(name: str) -> Callable[..., Any]:
    return lambda x, w, n: PROBLEMS[name](unrolled, JAX_EAGER, x, w, n)


@cache
def unrolled_gradients(name: str, lengths: tuple[int, ...]) -> list[Any]:
    gradient = JAX_EAGER.grad(oracle(name), (0, 1))
    return [gradient(JAX_EAGER.asarray(X), JAX_EAGER.asarray(W), n) for n in lengths]


@names
@with_checkpoints
def test_gradient_equals_unrolled(backend: Backend, checkpoints: Any, name: str):
    # One compiled gradient serves every number of steps, which is an argument of it.
    lengths = LENGTHS if backend.name != "jax-eager" else LENGTHS[:1] + LENGTHS[-2:]
    gradient = backend.grad(function(backend, name, checkpoints=checkpoints), (0, 1))
    x, w = backend.asarray(X), backend.asarray(W)
    found = [gradient(x, w, backend.asarray(n, "int32")) for n in lengths]
    assert_close(found, unrolled_gradients(name, lengths))


@names
def test_forward_mode_equals_unrolled(backend: Backend, name: str):
    primals, tangents = (backend.asarray(X), backend.asarray(W)), (backend.asarray(X_DOT), backend.asarray(W_DOT))
    f, g = function(backend, name), oracle(name)
    found = backend.jvp(lambda x, w: f(x, w, 13), primals, tangents)
    given = [tuple(map(JAX_EAGER.asarray, these)) for these in ((X, W), (X_DOT, W_DOT))]
    assert_close(found, JAX_EAGER.jvp(lambda x, w: g(x, w, 13), *given))


@taking_turns(
    "name,order", list(product(PROBLEMS, ["forward over reverse", "reverse over reverse", "reverse over forward"]))
)
def test_second_derivative_equals_unrolled(backend: Backend, name: str, order: str):
    """The Hessian times a vector, three ways."""

    def hessian_vector(b: Backend, f: Callable[..., Any]) -> Any:
        x, v, xp, eager = b.asarray(X), b.asarray(X_DOT), b.xp, b.eager
        if order == "forward over reverse":
            return b.jvp(eager.grad(f), (x,), (v,))[1]
        if order == "reverse over reverse":
            return b.grad(lambda x: xp.sum(eager.grad(f)(x) * v))(x)
        return b.grad(lambda x: eager.jvp(f, (x,), (v,))[1])(x)

    f, g, w = function(backend, name, checkpoints=3), oracle(name), backend.asarray(W)
    ours = hessian_vector(backend, lambda x: f(x, w, 7))
    assert_close(ours, hessian_vector(JAX_EAGER, lambda x: g(x, JAX_EAGER.asarray(W), 7)))


@with_checkpoints_swapped
def test_gradient_equals_central_differences(backend: Backend, checkpoints: Any):
    f = backend.run(function(backend, "mixed", checkpoints=checkpoints))
    w, n, h = backend.asarray(W), backend.asarray(13, "int32"), 1e-6
    sides = [[float(f(backend.asarray(X + s * h * e), w, n)) for s in (1, -1)] for e in np.eye(3)]
    slopes = np.array([(up - down) / (2 * h) for up, down in sides])
    gradient = backend.grad(function(backend, "mixed", checkpoints=checkpoints))
    # The error of a central difference: h**2 of the third derivative, and rounding / h.
    assert_close(gradient(backend.asarray(X), w, n), slopes, tolerance=1e-8)


@with_checkpoints_swapped
def test_zero_steps_differentiate_as_the_identity(backend: Backend, checkpoints: Any):
    def f(x: Any, w: Any) -> Any:
        loop = backend.while_loop(lambda y: backend.xp.sum(y) < 0, lambda y: y * w, x, checkpoints=checkpoints)
        return backend.xp.sum(loop**2)

    x, w = backend.asarray([1, 2, 3]), backend.asarray([np.inf, 5, 0])
    assert_close(backend.grad(f, (0, 1))(x, w), ([2, 4, 6] * np.ones(3), np.zeros(3)))


@taking_turns("dtype", ["float32", "bfloat16", "float16", "complex128"])
def test_gradient_has_the_dtype_of_what_it_is_for(backend: Backend, dtype: str):
    def f(x: Any) -> Any:
        out = backend.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + c[1]), (0, x), checkpoints=1)[1]
        return backend.xp.real(out) if dtype == "complex128" else out

    gradient = backend.grad(f)(backend.asarray(1, dtype))
    assert backend.dtype(gradient) == dtype
    assert complex(gradient) == 8


def test_a_gradient_of_unused_output_is_zero(backend: Backend):
    def f(x: Any) -> Any:
        i, _ = backend.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * x), (backend.asarray(0, "int32"), x))
        return x * backend.cast(i, "float64")

    assert float(backend.grad(f)(backend.asarray(3.0))) == 5.0
