"""Claims about what cond and body read: a trace is used again only where they would read the very same objects."""

import functools
import gc
import weakref
from dataclasses import dataclass, field
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynloop
from tests.closeness import assert_close

FACTOR: Any = 2.0


def is_small(y: Any) -> Any:
    return y < 10


def by_global(y: Any) -> Any:
    return y * FACTOR


def by_callee(y: Any) -> Any:
    return by_global(y)


def by_attribute_of_a_module(y: Any) -> Any:
    return y * np.e


def loop(body: Any, x: Any = 1.0) -> float:
    return float(dynloop.while_loop(is_small, body, jnp.asarray(x)))


@pytest.mark.parametrize("body", [by_global, by_callee])
def test_a_global_that_is_assigned_again_is_read_again(monkeypatch: pytest.MonkeyPatch, body: Any):
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    assert loop(body) == 16
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert loop(body) == 27


def test_a_default_argument_is_part_of_a_function():
    assert [loop(lambda y, k=k: y * k) for k in (2.0, 3.0, 2.0)] == [16, 27, 16]


def test_a_variable_of_a_closure_is_read_when_the_loop_is_called():
    factor = jnp.asarray(2.0)

    def body(y: Any) -> Any:
        return y * factor

    assert loop(body) == 16
    factor = jnp.asarray(3.0)
    assert loop(body) == 27


def test_a_function_inside_the_body_reads_what_it_reads_by_then():
    factor = 2.0

    def body(y: Any) -> Any:
        return (lambda: y * factor)()

    assert loop(body) == 16
    factor = 3.0
    assert loop(body) == 27


def test_two_names_that_share_an_object_are_two_names():
    shared, other = 2.0, 3.0
    first, second = shared, shared

    def body(y: Any) -> Any:
        return y * first + second * other

    assert loop(body) == 22
    second = other
    assert loop(body) == 11


class Holder:
    factor: Any = 2.0


HOLDER = Holder()
TABLE: dict[str, Any] = {"factor": 2.0}
ARRAY = np.asarray(2.0)
LIST = [lambda y: y * TABLE["factor"]]


def change(factor: float) -> None:
    HOLDER.factor = factor
    TABLE["factor"] = factor
    Settings.factor = factor
    setattr(with_attribute, "factor", factor)  # noqa: B010 - an attribute that the type of functions has not
    SCALING.times[0] = factor
    ARRAY[...] = factor


class Settings:
    """Its attributes belong to the class."""

    factor: Any = 2.0


def with_attribute(y: Any) -> Any:
    return y * cast(Any, with_attribute).factor


@jax.tree_util.register_dataclass
@dataclass
class Scaling:
    """A pytree with a field that is none of its leaves."""

    by: jax.Array
    times: list[float] = field(metadata={"static": True})


SCALING = Scaling(jnp.asarray(1.0), [2.0])
GET = TABLE.get


def importing(y: Any) -> Any:
    from tests.on_jax import test_closures

    return y * test_closures.TABLE["factor"]


CHANGEABLE = {
    "attribute of a class": lambda y: y * Settings.factor,
    "attribute of a function": with_attribute,
    "method of a dict": lambda y: y * GET("factor"),
    "static field": lambda y: y * SCALING.by * SCALING.times[0],
    "import": importing,
    "globals": lambda y: y * globals()["TABLE"]["factor"],
    "attribute": lambda y: y * HOLDER.factor,
    "item": lambda y: y * TABLE["factor"],
    "numpy array": lambda y: y * ARRAY,
    "function in a list": lambda y: LIST[0](y),
    "partial": lambda y: functools.partial(lambda y: y * TABLE["factor"])(y),
}


@pytest.mark.parametrize("body", CHANGEABLE.values(), ids=CHANGEABLE.keys())
def test_what_changes_in_place_is_read_at_every_call(body: Any):
    found = []
    for factor in (2.0, 3.0, 2.0):
        change(factor)
        found.append(loop(body))
    assert found == [16, 27, 16]


def test_a_container_that_holds_itself_or_keys_of_any_kind_is_read():
    holder: list[Any] = [2.0]
    holder.append(holder)
    table = {1: 2.0, "factor": 3.0, None: holder}

    def body(y: Any) -> Any:
        return y * holder[0] + 0 * table["factor"]

    assert loop(body) == 16
    holder[0] = 3.0
    assert loop(body) == 27


def test_a_gradient_after_a_call_sees_the_traced_value_in_a_dict():
    def value(factor: Any) -> Any:
        TABLE["factor"] = factor
        return dynloop.while_loop(is_small, CHANGEABLE["item"], jnp.asarray(1.0))

    assert float(value(jnp.asarray(3.0))) == 27
    assert float(jax.grad(value)(3.0)) == 27
    change(2.0)


def test_a_trace_goes_with_its_function():
    """What a fresh body closes over is not kept once the body is gone."""
    alive = []

    def call() -> None:
        weights = jnp.full(3, 2.0)
        alive.append(weakref.ref(weights))
        dynloop.while_loop(lambda y: y[0] < 10, lambda y: y * weights, jnp.ones(3))

    for _ in range(3):
        call()
    gc.collect()
    assert [ref() for ref in alive] == [None, None, None]


class Scale:
    """A callable whose state changes in place."""

    def __init__(self) -> None:
        self.factor = 2.0

    def __call__(self, y: Any) -> Any:
        return y * self.factor


def test_a_callable_object_and_a_method_are_traced_at_every_call():
    scale = Scale()
    assert [loop(scale), loop(scale.__call__)] == [16, 16]
    scale.factor = 3.0
    assert [loop(scale), loop(scale.__call__)] == [27, 27]


def test_a_partial_function_is_a_body():
    assert loop(functools.partial(lambda k, y: y * k, 2.0)) == 16


def test_a_number_of_a_module_is_read():
    assert loop(by_attribute_of_a_module) == pytest.approx(np.e**3)


def test_no_tracer_outlives_its_trace():
    """The same functions called in one trace and then in another; JAX checks that nothing is kept."""

    def f(x: Any, w: Any) -> Any:
        return dynloop.while_loop(is_small, lambda y: y * w, x, checkpoints=2)

    x, w = jnp.asarray(1.5), jnp.asarray(2.0)
    with jax.checking_leaks():
        found = [jax.jit(jax.grad(f, (0, 1)))(x, w), jax.grad(f, (0, 1))(x, w), jax.jit(jax.grad(f, (0, 1)))(x, w)]
    assert_close(found, [(8.0, 1.5 * 3 * 4)] * 3)


def test_a_function_used_inside_and_outside_of_jit_reads_each_ones_values():
    w: Any = jnp.asarray(2.0)

    def body(y: Any) -> Any:
        return y * w

    def inside(traced: Any) -> Any:
        nonlocal w
        kept, w = w, traced
        out = dynloop.while_loop(is_small, body, jnp.asarray(1.0))
        w = kept
        return out

    assert loop(body) == 16
    assert float(jax.jit(inside)(3.0)) == 27
    assert float(jax.grad(inside)(3.0)) == 27
    assert loop(body) == 16


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_a_tracer_is_closed_over_at_any_depth(levels: int):
    """x**(2 n) through functions nested so deep."""

    def f(x: Any) -> Any:
        def make(depth: int) -> Any:
            if depth == 0:
                return lambda c: (c[0] + 1, c[1] * x * x)
            inner = make(depth - 1)
            return lambda c: inner(c)

        start = (jnp.asarray(0, jnp.int32), jnp.asarray(1.0))
        return dynloop.while_loop(lambda c: c[0] < 3, make(levels), start, checkpoints=2)[1]

    assert_close(jax.jit(jax.grad(f))(jnp.asarray(1.1)), 6 * 1.1**5)


def test_an_array_in_32_and_in_64_bits_is_another_trace():
    def body(y: Any) -> Any:
        return y * jnp.asarray(2.0)

    assert str(dynloop.while_loop(is_small, body, jnp.asarray(1.0)).dtype) == "float64"
    with jax.enable_x64(False):
        assert str(dynloop.while_loop(is_small, body, jnp.asarray(1.0)).dtype) == "float32"


def test_a_function_that_carries_the_name_of_a_library_is_the_users():
    """`functools.wraps` around a function of a library says that the wrapper is the library's too."""
    w = 2.0

    @functools.wraps(jnp.sin)
    def body(y: Any) -> Any:
        return w * y

    assert loop(body) == 16
    w = 3.0
    assert loop(body) == 27
