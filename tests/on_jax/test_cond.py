"""Claims about `cond` on JAX: on data legal for both branches it gives what lax's does, under every transformation."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import dynloop
from dynloop import BatchingError
from dynloop.on_jax.trace_cache import cached
from tests.closeness import assert_close
from tests.on_jax.branched import Cond, Function
from tests.on_jax.programs import compiled, stablehlo
from tests.on_jax.test_transformations import ALL
from tests.user_process import run_python

V = jnp.asarray([1.0, 0.4, -0.7])


def legal(cond: Cond) -> Function:
    """A vector and a matrix, a nested cond, and branches that perturb different outputs; defined everywhere."""

    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        def one(x: jax.Array) -> Any:
            return jnp.tanh(w @ x), jnp.ones(3), jnp.asarray(3, jnp.int32)

        def other(x: jax.Array) -> Any:
            inner = cond(x[2] > 0.5, lambda: jnp.sin(x) * x[0], lambda: w[1] * x)
            return jnp.exp(0.3 * inner), jnp.cos(x), jnp.asarray(2, jnp.int32)

        y, z, n = cond(x[0] > 0.1, one, other, x)
        y, z, m = cond(x[1] > 0, one, other, y + z)
        return jnp.vdot(y, z) * n + m

    return f


BY_DEFAULT = (
    "value",
    "vjp",
    "linearize",
    "forward over reverse",
    "reverse over reverse",
    "reverse over forward",
    "reverse over reverse over reverse",
    "transpose of a vjp",
    "jvp of a linearized",
    "grad of cond",
    "grad of a custom_jvp whose rule runs it under jit",
    "reverse over reverse of checkpoint",
    "grad of scan of checkpoint",
)


@pytest.mark.parametrize("name", [n if n in BY_DEFAULT else pytest.param(n, marks=pytest.mark.full) for n in ALL])
def test_every_transformation_equals_that_of_lax(name: str):
    assert_close(jax.jit(lambda: ALL[name](legal(dynloop.cond)))(), jax.jit(lambda: ALL[name](legal(lax.cond)))())


@pytest.mark.parametrize("name", ["vjp", pytest.param("forward over reverse", marks=pytest.mark.full)])
def test_transformation_op_by_op_equals_that_of_lax(name: str):
    assert_close(ALL[name](legal(dynloop.cond)), ALL[name](legal(lax.cond)))


BATCHED = {
    "predicate": (0, None, None),
    "operands": (None, 0, None),
    "both": (0, 0, None),
    "closed over": (0, None, 0),
    "all": (0, 0, 0),
}


@pytest.mark.parametrize("axes", BATCHED.values(), ids=BATCHED)
def test_every_mixture_of_batched_arguments_equals_that_of_lax(axes: tuple[int | None, ...]):
    sizes = [4 if axis == 0 else None for axis in axes]
    rng = np.random.default_rng(3)
    p, x, w = (rng.normal(size=(n, 2) if n else 2) for n in sizes)

    def gradient(cond: Cond) -> Any:
        def f(p: Any, x: Any, w: Any) -> jax.Array:
            out = cond(p[0] > 0, lambda x: (jnp.sin(x) * w, x, jnp.ones(2)), lambda x: (x * x, w, w), x)
            return jnp.vdot(out[0], out[1] * out[2])

        grads = jax.vmap(jax.value_and_grad(f, (1, 2)), axes)(p, x, w)
        batch = jax.grad(lambda x, w: jnp.sum(jax.vmap(f, axes)(p, x, w)), (0, 1))(x, w)
        return grads, batch

    assert_close(jax.jit(lambda: gradient(dynloop.cond))(), jax.jit(lambda: gradient(lax.cond))())


@jax.custom_vjp
def steep(x: jax.Array) -> jax.Array:
    return jnp.sin(x)


# A rule that is not the true derivative, so that only who uses it gets its value.
steep.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (2 * jnp.cos(x) * g,))


@pytest.mark.parametrize("name", ["vjp", "reverse over reverse"])
def test_a_custom_rule_in_a_branch_in_a_loop_equals_unrolled(name: str):
    def make(cond: Cond, is_loop: bool) -> Function:
        def f(x: jax.Array, w: jax.Array) -> jax.Array:
            def body(c: Any) -> Any:
                return c[0] + 1, cond(c[1][0] > 0.2, lambda y: steep(w @ y), lambda y: y * x + 0.3, c[1])

            if is_loop:
                return jnp.sum(dynloop.while_loop(lambda c: c[0] < 3, body, (jnp.int32(0), x), checkpoints=2)[1])
            return jnp.sum(body(body(body((0, x))))[1])

        return f

    found, expected = (jax.jit(lambda f=f: ALL[name](f))() for f in (make(dynloop.cond, True), make(lax.cond, False)))
    assert_close(found, expected)


# ---- what it costs


def counted(seen: list[str]) -> Any:
    """Branches that note when they are traced."""
    return (lambda x: (seen.append("true"), jnp.exp(jnp.sin(x)))[1], lambda x: (seen.append("false"), x * x)[1])


def test_each_branch_is_traced_once():
    seen: list[str] = []

    def f(x: jax.Array) -> jax.Array:
        return dynloop.cond(x > 0, *counted(seen), x)

    jax.make_jaxpr(jax.vmap(jax.grad(jax.grad(f))))(jnp.ones(3))
    assert seen == ["true", "false"]


def double(x: jax.Array) -> jax.Array:
    return 2 * x


def halve(x: jax.Array) -> jax.Array:
    return x / 2


def test_the_traces_of_plain_functions_are_kept():
    first, second = (cached((double, halve), "key", object) for _ in range(2))
    assert first is second
    assert cached((double, halve), "another key", object) is not first
    assert cached((halve, double), "key", object) is not first
    read = [object()]
    first, second = (cached((double, lambda x: read), "key", object) for _ in range(2))
    assert first is not second


def test_no_tracer_outlives_its_trace():
    def f(x: Any, w: Any) -> jax.Array:
        return dynloop.cond(x > 0, lambda: jnp.sqrt(x) * w, lambda: dynloop.cond(x > -1, lambda: x * w, lambda: w))

    with jax.checking_leaks():
        found = [jax.jit(jax.grad(jax.grad(f)))(4.0, 2.0), jax.grad(f)(4.0, 2.0)]
        found += [*jax.jit(jax.vmap(jax.grad(f, (0, 1)), (0, None)))(jnp.asarray([4.0, -0.5, -2.0]), 2.0)]
    assert_close(found, [np.array(-1 / 16), np.array(0.5), np.array([0.5, 2, 0]), np.array([2, -0.5, 1])])


def test_no_branch_is_computed_in_the_backward_pass():
    def f(cond: Cond, x: jax.Array) -> jax.Array:
        return cond(x[0] > 0, lambda x: jnp.sum(jnp.tanh(jnp.exp(x))), lambda x: jnp.sum(jnp.exp(x) * x), x)

    text = stablehlo(jax.grad(lambda x: f(dynloop.cond, x)), jnp.ones(3))
    assert text.count("stablehlo.exponential ") == text.count("stablehlo.tanh ") + 1 == 2


@pytest.mark.parametrize("depth", [1, 3])
def test_nested_conds_grow_with_their_number(depth: int):
    """The program of a second derivative: as many equations for each further level."""

    def f(x: jax.Array, n: int) -> jax.Array:
        return x if n == 0 else dynloop.cond(x > n, lambda x: f(jnp.sin(x), n - 1), lambda x: x * x, x)

    sizes = [
        len(stablehlo(jax.grad(jax.grad(lambda x, n=n: f(x, n))), jnp.asarray(0.5)).splitlines())
        for n in (depth, depth + 1, depth + 2)
    ]
    assert sizes[2] - sizes[1] <= 1.3 * (sizes[1] - sizes[0])


def outside(jaxpr: Any, inside: bool = False) -> list[str]:
    """The primitives that a jaxpr applies outside of any conditional."""
    names = []
    for eqn in jaxpr.eqns:
        names.append(eqn.primitive.name)
        if eqn.primitive.name == "jit":
            names += outside(eqn.params["jaxpr"].jaxpr)
    return names


@pytest.mark.parametrize("order", ["gradients of a batch", "gradient of a batch"])
def test_no_branch_is_evaluated_outside_of_a_conditional(order: str):
    def f(x: jax.Array, cond: Cond = dynloop.cond) -> jax.Array:
        return cond(x > 0, lambda: jnp.sqrt(x) / jnp.tanh(x), lambda: jnp.log(-x))

    def transformed(cond: Cond) -> Any:
        if order == "gradients of a batch":
            return jax.vmap(jax.grad(lambda x: f(x, cond)))
        return jax.grad(lambda xs: jnp.sum(jax.vmap(lambda x: f(x, cond))(xs)))

    computed = {"sqrt", "div", "tanh", "log"}
    found = outside(jax.make_jaxpr(transformed(dynloop.cond))(jnp.ones(3)).jaxpr)
    assert "dynloop_cond" in found
    assert computed.isdisjoint(found)
    # lax evaluates both branches for every lane: the check can fail.
    assert computed <= set(outside(jax.make_jaxpr(transformed(lax.cond))(jnp.ones(3)).jaxpr))


def test_shared_operands_are_not_broadcast():
    w = jnp.ones((50, 40))

    def f(x: jax.Array) -> jax.Array:
        def one() -> jax.Array:
            return jnp.sum(jnp.tanh(jnp.sin(w) @ x))

        return dynloop.cond(x[0] > 0, one, lambda: jnp.sum(jnp.exp(jnp.cos(w) @ x)))

    assert "7x50x40" not in stablehlo(jax.vmap(jax.grad(f)), jnp.ones((7, 40)))


def test_what_both_branches_pass_on_does_not_enter():
    def f(x: jax.Array, big: jax.Array) -> Any:
        return dynloop.cond(x > 0, lambda x: (x, big), lambda x: (-x, big), x)[1]

    jaxpr = jax.make_jaxpr(f)(jnp.ones(()), jnp.ones(9))
    assert jaxpr.jaxpr.outvars[0] is jaxpr.jaxpr.invars[1]


def test_the_branches_share_room_for_what_they_store():
    def f(x: jax.Array) -> jax.Array:
        return jnp.sum(dynloop.cond(x[0] > 0, jnp.sin, jnp.cos, x))

    conds = [e for e in jax.make_jaxpr(jax.grad(f))(jnp.ones(3)).jaxpr.eqns if e.primitive.name == "dynloop_cond"]
    # The result, and one residual of three numbers.
    assert [len(e.outvars) for e in conds] == [2, 1]


@pytest.mark.parametrize("transform", [lambda f: f, jax.grad], ids=["value", "gradient"])
def test_a_result_that_is_not_used_costs_nothing(transform: Any):
    def f(x: jax.Array) -> jax.Array:
        used, _ = dynloop.cond(x > 0, lambda: (x * x, jnp.tanh(x)), lambda: (jnp.exp(x), jnp.tanh(x + 1)))
        return used

    text = compiled(transform(f), jnp.ones(())).as_text()
    assert "exponential" in text
    assert "tanh" not in text


# ---- types


@pytest.mark.parametrize(
    ("true", "false", "expected"),
    [
        (1.0, 2.0, "float64 weak"),
        (1, 2.5, "float64 weak"),
        (jnp.float32(1), 2.0, "float32"),
        (0, jnp.float32(2), "float32"),
        (jnp.int32(1), 2, "int32"),
        (True, False, "bool"),
        (1.5, 1j, "complex128 weak"),
    ],
    ids=str,
)
def test_a_number_takes_the_type_of_the_others_array(true: Any, false: Any, expected: str):
    for pred in (True, False):
        out = dynloop.cond(jnp.asarray(pred), lambda: true, lambda: false)
        assert f"{out.dtype}{' weak' * jax.typeof(out).weak_type}" == expected
        assert complex(out) == complex(true if pred else false)


def test_typed_keys_may_be_operands_and_results():
    keys = jax.random.split(jax.random.key(0), 4)
    flags = jnp.asarray([True, False, True, True])

    def f(cond: Cond) -> Any:
        def one(key: jax.Array, x: jax.Array) -> Any:
            return jax.random.fold_in(key, 1), jax.random.normal(key, dtype=x.dtype) * jnp.sqrt(x)

        def lane(flag: jax.Array, key: jax.Array, x: jax.Array) -> Any:
            key, y = cond(flag, one, lambda key, x: (key, x**2), key, x)
            return y, jax.random.key_data(key)

        return jax.vmap(jax.value_and_grad(lane, 2, has_aux=True))(flags, keys, jnp.arange(1.0, 5.0))

    assert_close(jax.jit(lambda: f(dynloop.cond))(), jax.jit(lambda: f(lax.cond))())


def test_no_lanes_at_all():
    f = jax.vmap(jax.grad(lambda x: dynloop.cond(x > 0, jnp.sqrt, jnp.cos, x)))
    assert f(jnp.zeros((0,))).shape == (0,)


def test_it_runs_where_jit_is_disabled_and_at_compile_time():
    with jax.disable_jit():
        assert float(jax.grad(lambda x: dynloop.cond(x > 0, jnp.sqrt, jnp.cos, x))(4.0)) == 0.25
    with jax.ensure_compile_time_eval():
        assert float(dynloop.cond(True, jnp.sqrt, jnp.cos, jnp.asarray(4.0))) == 2


# ---- effects and named axes


@pytest.mark.parametrize("ordered", [True, False])
def test_effects_happen_in_the_branch_that_is_taken(ordered: bool):
    seen: list[float] = []

    def f(x: jax.Array) -> jax.Array:
        def one() -> jax.Array:
            jax.debug.callback(lambda x: seen.append(float(x)), x, ordered=ordered)
            return jnp.sin(x)

        return dynloop.cond(x > 0, one, lambda: x)

    assert_close([jax.jit(f)(1.0), jax.grad(f)(2.0), f(jnp.asarray(-1.0))], [np.sin(1.0), np.cos(2.0), -1.0])
    jax.effects_barrier()
    assert seen == [1, 2]


def test_ordered_effects_under_a_predicate_that_differs_are_refused():
    def one(x: jax.Array) -> jax.Array:
        jax.debug.callback(print, x, ordered=True)
        return x

    with pytest.raises(BatchingError, match=r"cond: a branch has an ordered effect.*jax.lax.map"):
        jax.vmap(lambda x: dynloop.cond(x > 0, one, lambda x: x, x))(jnp.ones(2))


def test_communication_between_lanes_under_a_predicate_that_differs_is_refused():
    def f(p: Any, x: jax.Array) -> jax.Array:
        return dynloop.cond(p > 0, lambda x: lax.psum(x, "lanes"), lambda x: x, x)

    with pytest.raises(BatchingError, match="communicates over the axis 'lanes'"):
        jax.vmap(f, axis_name="lanes")(jnp.ones(2), jnp.ones(2))
    assert jax.vmap(f, (None, 0), axis_name="lanes")(1.0, jnp.ones(2)).tolist() == [2, 2]


MESH = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax, jax.numpy as jnp, numpy as np
import dynloop

spec = jax.sharding.PartitionSpec

def f(x, w):
    return dynloop.cond(x[0] > 0, lambda x, w: jnp.sqrt(x) * w, lambda x, w: x * w * w, x, w)

mesh = jax.sharding.Mesh(np.array(jax.devices()), ("d",))
sharded = jax.shard_map(f, mesh=mesh, in_specs=(spec("d"), spec()), out_specs=spec("d"))
gradient = jax.jit(jax.grad(lambda x, w: jnp.sum(sharded(x, w) ** 2), (0, 1)))
print([g.tolist() for g in gradient(jnp.asarray([4.0, -1.0]), jnp.asarray(3.0))])
"""


def test_devices_that_take_different_branches_share_the_gradient_of_an_operand():
    # Shared by both devices and closed over instead, w would make them wait for each other for ever, as in lax.
    assert run_python("-c", MESH).strip() == "[[9.0, -162.0], 132.0]"
