"""Claims about what dynloop takes from JAX beyond its documented surface: each name still does what its rule needs.

A primitive of two results, (2 x, 3 x), is given every rule; each test runs the transformation that must find one.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from dynloop.on_jax import internals
from tests.user_process import run_python

pytestmark = pytest.mark.versions

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
        assert internals.asked_for([first], [X]) == [None]
        return internals.asked_for([2 * first + 3 * second], [x])

    def batch(axis_data: Any, args: Any, dims: Any) -> Any:
        calls.append("batch")
        return scale.bind(*args), [dims[0]] * 2

    def partial_eval(trace: Any, x: Any) -> Any:
        calls.append("known" if internals.is_known(x) else "unknown")
        # What a rule returns must be a tracer of its trace, whether known or not.
        assert internals.is_known(internals.as_tracer(trace, V))
        first, _ = internals.bind_partly(trace, scale, [x], {})
        with internals.under(trace):
            return [first, 3 * x]

    def primal_part(eqn: Any) -> None:
        assert all(isinstance(v, internals.Var) for v in eqn.invars)
        calls.append("checkpoint")

    scale.def_impl(meaning)
    scale.def_abstract_eval(lambda aval: [aval, aval])
    internals.set_lowering(scale, meaning)
    internals.set_jvp(scale, jvp)
    internals.set_transpose(scale, transpose)
    internals.set_batching(scale, batch)
    internals.set_partial_eval(scale, partial_eval)
    internals.set_checkpoint(scale, primal_part)
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


@pytest.fixture
def calling() -> Any:
    """A primitive that calls Python while it runs, and whose refusal is a KeyError."""
    calls_back = internals.new_primitive("dynloop_test_calls_back")
    calls_back.def_abstract_eval(lambda aval: [aval])
    result = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)
    internals.set_calling_lowering(calls_back, lambda x: [jax.pure_callback(np.cos, result(x), x)], KeyError)
    return jax.jit(lambda x: calls_back.bind(x)[0])


def test_set_calling_lowering_gives_the_compiled_meaning(calling: Any):
    np.testing.assert_allclose(calling(X), np.cos(X), rtol=1e-14)


def test_set_calling_lowering_refuses_what_is_exported(calling: Any):
    with pytest.raises(KeyError, match="exported"):
        jax.export.export(calling)(X)


@pytest.mark.parametrize("platforms", [("cuda",), ("cpu", "cuda")], ids=["another", "several"])
def test_set_calling_lowering_refuses_other_machines(calling: Any, platforms: tuple[str, ...]):
    with pytest.raises(KeyError, match=f"it is lowered for {' and '.join(platforms)} on another machine"):
        calling.trace(X).lower(lowering_platforms=platforms)


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


def test_effects_of_named_axes_are_told():
    seen = []

    def f(x: jax.Array) -> jax.Array:
        seen.extend(jax.make_jaxpr(lambda y: lax.psum(y, "i"))(x).effects)
        return x

    jax.vmap(f, axis_name="i")(jnp.ones(2))
    assert [(internals.uses_axis(effect, "i"), internals.uses_axis(effect, "j")) for effect in seen] == [(True, False)]
    (effect,) = jax.make_jaxpr(lambda x: jax.debug.callback(print, x))(X).effects
    assert not internals.uses_axis(effect, "i")


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


def test_zeros_of_keys_are_keys():
    keys = jax.typeof(jax.random.split(jax.random.key(0), 3))
    out = internals.zeros_of(keys)
    assert (out.shape, out.dtype) == (keys.shape, keys.dtype)


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


def test_this_version_is_a_tested_one():
    assert jax.__version__ in internals.TESTED


MOVED = """
from jax.interpreters import ad
del ad.primitive_transposes
import dynloop.on_jax
"""


def test_a_jax_that_moves_a_name_is_told_which_versions_work():
    with pytest.raises(AssertionError) as failed:
        run_python("-c", MOVED)
    last = str(failed.value).strip().splitlines()[-1]
    assert last.startswith(f"ImportError: dynloop's JAX backend needs what jax {jax.__version__} does not have")
    assert "primitive_transposes" in last
    assert "It works with jax 0.10.2 (Python 3.11) and jax 0.12.0.1 (Python 3.12): pip install" in last


PUBLIC = [name for name in vars(internals) if not name.startswith("_")]
OURS = [
    name
    for name in PUBLIC
    if not inspect.ismodule(getattr(internals, name)) and name not in ("Any", "Callable", "Sequence", "Aval")
]


@pytest.mark.parametrize("name", OURS)
def test_every_name_is_exercised(name: str):
    files = Path(__file__).parent.glob("test_internals*.py")
    assert any(f"internals.{name}" in file.read_text() for file in files)
