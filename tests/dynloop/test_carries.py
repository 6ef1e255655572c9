"""Claims about carries: any tree of anything goes through a loop and its gradient unchanged in kind."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.closeness import assert_close
from tests.dynloop.backends import Backend, taking_turns, with_checkpoints_swapped


class Body(NamedTuple):
    """A moving thing."""

    position: Any
    velocity: Any


@dataclass(frozen=True)
class Case:
    """A carry of the tree made from a vector, and the vector found in the carry after it was doubled."""

    name: str
    make: Any
    step: Any
    read: Any

    def __str__(self) -> str:
        return self.name


TREES = [
    Case("bare", lambda x: x, lambda c: 2 * c, lambda c: c),
    Case("tuple", lambda x: (x,), lambda c: (2 * c[0],), lambda c: c[0]),
    Case("list", lambda x: [x, x], lambda c: [c[1] + c[0], c[0] + c[1]], lambda c: c[0]),
    Case("dict", lambda x: {"b": x, "a": 1.0}, lambda c: {"a": c["a"], "b": 2 * c["b"] * c["a"]}, lambda c: c["b"]),
    Case("NamedTuple", lambda x: Body(x, x), lambda c: Body(c.position + c.velocity, 2 * c.velocity), lambda c: c[1]),
    Case("None inside", lambda x: (None, x, {"a": None}), lambda c: (None, 2 * c[1], c[2]), lambda c: c[1]),
    Case("empty parts", lambda x: ((), x, [], {}), lambda c: ((), 2 * c[1], [], {}), lambda c: c[1]),
    Case("nested", lambda x: {"a": [(x,), None]}, lambda c: {"a": [(2 * c["a"][0][0],), None]}, lambda c: c["a"][0][0]),
]


@taking_turns("case", TREES)
def test_a_tree_keeps_its_structure_and_its_gradient(backend: Backend, case: Case):
    xp = backend.xp

    def f(x: Any) -> Any:
        tree = case.make(x)
        start = (backend.asarray(0, "int32"), tree)
        _, out = backend.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, case.step(c[1])), start, checkpoints=1)
        assert type(out) is type(case.make(x))
        return xp.sum(case.read(out) ** 2)

    x = backend.asarray([1.0, -3.0])
    assert_close(backend.value(f, x), np.asarray(640.0))
    assert_close(backend.grad(f)(x), np.array([128.0, -384.0]))


@taking_turns("dtype", ["float16", "bfloat16", "float32", "complex64", "complex128", "int8", "int32", "bool"])
def test_a_leaf_of_any_dtype_rides_along(backend: Backend, dtype: str):
    ride = backend.asarray([1, 0, 1], dtype)

    def f(x: Any) -> Any:
        def body(c: Any) -> Any:
            i, y, kept = c
            return i + 1, y * backend.xp.sum(backend.cast(backend.xp.real(kept), "float64")), kept

        _, y, kept = backend.while_loop(lambda c: c[0] < 3, body, (0, x, ride), checkpoints=1)
        assert backend.dtype(kept) == dtype
        return y

    assert float(backend.grad(f)(backend.asarray(1.0))) == 8.0


@with_checkpoints_swapped
def test_a_pure_integer_loop_has_no_gradient_and_breaks_none(backend: Backend, checkpoints: Any):
    def f(x: Any) -> Any:
        def body(c: Any) -> Any:
            return c[0] + 1, c[1] + 2 * c[0]

        start = (backend.asarray(0, "int32"), backend.asarray(1, "int32"))
        _, total = backend.while_loop(lambda c: c[0] < 4, body, start, checkpoints=checkpoints)
        return x * backend.cast(total, "float64")

    assert float(backend.grad(f)(backend.asarray(2.0))) == 13.0


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3), (1,), (2, 3)], ids=str)
def test_an_array_of_any_shape_goes_through(backend: Backend, shape: tuple[int, ...]):
    x = backend.asarray(np.arange(np.prod(shape), dtype=float).reshape(shape))

    def f(x: Any) -> Any:
        start = (backend.asarray(0, "int32"), x)
        out = backend.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] * c[1]), start, checkpoints="all")[1]
        return backend.xp.sum(out)

    gradient = backend.grad(f)(x)
    assert_close(gradient, 4 * np.asarray(x) ** 3)


def test_a_start_that_is_the_transpose_of_an_array(backend: Backend):
    x = backend.asarray(np.arange(6.0).reshape(2, 3))

    def f(x: Any) -> Any:
        start = (backend.asarray(0, "int32"), x.T)
        out = backend.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] * 2), start, checkpoints="all")[1]
        return backend.xp.sum(out**2)

    assert_close(backend.grad(f)(x), 32 * np.asarray(x))
