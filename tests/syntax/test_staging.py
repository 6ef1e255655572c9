"""What is staged, when, and how often it is traced; options; the transformations of JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynloop

pytestmark = pytest.mark.versions


@dynloop.loop
def root(a, tolerance=1e-9):
    x = a
    while abs(x * x - a) > tolerance:
        x = 0.5 * (x + a / x)
    return x


def primitives(function: Callable[..., Any], *arguments: Any) -> str:
    return str(jax.make_jaxpr(function)(*arguments))


# ---- when


def test_numbers_stay_python() -> None:
    assert type(root(2.0)) is float
    assert type(root(np.float64(2.0))) is np.float64


def test_a_concrete_array_goes_to_the_primitive() -> None:
    bodies: list[int] = []

    @dynloop.loop
    def count(x):
        while x < 1000:
            bodies.append(1)
            x = x + 1
        return x

    with pytest.raises(dynloop.StagingError, match=r"calls 'bodies\.append'"):
        count(jnp.asarray(0))

    def tick() -> None:
        bodies.append(1)

    @dynloop.loop
    def ticking(x):
        while x < 1000:
            tick()
            x = x + 1
        return x

    assert ticking(jnp.asarray(0)) == 1000
    assert len(bodies) == 1


def test_debug_runs_everything_as_python() -> None:
    seen: list[float] = []

    @dynloop.loop
    def doubled(x):
        while x < 10:
            seen.append(float(x))
            x = 2 * x
        return x

    with dynloop.debug():
        assert doubled(jnp.asarray(3.0)) == 12.0
    assert seen == [3.0, 6.0]


@dynloop.loop
def mixed(x, n):
    total = 0.0
    for i in range(n):
        if x > 0:
            total = total + i * x
    return total


def test_a_loop_of_python_around_a_staged_branch_is_unrolled() -> None:
    text = primitives(lambda x: mixed(x, 3), 1.0)
    assert text.count("dynloop_cond") == 3
    assert "dynloop[" not in text
    assert jax.jit(mixed, static_argnums=1)(2.0, 3) == 6.0


def test_a_loop_over_traced_bounds_is_one_primitive() -> None:
    text = primitives(mixed, 1.0, 3)
    assert text.count("dynloop[loop=") == 1
    assert jax.jit(mixed)(2.0, 3) == 6.0


def test_rows_of_an_array_are_one_primitive() -> None:
    @dynloop.loop
    def total(xs):
        s = 0.0
        for x in xs:
            if x < 0:
                break
            s = s + x
        return s

    xs = jnp.array([1.0, 2.0, -1.0, 4.0])
    assert primitives(total, xs).count("dynloop[loop=") == 1
    assert total(xs) == 3.0
    np.testing.assert_array_equal(jax.grad(total)(xs), [1, 1, 0, 0])


# ---- how often


class Count:
    """Counts how often the body that calls it runs in Python."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    def __call__(self, name: str) -> None:
        self.seen[name] = self.seen.get(name, 0) + 1


def test_each_body_is_traced_once_whatever_the_nesting() -> None:
    count = Count()

    @dynloop.loop
    def deep(x, n):
        for i in range(n):
            count("1")
            j = 0
            while j < i:
                count("2")
                for k in range(j):
                    count("3")
                    if x > 1:
                        count("true")
                        x = x * 0.5
                    else:
                        count("false")
                        m = 0
                        while m < k:
                            count("4")
                            x = x + 0.25
                            m = m + 1
                j = j + 1
        return x

    found = jax.jit(deep)(1.0, 5)
    assert count.seen == {"1": 1, "2": 1, "3": 1, "true": 1, "false": 1, "4": 1}
    np.testing.assert_allclose(found, deep(1.0, 5))


def test_a_loop_that_only_breaks_is_traced_once_inside_of_another() -> None:
    count = Count()

    @dynloop.loop
    def powers(n):
        total = 0
        for i in range(n):
            k = 1
            while True:
                count("inner")
                if k > i:
                    break
                k = 2 * k
            total = total + k
        return total

    assert jax.jit(powers)(5) == 1 + 2 + 4 + 4 + 8
    assert count.seen == {"inner": 1}


def test_numbers_that_are_promoted_are_traced_once_more_for_each_level() -> None:
    count = Count()

    @dynloop.loop
    def sums(x, n):
        a, b, c = 0, 0, 0
        for i in range(n):
            count("1")
            a = a + x
            for j in range(i):
                count("2")
                b = b + x
                for k in range(j):
                    count("3")
                    c = c + x * k
        return a + b + c

    expected = sums(0.5, 4)
    count.seen.clear()
    assert jax.jit(sums)(0.5, 4) == expected
    assert count.seen["1"] <= 2
    assert count.seen["2"] <= 3
    assert count.seen["3"] <= 4


# ---- functions


def test_recursion_by_name() -> None:
    assert depth(jnp.asarray(3.0), 4) == depth(3.0, 4)


@dynloop.loop
def depth(x, level):
    if level == 0:
        return x
    while x < 10.0 * level:
        x = x * 2
    return depth(x, level - 1)


def test_a_decorated_function_inside_of_another() -> None:
    @dynloop.loop
    def outer(a, n):
        total = 0.0
        for i in range(n):
            total = total + root(a + i)
        return total

    expected = sum(np.sqrt(2.0 + i) for i in range(3))
    np.testing.assert_allclose(jax.jit(outer)(2.0, 3), expected, rtol=1e-12)
    slope = jax.grad(lambda a: outer(a, jnp.asarray(3)))(2.0)
    np.testing.assert_allclose(slope, sum(0.5 / np.sqrt(2.0 + i) for i in range(3)), rtol=1e-8)


def test_read_only_values_keep_their_gradient() -> None:
    def made(w: Any) -> Callable[..., Any]:
        @dynloop.loop
        def grow(x):
            while x < 10:
                x = x * w
            return x

        return grow

    assert jax.grad(lambda w: made(w)(1.0))(3.0) == 27.0
    assert jax.grad(lambda w: made(w)(jnp.asarray(1.0)))(3.0) == 27.0


@pytest.mark.parametrize("mode", ["reverse", "forward", "second"])
def test_derivatives_of_every_order(mode: str) -> None:
    if mode == "reverse":
        np.testing.assert_allclose(jax.grad(root)(2.0), 0.5 / np.sqrt(2), rtol=1e-9)
    elif mode == "forward":
        np.testing.assert_allclose(jax.jvp(root, (2.0,), (1.0,))[1], 0.5 / np.sqrt(2), rtol=1e-9)
    else:
        np.testing.assert_allclose(jax.hessian(root)(2.0), -0.25 * 2**-1.5, rtol=1e-4)


def test_lanes_stop_by_themselves() -> None:
    @dynloop.loop
    def halved(y):
        while y > 1.5:
            y = jnp.sqrt(y)
        return y

    starts = jnp.array([0.0, 4.0])
    np.testing.assert_allclose(jax.vmap(jax.grad(halved))(starts), [1, 0.25 * 4**-0.75])
    np.testing.assert_allclose(jax.grad(lambda y: jax.vmap(halved)(y).sum())(starts), [1, 0.25 * 4**-0.75])


def test_a_branch_is_safe_in_lanes_that_do_not_take_it() -> None:
    @dynloop.loop
    def safe(x):
        if x > 0:
            return jnp.sqrt(x)
        return 0.0 * x

    np.testing.assert_array_equal(jax.vmap(jax.grad(safe))(jnp.array([-1.0, 0.0, 4.0])), [0, 0, 0.25])


# ---- options


@dynloop.loop(max_steps=3, on_max_steps="stop")
def bounded(x):
    while x < 100:
        x = 2 * x
    with dynloop.options(max_steps=5):
        while x > 1:
            x = 0.5 * x
    return x


def test_options_of_the_decorator_and_of_one_loop() -> None:
    assert jax.jit(bounded)(1.0) == 1 * 8 / 8
    assert jax.jit(bounded)(64.0) == 4.0


def test_a_bound_that_is_reached_raises() -> None:
    limited = dynloop.loop(max_steps=2)(limitless)
    with pytest.raises(Exception, match="max_steps=2 was reached"):
        jax.block_until_ready(jax.jit(limited)(1.0))


def limitless(x):
    while x < 100:
        x = 2 * x
    return x


def test_options_do_not_reach_the_loops_inside() -> None:
    @dynloop.loop
    def twice(x, n):
        with dynloop.options(max_steps=2, on_max_steps="stop"):
            for _ in range(n):
                y = 0.0
                while y < 5:
                    y = y + 1
                x = x + y
        return x

    assert jax.jit(twice)(0.0, 9) == 10.0


def test_observers_see_the_names() -> None:
    seen: list[dict[str, float]] = []

    @dynloop.loop(observe=dynloop.on_step(lambda i, carry: seen.append({k: float(v) for k, v in carry.items()})))
    def pair(x, y):
        while x < 3:
            x = x + 1
            y = y * 2
        return y

    jax.block_until_ready(jax.jit(pair)(1.0, 1.0))
    assert seen == [{"x": 2.0, "y": 2.0}, {"x": 3.0, "y": 4.0}]


def test_checkpoints_reach_the_primitive() -> None:
    with pytest.raises(dynloop.DerivativeError):
        jax.grad(dynloop.loop(checkpoints=0)(limitless))(1.0)
