"""Claims about what dynloop takes from JAX beyond its documented surface: each name still does what its rule needs.

A primitive of two results, (2 x, 3 x), is given every rule; each test runs the transformation that must find one.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from dynloop.on_jax import internals

X, V = jnp.asarray(5.0), jnp.asarray(7.0)


def meaning(x: Any) -> list[Any]:
    return [2 * x, 3 * x]


@pytest.fixture
def calls() -> list[str]:
    """The rules that ran."""
    return []


@pytest.fixture
def primitive(calls: list[str]) -> Iterator[Any]:
    scale = internals.new_primitive("dynloop_test_scale")

    def jvp(primals: Any, tangents: Any) -> Any:
        calls.append("jvp")
        return scale.bind(*primals), scale.bind(internals.instantiate(tangents[0]))

    def transpose(cotangents: Any, x: Any) -> list[Any]:
        calls.append("transpose")
        assert internals.is_linear_input(x)
        assert not internals.is_linear_input(X)
        first, second = map(internals.instantiate, cotangents)
        return [2 * first + 3 * second]

    def batch(axis_data: Any, args: Any, dims: Any) -> Any:
        calls.append("batch")
        return scale.bind(*args), [dims[0]] * 2

    def partial_eval(trace: Any, x: Any) -> Any:
        calls.append("known" if internals.is_known(x) else "unknown")
        # What a rule returns must be a tracer of its trace, whether known or not.
        assert internals.is_known(internals.as_tracer(trace, V))
        first, _ = internals.bind_unknown(trace, scale, [x], {})
        with internals.under(trace):
            return [first, 3 * x]

    def checkpoint(saveable: Any, unknown: Any, inst: Any, eqn: Any) -> Any:
        calls.append("checkpoint")
        residuals = [v for v, i in zip(eqn.invars, inst, strict=True) if not i and isinstance(v, internals.Var)]
        known = not any(unknown)
        return eqn if known else None, eqn, [not known] * 2, [True] * 2, residuals

    scale.def_impl(meaning)
    scale.def_abstract_eval(lambda aval: [aval, aval])
    internals.set_lowering(scale, meaning)
    internals.set_jvp(scale, jvp)
    internals.set_transpose(scale, transpose)
    internals.set_batching(scale, batch)
    internals.set_partial_eval(scale, partial_eval)
    internals.set_checkpoint(scale, checkpoint)
    yield scale
    tables = (
        internals._JVPS,
        internals._TRANSPOSES,
        internals._BATCHERS,
        internals._PARTIAL_EVALS,
        internals._CHECKPOINTS,
    )
    for table in tables:
        del table[scale]


def test_a_primitive_has_its_name_and_several_results(primitive: Any):
    assert isinstance(primitive, internals.Primitive)
    assert (primitive.name, primitive.multiple_results) == ("dynloop_test_scale", True)
    assert [float(x) for x in primitive.bind(X)] == [10, 15]


def test_set_lowering_gives_the_compiled_meaning(primitive: Any):
    assert [float(x) for x in jax.jit(primitive.bind)(X)] == [10, 15]


def test_set_jvp_is_found_by_jvp(primitive: Any, calls: list[str]):
    _, tangents = jax.jvp(primitive.bind, (X,), (V,))
    assert [float(x) for x in tangents] == [14, 21]
    assert calls == ["jvp"]


def test_set_transpose_is_found_by_linear_transpose(primitive: Any, calls: list[str]):
    (out,) = jax.linear_transpose(primitive.bind, X)([jnp.asarray(1.0), jnp.asarray(10.0)])
    assert float(out) == 32
    assert "transpose" in calls


def test_set_batching_is_found_by_vmap(primitive: Any, calls: list[str]):
    first, second = jax.vmap(primitive.bind)(jnp.arange(3.0))
    assert (first.tolist(), second.tolist()) == ([0, 2, 4], [0, 3, 6])
    assert calls == ["batch"]


def test_set_partial_eval_is_found_by_reverse_mode(primitive: Any, calls: list[str]):
    # vjp of a jitted function partially evaluates: here the tangent's equation is unknown.
    _, pull = jax.vjp(jax.jit(primitive.bind), X)
    (out,) = pull([jnp.asarray(1.0), jnp.asarray(10.0)])
    assert float(out) == 32
    assert "unknown" in calls


def test_set_checkpoint_is_found_by_checkpoint(primitive: Any, calls: list[str]):
    gradient = jax.grad(jax.checkpoint(lambda x: jnp.sin(primitive.bind(jnp.sin(x))[0])))(X)
    expected = jax.grad(lambda x: jnp.sin(2 * jnp.sin(x)))(X)
    np.testing.assert_allclose(gradient, expected, rtol=1e-14)
    assert "checkpoint" in calls


def test_a_named_axis_is_noticed():
    seen = []
    jax.vmap(lambda x: (seen.append(internals.has_named_axes()), x)[1], axis_name="i")(jnp.ones(2))
    assert [internals.has_named_axes(), *seen] == [False, True]


def test_jitted_functions_are_told():
    assert isinstance(jax.jit(lambda x: x), internals.JITTED)
    assert not isinstance(lambda x: x, internals.JITTED)


def test_calls_of_functions_with_custom_rules_are_told():
    f, g = jax.custom_vjp(jnp.sin), jax.custom_jvp(jnp.sin)
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * jnp.cos(x),))
    g.defjvp(lambda primals, tangents: (g(*primals), tangents[0]))
    closed = jax.make_jaxpr(lambda x: f(x) + g(x))(X)
    assert [internals.calls_custom_rule(eqn) for eqn in internals.equations(closed)] == [True, True, False]


@pytest.mark.parametrize("ordered", [True, False])
def test_ordered_effects_are_told(ordered: bool):
    closed = jax.make_jaxpr(lambda x: jax.debug.callback(print, x, ordered=ordered))(X)
    assert [internals.is_ordered(effect) for effect in closed.effects] == [ordered]


def test_symbolic_zeros_are_told_and_made():
    zero = internals.zero_tangent_of(X)
    assert internals.is_zero(zero)
    assert not internals.is_zero(V)
    assert float(internals.instantiate(zero)) == 0
    assert internals.instantiate(V) is V


@pytest.mark.parametrize(
    ("tangent", "expected"),
    [(V, True), (1.0, True), (internals.zero_tangent_of(X), False), (np.zeros(2, jax.dtypes.float0), False)],
    ids=["array", "number", "symbolic zero", "tangent of integers"],
)
def test_tangents_that_are_zero_for_certain_are_told(tangent: Any, expected: bool):
    assert internals.has_value(tangent) is expected


def test_symbolic_zeros_come_to_jvp_rules():
    pair = internals.new_primitive("dynloop_test_pair")
    seen = []

    def jvp(primals: Any, tangents: Any) -> Any:
        seen.extend(map(internals.is_zero, tangents))
        return list(primals), [internals.instantiate(t) for t in tangents]

    pair.def_impl(lambda *xs: list(xs))
    internals.set_jvp(pair, jvp)
    jax.jvp(lambda x: pair.bind(x, V), (X,), (V,))
    del internals._JVPS[pair]
    assert seen == [False, True]


@pytest.mark.parametrize(
    "x", [jnp.ones((2, 3), jnp.bfloat16), jax.random.split(jax.random.key(0), 2)], ids=["floats", "keys"]
)
def test_an_aval_is_that_of_an_array(x: jax.Array):
    aval = internals.shaped(x.shape, x.dtype)
    assert (aval.shape, aval.dtype) == (x.shape, x.dtype)
    assert jax.make_jaxpr(lambda x: x)(aval).out_avals == [jax.typeof(x)]


def test_zeros_of_an_aval():
    out = internals.zeros_of(jax.typeof(jnp.ones((2, 3), jnp.bfloat16)))
    assert (out.shape, str(out.dtype), float(out.sum())) == ((2, 3), "bfloat16", 0)


@pytest.mark.parametrize(
    ("x", "tangent"),
    [(jnp.ones(2), "float64"), (jnp.ones(2, jnp.complex64), "complex64"), (jnp.ones(2, int), "float0")],
    ids=["float", "complex", "int"],
)
def test_tangent_and_cotangent_avals(x: jax.Array, tangent: str):
    aval = jax.typeof(x)
    assert np.dtype(internals.tangent_aval(aval).dtype) == (jax.dtypes.float0 if tangent == "float0" else tangent)
    assert internals.has_tangent(aval) == (tangent != "float0")
    assert internals.tangent_aval(aval).shape == internals.cotangent_aval(aval).shape == (2,)


def test_typed_keys_are_extended_and_have_no_tangent():
    key = jax.random.key(0)
    assert internals.is_extended(key.dtype)
    assert not internals.is_extended(X.dtype)
    assert not internals.has_tangent(jax.typeof(key))


def test_varying_axes_are_those_of_the_mesh():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
    spec = jax.sharding.PartitionSpec
    seen = []

    def f(x: jax.Array, y: jax.Array) -> jax.Array:
        seen.extend([internals.varying_axes([x]), internals.varying_axes([y]), internals.varying_axes([jax.typeof(x)])])
        return x

    jax.shard_map(f, mesh=mesh, in_specs=(spec("d"), spec()), out_specs=spec("d"))(jnp.ones(2), jnp.ones(2))
    assert seen == [frozenset({"d"}), frozenset(), frozenset({"d"})]
    assert internals.varying_axes([X]) == frozenset()


def test_jaxprs_run_as_functions_and_open():
    closed = jax.make_jaxpr(lambda x: x + jnp.sin(V))(X)
    assert [float(y) for y in internals.as_function(closed)(X)] == [float(X + jnp.sin(V))]
    assert [float(y) for y in internals.evaluate(closed.jaxpr, closed.consts, [X])] == [float(X + jnp.sin(V))]


def test_constants_of_an_open_jaxpr_may_be_tracers():
    closed = jax.make_jaxpr(lambda x: x * np.asarray([1.0, 2.0]))(jnp.ones(2))
    assert len(closed.consts) == 1
    gradient = jax.grad(lambda c: jnp.sum(internals.evaluate(closed.jaxpr, [c], [jnp.asarray([3.0, 4.0])])[0]))
    assert gradient(jnp.ones(2)).tolist() == [3, 4]


@pytest.mark.parametrize(
    ("f", "read"),
    [
        (lambda x, y, z: y < 1, {1}),
        (lambda x, y, z: (x, jnp.sin(z)), {0, 2}),
        (lambda x, y, z: lax.cond(x > 0, lambda: y, lambda: 2 * y), {0, 1}),
        (lambda x, y, z: True, set()),
    ],
    ids=["equation", "output", "inner function", "nothing"],
)
def test_read_inputs_are_those_that_matter(f: Any, read: set[int]):
    assert internals.read_inputs(jax.make_jaxpr(f)(1.0, 2.0, 3.0)) == read


def test_equations_of_a_jaxpr_open_or_closed():
    closed = jax.make_jaxpr(lambda x: jnp.sin(x) + 1)(X)
    assert [e.primitive.name for e in internals.equations(closed)] == ["sin", "add"]
    assert [e.primitive.name for e in internals.equations(closed.jaxpr)] == ["sin", "add"]
    assert list(internals.equations("text")) == []


def test_tracers_are_told():
    seen = []
    jax.make_jaxpr(lambda x: seen.append(isinstance(x, internals.Tracer)) or x)(X)
    assert seen == [True]
    assert not isinstance(X, internals.Tracer)


PUBLIC = [name for name in vars(internals) if not name.startswith("_")]
OURS = [
    name
    for name in PUBLIC
    if not inspect.ismodule(getattr(internals, name)) and name not in ("Any", "Callable", "Sequence", "Aval")
]


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


@pytest.mark.parametrize("name", OURS)
def test_every_name_is_exercised_here(name: str):
    assert f"internals.{name}" in Path(__file__).read_text()
