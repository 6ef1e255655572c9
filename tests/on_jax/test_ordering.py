"""Claims about `after`, and about the memory of derivatives of higher order, which rests on it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import dynloop
from dynloop.on_jax.ordering import after, after_p
from tests.closeness import assert_close

SIZE = 2**13
CARRY = 4 * SIZE


def bytes_per_slot(derivative: Callable[[Any], Any]) -> float:
    """How much more a compiled derivative holds for one more slot, in carries.

    XLA for CPUs otherwise starts independent loops together; of those that three reverse modes make, it then holds six.
    """

    def temporary(slots: int) -> int:
        def f(x: Any) -> Any:
            body = lambda c: (c[0] + 1, jnp.sin(c[1]) * 1.01 + 0.1 * c[1])
            _, out = dynloop.while_loop(lambda c: c[0] < 50, body, (jnp.int32(0), x), checkpoints=slots)
            return jnp.sum(out**2)

        lowered: Any = jax.jit(derivative(f)).lower(jnp.ones(SIZE, jnp.float32))
        options = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}
        return lowered.compile(options).memory_analysis().temp_size_in_bytes

    return (temporary(12) - temporary(4)) / 8 / CARRY


def direction(number: int) -> Any:
    """One of several: where two derivatives share theirs, XLA makes one sweep of two."""
    return jnp.roll(jnp.arange(SIZE, dtype=jnp.float32), number)


def forward(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: jax.jvp(f, (x,), (direction(0),))[1]


def backward(f: Callable[..., Any], number: int = 1) -> Callable[..., Any]:
    return lambda x: jnp.vdot(jax.grad(f)(x), direction(number))


def penalty(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: jnp.sum(jax.grad(f)(x) ** 2)


DERIVATIVES: dict[str, tuple[float, Callable[[Any], Any]]] = {
    "gradient": (1, jax.grad),
    "forward over reverse": (2, lambda f: forward(jax.grad(f))),
    "reverse over forward": (2, lambda f: jax.grad(forward(f))),
    "reverse over reverse": (2, lambda f: jax.grad(backward(f))),
    "of a penalty on the gradient": (2, lambda f: jax.grad(penalty(f))),
    "reverse three times": (4, lambda f: jax.grad(backward(backward(f), 2))),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_a_slot_of_order_k_takes_two_to_the_k_minus_one_carries(name: str):
    carries, derivative = DERIVATIVES[name]
    assert bytes_per_slot(derivative) == pytest.approx(carries, abs=0.01)


@pytest.mark.parametrize("seed", [0.0, -0.0, 1e30, -1.0, float("nan"), float("inf")])
def test_values_after_others_are_unchanged(seed: float):
    values = [jnp.array([-0.0, jnp.nan, 3.0]), jnp.int32(7), jax.random.key(1), jnp.complex64(1 + 2j)]
    made = jax.jit(lambda seed: after(values, [seed, jnp.ones(0)]))(jnp.float32(seed))
    for x, y in zip(values[:2] + values[3:], made[:2] + made[3:], strict=True):
        assert x.dtype == y.dtype
        assert bytes(x) == bytes(y)
    assert jax.random.key_data(made[2]).tolist() == jax.random.key_data(values[2]).tolist()


def test_what_depends_on_the_order_stays_in_the_compiled_program():
    # A value that XLA knew to be unchanged would be free to come first again.
    program = jax.jit(lambda x, y: after([x], [y])).lower(jnp.ones(3), jnp.ones(3)).compile()
    assert "select" in str(program.as_text())


def test_a_batch_of_what_comes_first_makes_no_batch_of_what_comes_after():
    shape = jax.eval_shape(jax.vmap(lambda y: after([jnp.ones(3)], [y]), out_axes=None), jnp.ones((5, 2)))
    assert shape[0].shape == (3,)


def test_derivatives_pass_by_the_order():
    f = lambda x, y: jnp.sum(after([x**2], [x * y])[0])
    assert jax.grad(f)(jnp.ones(2), jnp.ones(2)).tolist() == [2, 2]
    assert jax.grad(f, 1)(jnp.ones(2), jnp.ones(2)).tolist() == [0, 0]


def test_nothing_that_can_delay_gives_no_order():
    jaxpr = jax.make_jaxpr(lambda x: after([x], [jnp.int32(1)]))(1.0)
    assert not any(eqn.primitive is after_p for eqn in jaxpr.eqns)


def test_what_is_known_stays_known_after_what_is_not():
    # If the product counted as one of two unknowns, it would not be linear.
    f = lambda t: after([jnp.array([2.0, 3.0])], [t])[0] * t
    assert jax.linear_transpose(f, jnp.ones(2))(jnp.ones(2))[0].tolist() == [2, 3]
    both = lambda t: jnp.stack(after([3 * t, jnp.ones(2)], [t]))
    assert jax.linear_transpose(both, jnp.ones(2))(jnp.ones((2, 2)))[0].tolist() == [3, 3]


def test_reverse_three_times_through_a_loop_in_a_loop_equals_unrolled():
    def looped(z: Any) -> Any:
        inner = lambda c: dynloop.fori_loop(0, 2, lambda i, q: jnp.sin(q), c, checkpoints=1)
        return jnp.sin(dynloop.scan(lambda c, x: (inner(c) * x, None), z[0], z[1:], checkpoints=1)[0])

    def unrolled(z: Any) -> Any:
        c = z[0]
        for x in z[1:]:
            c = jnp.sin(jnp.sin(c)) * x
        return jnp.sin(c)

    z, v = jnp.array([0.5, 0.7, 0.9]), jnp.array([1.0, 1.5, 2.0])
    back = lambda f: lambda z: jax.grad(f)(z) @ v
    assert_close(jax.grad(back(back(looped)))(z), jax.grad(back(back(unrolled)))(z))
