"""Claims about JAX's transformations: on a loop each gives what it gives on the unrolled loop."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import dynloop
from dynloop import DerivativeError
from tests.closeness import assert_close
from tests.on_jax.subjects import SUBJECTS, Function, V, W, X, looped, unrolled

pytestmark = pytest.mark.versions

Transformation = Callable[[Function], Any]
TWICE, SCALES = (0, 1), jnp.asarray([0.5, 1.0, 1.5])


def along(f: Function) -> Callable[[jax.Array], jax.Array]:
    """The function of x alone."""
    return lambda x: f(x, W)


def slope(g: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    """The gradient of a function of a vector in one direction: a function of a vector again, by reverse mode."""
    return lambda x: jnp.vdot(jax.grad(g)(x), V)


def pushed(g: Callable[[jax.Array], Any]) -> Callable[[jax.Array], Any]:
    """The same by forward mode."""
    return lambda x: jax.jvp(g, (x,), (V,))[1]


def by_custom_jvp(f: Function) -> Callable[[jax.Array], jax.Array]:
    @jax.custom_jvp
    def g(x: jax.Array) -> jax.Array:
        return f(x, W)

    g.defjvp(lambda primals, tangents: jax.jvp(along(f), primals, tangents))
    return g


def scanned(f: Function) -> Function:
    """A scan whose body runs the loop."""

    def body(c: jax.Array, w: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array]:
        return c * 0.5 + f(c * u, w) * 0.1, f(c, w)

    return lambda x, w: jnp.sum(lax.scan(lambda c, u: body(c, w, u), x, SCALES)[1])


def descent(f: Function) -> Callable[[jax.Array], jax.Array]:
    """Three steps of gradient descent, in a scan."""
    return lambda x: lax.scan(lambda c, _: (c - 0.1 * jax.grad(f)(c, W), None), x, None, length=3)[0]


def branched(f: Function) -> Function:
    def where(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.cond(x[1] > 0, lambda x, w: x[0], f, x, w) + lax.cond(x[0] > 0.5, lambda x, w: x[0], f, x, w)

    return where


DOTS = jax.checkpoint_policies.dots_saveable

FIRST: dict[str, Transformation] = {
    "value": lambda f: f(X, W),
    "grad": lambda f: jax.grad(f, TWICE)(X, W),
    "vjp": lambda f: jax.vjp(f, X, W)[1](jnp.asarray(1.7)),
    "jvp": lambda f: jax.jvp(f, (X, W), (V, W * 0.5)),
    "linearize": lambda f: jax.linearize(f, X, W)[1](V, W * 0.5),
}
SECOND: dict[str, Transformation] = {
    "forward over reverse": lambda f: jax.jvp(jax.grad(f, TWICE), (X, W), (V, W)),
    "reverse over reverse": lambda f: jax.grad(lambda x, w: jnp.vdot(jax.grad(f)(x, w), V), TWICE)(X, W),
    "reverse over reverse of the closed-over": lambda f: jax.grad(
        lambda x, w: jnp.vdot(jax.grad(f, 1)(x, w), W), TWICE
    )(X, W),
    "reverse over forward": lambda f: jax.grad(lambda x, w: jax.jvp(f, (x, w), (V, W))[1], TWICE)(X, W),
    "forward over forward": lambda f: jax.jvp(pushed(along(f)), (X,), (V,)),
}
THIRD: dict[str, Transformation] = {
    "reverse over reverse over reverse": lambda f: jax.grad(slope(slope(along(f))))(X),
    "forward over reverse over reverse": lambda f: pushed(slope(slope(along(f))))(X),
    "reverse over forward over reverse": lambda f: jax.grad(lambda x: jnp.vdot(pushed(jax.grad(along(f)))(x), V))(X),
    "reverse over reverse over forward": lambda f: jax.grad(slope(pushed(along(f))))(X),
    "forward over forward over reverse": lambda f: pushed(pushed(jax.grad(along(f))))(X),
    "forward over forward over forward": lambda f: pushed(pushed(pushed(along(f))))(X),
}
LINEAR: dict[str, Transformation] = {
    "transpose of a jvp": lambda f: jax.linear_transpose(lambda t: jax.jvp(along(f), (X,), (t,))[1], X)(1.3),
    "transpose of a linearized": lambda f: jax.linear_transpose(jax.linearize(along(f), X)[1], X)(1.3),
    "transpose of a vjp": lambda f: jax.linear_transpose(lambda c: jax.vjp(along(f), X)[1](c)[0], 1.3)(V),
    "jvp of a linearized": lambda f: jax.jvp(lambda x: jax.linearize(along(f), x)[1](V), (X,), (V,)),
    "grad of a linearized": lambda f: jax.grad(lambda x: jax.linearize(along(f), x)[1](V))(X),
}
INSIDE: dict[str, Transformation] = {
    "grad inside scan": lambda f: descent(f)(X),
    "grad of scan": lambda f: jax.grad(scanned(f), TWICE)(X, W),
    "reverse over reverse of scan": lambda f: jax.grad(slope(along(scanned(f))))(X),
    "grad of scan of grad": lambda f: jax.grad(lambda x: jnp.sum(descent(f)(x) ** 2))(X),
    "grad of cond": lambda f: jax.grad(branched(f), TWICE)(X, W),
    "reverse over reverse of cond": lambda f: jax.grad(slope(along(branched(f))))(X),
    "grad of a custom_jvp whose rule runs it": lambda f: jax.grad(by_custom_jvp(f))(X),
    "grad of a custom_jvp whose rule runs it under jit": lambda f: jax.grad(by_custom_jvp(jax.jit(f)))(X),
    "reverse over reverse of a custom_jvp whose rule runs it": lambda f: jax.grad(slope(by_custom_jvp(f)))(X),
}
CHECKPOINT: dict[str, Transformation] = {
    "grad of checkpoint": lambda f: jax.grad(jax.checkpoint(f), TWICE)(X, W),
    "forward over reverse of checkpoint": lambda f: jax.jvp(jax.grad(jax.checkpoint(f)), (X, W), (V, W)),
    "reverse over reverse of checkpoint": lambda f: jax.grad(slope(along(jax.checkpoint(f))))(X),
    "grad of checkpoint with a policy": lambda f: jax.grad(jax.checkpoint(f, policy=DOTS), TWICE)(X, W),
    "grad of checkpoint of grad": lambda f: jax.grad(lambda x: jnp.sum(jax.checkpoint(jax.grad(f))(x, W) ** 2))(X),
    "grad of scan of checkpoint": lambda f: jax.grad(scanned(jax.checkpoint(f)), TWICE)(X, W),
}
ALL = FIRST | SECOND | THIRD | LINEAR | INSIDE | CHECKPOINT
BY_DEFAULT = FIRST | LINEAR
# custom_vjp has no forward mode.
ON_OTHERS = {
    "grad": FIRST["grad"],
    "jvp": FIRST["jvp"],
    "linearize": FIRST["linearize"],
    "forward over reverse": SECOND["forward over reverse"],
    "reverse over reverse": SECOND["reverse over reverse"],
    "reverse over forward": SECOND["reverse over forward"],
    "grad of checkpoint": CHECKPOINT["grad of checkpoint"],
}


def check(subject: str, transformation: Transformation, run: Callable[..., Any], **options: Any) -> None:
    make = SUBJECTS[subject]
    found = run(lambda: transformation(make(looped(**options))))()
    assert_close(found, jax.jit(lambda: transformation(make(unrolled)))())


@pytest.mark.parametrize("name", ALL)
def test_compiled_transformation_equals_unrolled(name: str):
    check("simple", ALL[name], jax.jit, checkpoints=2)


@pytest.mark.parametrize("name", [n if n in BY_DEFAULT else pytest.param(n, marks=pytest.mark.full) for n in ALL])
def test_transformation_op_by_op_equals_unrolled(name: str):
    check("simple", ALL[name], lambda f: f, checkpoints=2)


@pytest.mark.parametrize("name", ["grad", "reverse over reverse"])
@pytest.mark.parametrize("subject", [name for name in SUBJECTS if name != "simple"])
def test_reverse_mode_of_every_subject_equals_unrolled(subject: str, name: str):
    check(subject, ON_OTHERS[name], jax.jit, checkpoints=2)


@pytest.mark.parametrize("name", ["jvp", "reverse over forward"])
@pytest.mark.parametrize("subject", ["nested", "closures", "several_dtypes"])
def test_forward_mode_of_every_subject_equals_unrolled(subject: str, name: str):
    check(subject, ON_OTHERS[name], jax.jit, checkpoints=2)


@jax.custom_vjp
def clipped(x: jax.Array) -> jax.Array:
    return x


# Not linear in the cotangent, as clipped gradients are.
clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1.0, 1.0),))


def clipping(repeat: Any) -> Callable[[Any], Any]:
    return lambda x: 3 * repeat(3, lambda i, y: jnp.sin(clipped(y) * y), x)


@pytest.mark.parametrize("name", ["gradient", "forward over reverse"])
def test_a_gradient_clipped_in_the_body_equals_unrolled(name: str):
    def derivative(f: Any) -> Any:
        return jax.grad(f)(0.9) if name == "gradient" else jax.jvp(jax.grad(f), (0.9,), (1.0,))

    assert_close(derivative(clipping(looped(checkpoints=2))), derivative(clipping(unrolled)))


# Between them they make JAX's transpose raise each kind of error by which it says this; no one kind means it alone.
NONLINEAR = {
    "clipped": lambda g: jnp.clip(g, -1.0, 1.0),
    "squared": lambda g: g * g,
    "normalised": lambda g: g / jnp.abs(g),
    "squashed": lambda g: g / (1 + g),
    "chosen": lambda g: jnp.where(g > 1, 1.0, g),
    "halved until small": lambda g: jax.lax.while_loop(lambda g: g > 1, lambda g: g / 2, g),
    "sorted": lambda g: jnp.stack([g, 2 * g])[jnp.argsort(jnp.stack([g, 2 * g]))][0],
}


@pytest.mark.parametrize("rule", NONLINEAR.values(), ids=NONLINEAR.keys())
def test_reverse_over_reverse_of_a_rule_that_is_not_linear_is_refused(rule: Any):
    @jax.custom_vjp
    def identity(x: jax.Array) -> jax.Array:
        return x

    identity.defvjp(lambda x: (x, None), lambda _, g: (rule(g),))
    f = looped(checkpoints=2)
    with pytest.raises(DerivativeError, match=r"linear in its cotangent(.|\n)*Take the outer derivative by jax.jvp"):
        jax.grad(jax.grad(lambda x: 3 * f(3, lambda i, y: jnp.sin(identity(y) * y), x)))(0.9)


@jax.custom_jvp
def steep_sine(x: jax.Array) -> jax.Array:
    return jnp.sin(x)


@steep_sine.defjvp
def _steep_sine_jvp(primals: Any, tangents: Any) -> Any:
    """Not the derivative of its primal, as straight-through rules are not."""
    return jnp.sin(primals[0]), 2 * jnp.cos(primals[0]) * tangents[0]


# Where only w is perturbed, the unrolled loop's first step still meets an unperturbed carry, and so the original
# function; a loop, `lax.scan` as well, has one body for all steps.
@pytest.mark.parametrize("name", [name for name in ALL if name != "reverse over reverse of the closed-over"])
def test_a_custom_derivative_that_is_none_equals_unrolled(name: str):
    def make(repeat: Any) -> Callable[[Any, Any], Any]:
        return lambda x, w: jnp.sum(repeat(4, lambda i, y: steep_sine(y) * w[0] + x, x) ** 2)

    assert_close(ALL[name](make(looped(checkpoints=2))), ALL[name](make(unrolled)))


@jax.custom_vjp
def steep_product(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.sin(x) * w


# The forward rule calls the function itself, as JAX's documentation has it.
steep_product.defvjp(
    lambda x, w: (steep_product(x, w), (x, w)), lambda r, g: (2 * g * jnp.cos(r[0]) * r[1], 3 * g * jnp.sin(r[0]))
)
THRICE = "reverse over reverse over reverse"
ON_SELF_CALLING = {
    "grad": lambda f: jax.grad(f, (0, 1)),
    "reverse over reverse": lambda f: jax.grad(jax.grad(f), (0, 1)),
    THRICE: lambda f: jax.grad(jax.grad(jax.grad(f), 1), (0, 1)),
}


@pytest.mark.parametrize("place", ["in the body", "in a loop in the body"])
@pytest.mark.parametrize("batch", ["alone", "lanes"])
@pytest.mark.parametrize("name", ["grad", "reverse over reverse", pytest.param(THRICE, marks=pytest.mark.full)])
def test_a_custom_rule_that_calls_its_function_equals_unrolled(name: str, batch: str, place: str):
    def make(repeat: Any) -> Callable[[Any, Any], Any]:
        def body(i: Any, y: Any, w: Any) -> Any:
            if place == "in the body":
                return steep_product(y, w)
            return repeat(2, lambda j, z: steep_product(z, w) + 0.1 * y, y)

        return ON_SELF_CALLING[name](lambda x, w: repeat(3, lambda i, y: body(i, y, w), x))

    if batch == "alone":
        assert_close(jax.jit(make(looped(checkpoints=2)))(0.3, 1.2), make(unrolled)(0.3, 1.2))
    else:
        found = jax.jit(jax.vmap(make(looped(checkpoints=2)), (0, None)))(X, 1.2)
        assert_close(found, jax.jit(jax.vmap(make(unrolled), (0, None)))(X, 1.2))


def test_ordered_effects_are_refused_in_reverse_mode_only():
    def f(x: jax.Array) -> jax.Array:
        def body(y: jax.Array) -> jax.Array:
            jax.debug.callback(lambda y: seen.append(float(y)), y, ordered=True)
            return 2 * y

        return dynloop.while_loop(lambda y: y < 10, body, x)

    seen: list[float] = []
    assert float(f(jnp.asarray(1.0))) == 16
    assert float(jax.jvp(f, (jnp.asarray(1.0),), (jnp.asarray(1.0),))[1]) == 16
    jax.effects_barrier()
    assert seen == [1, 2, 4, 8] * 2
    with pytest.raises(DerivativeError, match=r"ordered effect(.|\n)*jax.jvp"):
        jax.grad(f)(1.0)


def test_a_loop_runs_where_jit_is_disabled():
    def f(x: jax.Array) -> jax.Array:
        return dynloop.while_loop(lambda y: y < 10, lambda y: 2 * y, x, max_steps=9, checkpoints=2)

    with jax.disable_jit():
        assert [float(x) for x in jax.value_and_grad(f)(1.0)] == [16, 16]


def test_a_loop_runs_at_compile_time():
    with jax.ensure_compile_time_eval():
        assert float(dynloop.while_loop(lambda y: y < 10, lambda y: 2 * y, jnp.asarray(1.0), max_steps=9)) == 16


@pytest.mark.full
@pytest.mark.parametrize("checkpoints", [1, 3, "auto", "all"])
@pytest.mark.parametrize("name", ALL)
def test_every_transformation_equals_unrolled_for_every_checkpoints(name: str, checkpoints: Any):
    check("simple", ALL[name], jax.jit, checkpoints=checkpoints, max_steps=20)


@pytest.mark.full
@pytest.mark.parametrize("name", ON_OTHERS)
@pytest.mark.parametrize("subject", [name for name in SUBJECTS if name != "custom_vjp_in_the_body"])
def test_every_transformation_of_every_subject_equals_unrolled(subject: str, name: str):
    check(subject, ON_OTHERS[name], jax.jit, checkpoints="auto")
