"""Claims about carries that only JAX has: typed keys, registered classes, weak types, and 32 bits."""

import functools
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynloop
from dynloop import CarryError
from tests.closeness import assert_close
from tests.user_process import run_python

pytestmark = pytest.mark.versions


def counted(n: int, body: Any, carry: Any, **options: Any) -> Any:
    start = (jnp.asarray(0, jnp.int32), carry)
    return dynloop.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, body(c[1])), start, **options)[1]


@pytest.mark.parametrize("checkpoints", [1, 2, 3, "auto", "all"])
def test_a_typed_key_in_the_carry_draws_again_what_it_drew(checkpoints: Any):
    # jax-ml/jax#18442. The product of 1 + uniform over three splits of key(0); the value is the oracle's.
    def body(c: Any) -> Any:
        key, y = c
        key, used = jax.random.split(key)
        return key, y * (1 + jax.random.uniform(used))

    def f(x: Any) -> Any:
        return counted(3, body, (jax.random.key(0), x), checkpoints=checkpoints, max_steps=8)[1]

    product: Any = (jax.random.key(0), jnp.asarray(1.0))
    for _ in range(3):
        product = body(product)
    assert_close(jax.grad(f)(jnp.asarray(1.0)), product[1])


def test_the_known_draws_in_32_bits():
    code = """
import jax, jax.numpy as jnp, dynloop
def body(c):
    key, y = c[1]
    key, used = jax.random.split(key)
    return c[0] + 1, (key, y * (1 + jax.random.uniform(used)))
def f(x):
    return dynloop.while_loop(lambda c: c[0] < 3, body, (0, (jax.random.key(0), x)), checkpoints=2)[1][1]
c = (0, (jax.random.key(0), 1.0))
for _ in range(3):
    c = body(c)
print(float(jax.grad(f)(1.0)), float(c[1][1]), jax.grad(f)(1.0).dtype)
"""
    value, product, dtype = run_python("-c", code).split()
    # The number is what the Python loop gives with jax 0.10.2; float32 has 7 digits.
    assert abs(float(value) - float(product)) < 1e-6
    assert abs(float(value) - 1.2042288) < 1e-6
    assert dtype == "float32"


def test_an_array_of_keys_and_a_key_of_another_kind():
    def body(c: Any) -> Any:
        keys, y = c
        drawn = jax.vmap(lambda key: jax.random.normal(key, dtype=jnp.float64))(keys)
        return jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys), y * jnp.cos(drawn)

    keys = jax.random.split(jax.random.key(3, impl="rbg"), 2)
    expected = jnp.ones(2)
    moved = keys
    for _ in range(4):
        moved, expected = body((moved, expected))
    out = counted(4, body, (keys, jnp.ones(2)), checkpoints=2)
    assert jnp.array_equal(jax.random.key_data(out[0]), jax.random.key_data(moved))
    gradient = jax.grad(lambda y: jnp.sum(counted(4, body, (keys, y), checkpoints=2)[1]))(jnp.ones(2))
    assert_close(gradient, expected)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["x", "y"], meta_fields=["name"])
@dataclass(frozen=True)
class Point:
    """A registered class with a field that is no array."""

    x: Any
    y: Any
    name: str = field(default="origin")


def test_a_registered_class_survives_with_its_static_field():
    def f(x: Any) -> Any:
        out = counted(3, lambda p: Point(p.y, p.x * 2, p.name), Point(x, x, "here"), checkpoints=1)
        assert (type(out), out.name) == (Point, "here")
        return out.x + 10 * out.y

    assert float(jax.grad(f)(jnp.asarray(1.0))) == 2 + 10 * 4


def test_a_static_field_that_changes_is_a_change_of_structure():
    with pytest.raises(CarryError, match="same structure as init"):
        counted(3, lambda p: Point(p.x, p.y, p.name + "!"), Point(jnp.asarray(1.0), jnp.asarray(1.0)))


def test_a_module_in_the_carry_and_one_closed_over():
    import equinox as eqx

    layer = eqx.nn.Linear(2, 2, key=jax.random.key(0), dtype=jnp.float64)

    def loss(loop: Any, layer: Any) -> Any:
        return jnp.sum(loop(3, lambda c: (c[0], jnp.tanh(layer(c[1]) + c[0](c[1]))), (layer, jnp.ones(2)))[1])

    def python(n: int, body: Any, carry: Any) -> Any:
        for _ in range(n):
            carry = body(carry)
        return carry

    looped = functools.partial(counted, checkpoints=2)
    expected = jax.grad(functools.partial(loss, python))(layer)
    found = jax.grad(functools.partial(loss, looped))(layer)
    assert_close(jax.tree.leaves(found), jax.tree.leaves(expected))


def test_a_weak_start_stays_as_lax_has_it():
    def f(loop: Any) -> Any:
        return loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2, c[2]), (0, 1.0, jnp.float32(1) * 2))

    ours = f(functools.partial(dynloop.while_loop, backend="jax"))
    assert [str(x.dtype) for x in ours] == [str(x.dtype) for x in f(jax.lax.while_loop)]


NUMBERS: dict[str, Any] = {
    "jvp": lambda f: jax.jvp(f, (1.5, 1.1), (1.0, 2.0)),
    "forward over reverse": lambda f: jax.jvp(jax.grad(f, (0, 1)), (1.5, 1.1), (1.0, 2.0)),
    "forward over forward": lambda f: jax.jvp(lambda x, w: jax.jvp(f, (x, w), (1.0, 2.0)), (1.5, 1.1), (1.0, 2.0)),
    "reverse over forward": lambda f: jax.grad(lambda x, w: jax.jvp(f, (x, w), (1.0, 2.0))[1], (0, 1))(1.5, 1.1),
    "vjp": lambda f: jax.vjp(f, 1.5, 1.1)[1](1.0),
    "linearize": lambda f: jax.linearize(f, 1.5, 1.1)[1](1.0, 2.0),
    "linear_transpose": lambda f: jax.linear_transpose(jax.linearize(f, 1.5, 1.1)[1], 1.5, 1.1)(1.0),
}


@pytest.mark.parametrize("max_steps", [None, 9])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_tangents_and_cotangents(name: str, max_steps: int | None):
    def f(x: Any, w: Any) -> Any:
        return counted(3, lambda y: jnp.sin(y) * w, x, checkpoints=1, max_steps=max_steps)

    def python(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = jnp.sin(x) * w
        return x

    assert_close(NUMBERS[name](f), NUMBERS[name](python))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int4", "uint8", "float16"])
def test_a_small_dtype_rides_along(dtype: str):
    ride = jnp.asarray([1, 0, 1]).astype(dtype)

    def f(x: Any) -> Any:
        y, kept = counted(3, lambda c: (c[0] * 2, c[1]), (x, ride), checkpoints=2)
        assert str(kept.dtype) == dtype
        return y

    assert float(jax.grad(f)(jnp.asarray(1.0))) == 8


def test_the_gradient_of_an_integer_leaf_is_float0():
    def f(i: Any, x: Any) -> Any:
        return counted(3, lambda c: (c[0] + 1, c[1] * 2), (i, x), checkpoints=2)[1]

    by_i, by_x = jax.grad(f, (0, 1), allow_int=True)(jnp.asarray(1), jnp.asarray(1.0))
    assert by_i.dtype == jax.dtypes.float0
    assert float(by_x) == 8


def test_a_complex_loop_differentiates_as_unrolled():
    def loss(loop: Any, z: Any) -> Any:
        return jnp.abs(loop(4, lambda z: z * z + 0.1j, z)) ** 2

    def python(n: int, body: Any, carry: Any) -> Any:
        for _ in range(n):
            carry = body(carry)
        return carry

    z = jnp.asarray(0.6 + 0.3j)
    assert_close(
        jax.grad(functools.partial(loss, functools.partial(counted, checkpoints=2)))(z),
        jax.grad(functools.partial(loss, python))(z),
    )


def test_a_user_in_32_bits_gets_32_bits():
    code = """
import jax, jax.numpy as jnp, dynloop
def f(x, w):
    result = dynloop.while_loop(lambda c: c["i"] < 9, lambda c: {"i": c["i"] + 1, "x": jnp.sin(c["x"]) * w},
                                {"i": 0, "x": x}, max_steps=20, checkpoints=3, full_output=True)
    return result.carry["x"]
g = lambda x, w: jax.jvp(jax.grad(f, (0, 1)), (x, w), (1.0, 1.0))
print(*[v.dtype for v in jax.tree.leaves(jax.jit(g)(1.5, 1.1))])
"""
    assert run_python("-c", code).split() == ["float32"] * 4


def test_strict_promotion_of_dtypes_and_ranks_is_respected():
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):

        def f(x: Any) -> Any:
            def body(c: Any) -> Any:
                return c["i"] + 1, c["x"] * 2

            def step(c: Any) -> Any:
                i, x = body(c)
                return {"i": i, "x": x, "h": c["h"]}

            start = {"i": jnp.asarray(0, jnp.int32), "x": x, "h": x.astype(jnp.bfloat16)}
            options = {"checkpoints": 2, "max_steps": 9, "on_max_steps": "nan", "full_output": True}
            return dynloop.while_loop(lambda c: c["i"] < 5, step, start, **options).carry["x"]

        assert float(jax.jit(jax.grad(f))(jnp.float32(1))) == 32
        assert np.isfinite(jax.jvp(jax.grad(f), (jnp.float32(1),), (jnp.float32(1),))[1])


def test_a_bound_reached_raises_when_only_a_key_is_used():
    def f(key: jax.Array) -> jax.Array:
        def body(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            return jax.random.split(carry[0])[0], carry[1] + 1

        return dynloop.while_loop(lambda c: c[1] < 9, body, (key, jnp.int32(0)), max_steps=2)[0]

    with pytest.raises(Exception, match="max_steps=2 was reached"):
        jax.block_until_ready(jax.jit(lambda key: jax.random.key_data(f(key)))(jax.random.key(0)))


def test_a_nan_that_a_jitted_condition_does_not_read_is_not_reported():
    is_early = jax.jit(lambda carry: carry[0] < 3)
    result = dynloop.while_loop(is_early, lambda c: (c[0] + 1, c[1] * jnp.nan), (0, jnp.asarray(1.0)), full_output=True)
    assert result.stopped_because is dynloop.StoppedBecause.CONDITION


def test_a_number_takes_the_dtype_that_the_body_gives_it_and_a_float_is_weak():
    # jax-ml/jax#833, #9046: 1.0 doubled by a float32 is a float32, also where a float has 64 bits.
    loop = lambda two: dynloop.while_loop(lambda y: y < 10, lambda y: y * two, 1.0, backend="jax")
    out = jax.jit(loop)(jnp.float32(2))
    assert (float(out), out.dtype) == (16.0, jnp.float32)
