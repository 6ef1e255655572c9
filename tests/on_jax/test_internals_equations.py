"""Claims about what dynloop reads off JAX's equations and abstract values; the continuation of `test_internals`."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import export, lax

from dynloop.on_jax import internals

pytestmark = pytest.mark.versions

X = jnp.asarray(5.0)


def test_a_stacked_value_has_one_axis_more():
    aval = internals.stacked_aval(jax.typeof(jnp.ones((2, 3), jnp.float32)), 5)
    assert (aval.shape, aval.dtype) == ((5, 2, 3), jnp.float32)
    assert internals.stacked_aval(jax.typeof(jax.random.key(0)), 2).shape == (2,)


def test_rows_and_batches_keep_the_layout_of_explicit_axes():
    assert internals.explicit_sharding(jax.typeof(X)) is None
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        x = jax.device_put(jnp.ones((4, 3)), jax.P("i"))
        layouts = {
            jax.P("i", None): jax.typeof(x),
            jax.P(None, "i", None): internals.stacked_aval(jax.typeof(x), 5),
            jax.P(None): internals.row_aval(jax.typeof(x)),
            jax.P(None, "i"): internals.batched_aval(jax.typeof(jnp.ones(4)), 3, 1, ("i",)),
        }
        assert [internals.explicit_sharding(aval).spec for aval in layouts.values()] == list(layouts)
    assert internals.row_aval(jax.typeof(jnp.ones((4, 3)))).shape == (3,)


def test_a_value_moves_to_the_host_and_back():
    there = jax.jit(lambda x: jax.device_put(x, internals.HOST))(X)
    back = jax.jit(lambda x: jax.device_put(x, internals.DEVICE))(there)
    assert [x.sharding.memory_kind for x in (there, back)] == ["pinned_host", "device"]
    assert [internals.is_on_host(jax.typeof(x)) for x in (X, there, back)] == [False, True, False]
    assert float(back) == float(X)


def test_what_lies_on_the_host_becomes_a_zero_there():
    there = jax.device_put(X, internals.HOST)
    zero = internals.instantiate(internals.zero_tangent_of(there))
    assert (zero.sharding.memory_kind, float(zero)) == ("pinned_host", 0.0)


def test_a_move_inside_of_what_a_primitive_stands_for_is_lowered():
    """JAX leaves moves out of a program in which it has seen none."""
    primitive = internals.new_primitive("moves")
    primitive.def_abstract_eval(lambda aval: [aval])
    moved = lambda x: [jax.device_put(jax.device_put(x, internals.HOST), internals.DEVICE)]
    internals.set_lowering(primitive, moved)
    program = export.export(jax.jit(lambda x: primitive.bind(x)[0]), platforms=["cuda"])(X).mlir_module()
    assert program.count("annotate_device_placement") == 2


def test_outputs_that_are_inputs_are_found():
    closed = jax.make_jaxpr(lambda w, x, y, z: (x, 2 * y, w, x + z))(X, X, X, X)
    assert internals.returned_unchanged(closed, 1, 3) == (True, False, False)


def test_inputs_that_masked_outputs_depend_on_are_found():
    closed = jax.make_jaxpr(lambda x, y, z: (x + y, jax.jit(lambda y, z: y * z)(y, z)))(X, X, X)
    assert internals.read_inputs(closed, (True, False)) == {0, 1}
    assert internals.read_inputs(closed, (False, False)) == set()


def inside_shard_map(f: Any, x: Any = X) -> Any:
    """f(x) where x is the same on all devices, of which there is one."""
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    return jax.shard_map(f, mesh=mesh, in_specs=jax.P(), out_specs=jax.P("i"))(x)


def test_values_are_made_to_vary():
    def f(x: Any) -> Any:
        y = internals.vary(x, frozenset("i"))
        assert internals.varying_axes([x]) == frozenset()
        assert internals.varying_axes([y]) == frozenset("i")
        assert internals.vary(y, frozenset("i")) is y
        assert internals.varied_aval(jax.typeof(x), frozenset("i")) == jax.typeof(y)
        assert internals.varied_aval(jax.typeof(x), frozenset()) == jax.typeof(x)
        assert internals.manual_axes() == ("i",)
        return y[None]

    inside_shard_map(f)
    assert internals.manual_axes() == ()


def test_equations_that_cast_communicate_call_and_hold_a_function_are_told_apart():
    def f(x: Any) -> Any:
        y = internals.vary(x, frozenset("i"))

        def g(x: Any) -> Any:
            held = lax.cond(x > 0, lambda: x, lambda: -x)
            return x * y, lax.psum(y, "i"), jax.jit(jnp.sin)(x), held

        closed = jax.make_jaxpr(g)(x)
        casts = [e.primitive.name for e in closed.jaxpr.eqns if internals.names_of_cast(e)]
        assert casts == ["pvary"]
        assert internals.collective_axes(closed) == {"i"}
        assert internals.collective_axes(jax.make_jaxpr(lambda x: x * y)(x)) == set()
        (jitted,) = [j for j in map(internals.called_by_jit, closed.jaxpr.eqns) if j]
        assert "sin" in str(jitted)
        assert [e.primitive.name for e in closed.jaxpr.eqns if internals.holds_jaxpr(e)].count("cond") == 1
        assert [len(b) for b in map(internals.branches_of, closed.jaxpr.eqns) if b] == [2]
        return y[None]

    inside_shard_map(f)


def test_a_callback_has_an_effect_that_is_not_ordered():
    (effect,) = internals.callback_effects()
    assert not internals.is_ordered(effect)


def test_one_equation_runs_by_itself():
    def g(x: Any) -> Any:
        return lax.cond(x > 0, lambda x: 2 * x, lambda x: x, 3 * x)

    closed = jax.make_jaxpr(g)(X)
    by_name = {e.primitive.name: e for e in closed.jaxpr.eqns}
    (out,) = internals.evaluate_equation(closed.jaxpr, by_name["mul"], [jnp.asarray(3.0), X])
    assert float(out) == 15
    cond = by_name["cond"]
    values = [jnp.asarray(1, v.aval.dtype) if v.aval.dtype == jnp.int32 else X for v in cond.invars]
    assert float(internals.evaluate_equation(closed.jaxpr, cond, values)[0]) == 10


def test_a_primitive_tells_what_is_left_of_it():
    seen: list[Any] = []
    pair = internals.new_primitive("dynloop_test_pair")
    pair.def_abstract_eval(lambda a, b: [a, b])

    def rule(used: Any, eqn: Any) -> Any:
        seen.append(list(used))
        return [True, False], eqn

    internals.set_dead_code(pair, rule)
    closed = jax.make_jaxpr(lambda x, y: pair.bind(x, y))(X, X)
    assert internals.read_inputs(closed, (True, False)) == {0}
    assert seen == [[True, False]]
