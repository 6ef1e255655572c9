"""Claims about `jax.export`: a loop is a program like any other, for whoever reads it, at sizes that may be symbolic.

The numbers come from a process of its own, to which dynloop is forbidden, and are compared with those of this one.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

import dynloop
from dynloop import ArgumentError, DerivativeError, StoppedBecause
from tests.closeness import assert_close
from tests.on_jax.subjects import V, W, X
from tests.user_process import run_python

pytestmark = pytest.mark.versions

Function = Callable[[Any], Any]


def far(y: jax.Array) -> jax.Array:
    return jnp.sum(y**2) < 100


def grow(y: jax.Array) -> jax.Array:
    return 1.5 * y + jnp.sin(y)


def grown(x: jax.Array, **options: Any) -> jax.Array:
    """A function of vectors of any length but zero."""
    options = {"checkpoints": 2} | options
    return jnp.sum(dynloop.while_loop(far, grow, x, **options) ** 2)


def weighted(x: jax.Array) -> jax.Array:
    """A loop that closes over an array."""
    return jnp.sum(dynloop.while_loop(far, lambda y: grow(y) + W @ y, x, checkpoints=2) ** 2)


def counted(x: jax.Array) -> tuple[Any, Any, Any]:
    """A partial result, and how it came about."""
    result = dynloop.while_loop(far, grow, x, max_steps=2, on_max_steps="stop", full_output=True)
    return result.carry, result.steps, result.status


# ---- in another process

FUNCTIONS: dict[str, Function] = {
    "forward": grown,
    "gradient": jax.grad(weighted),
    "Hessian": jax.hessian(weighted),
    "jvp": lambda x: jax.jvp(weighted, (x,), (V,))[1],
    "vmap of the gradient": lambda x: jax.vmap(jax.grad(weighted))(jnp.stack([x, 20 * x, 3 * x])),
    "bound that stops": counted,
    "gradient of a bound that is not reached": jax.grad(lambda x: grown(x, max_steps=99, on_max_steps="nan")),
}

READER = """
import jax.export, json, pathlib, sys
sys.modules["dynloop"] = sys.modules["adjoint"] = None  # importing them fails from here on
jax.config.update("jax_enable_x64", True)
found = {}
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    exported = jax.export.deserialize(bytearray(path.read_bytes()))
    x = jax.numpy.asarray(json.loads(sys.argv[2]))
    found[path.name] = [y.tolist() for y in jax.tree.leaves(exported.call(x))]
    if path.name == "forward":
        found["its own gradient"] = jax.grad(exported.call)(x).tolist()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process without dynloop computes with the exported functions."""
    folder = tmp_path_factory.mktemp("exported")
    for name, f in FUNCTIONS.items():
        exported = export.export(jax.jit(f))(X)
        (folder / name).write_bytes(exported.serialize(vjp_order=1 if name == "forward" else 0))
    return json.loads(run_python("-c", READER, str(folder), json.dumps(X.tolist())))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_process_without_dynloop_computes_the_same(read: dict[str, Any], name: str):
    assert_close([np.asarray(y) for y in read[name]], jax.tree.leaves(jax.jit(FUNCTIONS[name])(X)))


def test_an_exported_function_takes_its_gradient_along(read: dict[str, Any]):
    assert_close(np.asarray(read["its own gradient"]), jax.jit(jax.grad(grown))(X))


def test_the_reader_cannot_import_dynloop(tmp_path: Path):
    with pytest.raises(AssertionError, match="import of dynloop halted"):
        run_python("-c", f"{READER}\nimport dynloop", str(tmp_path), "[1.0]")


def test_a_result_is_exported_as_one():
    f = lambda x: dynloop.while_loop(far, grow, x, max_steps=2, on_max_steps="stop", full_output=True)
    result = export.deserialize(export.export(jax.jit(f))(X).serialize()).call(X)
    assert isinstance(result, dynloop.Result)
    assert (int(result.steps), result.stopped_because) == (2, StoppedBecause.BOUND)
    assert_close(result.carry, grow(grow(X)))


# ---- symbolic shapes


def symbolic(shape: str) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(export.symbolic_shape(shape), jnp.float64)


DERIVED: dict[str, Callable[[Function], Function]] = {
    "forward": lambda f: f,
    "gradient": jax.grad,
    "Hessian": jax.hessian,
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (2 * x,)),
}


@pytest.mark.parametrize("name", DERIVED)
def test_one_program_serves_every_size(name: str):
    f = jax.jit(DERIVED[name](grown))
    exported = export.export(f)(symbolic("n"))
    assert_close([exported.call(X[:n]) for n in (1, 3)], [f(X[:n]) for n in (1, 3)])


@pytest.mark.parametrize("checkpoints", [2, "auto"])
def test_one_program_serves_every_size_of_a_batch(checkpoints: Any):
    # The bytes of one lane are known, and so "auto" is too.
    f = jax.jit(jax.vmap(jax.grad(lambda x: grown(x, checkpoints=checkpoints))))
    exported = export.export(f)(symbolic("lanes, 3"))
    for lanes in (jnp.stack([X, 20 * X]), X[None]):
        assert_close(exported.call(lanes), f(lanes))


def test_a_loop_of_a_symbolic_size_needs_no_number_of_slots_without_reverse_mode():
    f = jax.jit(lambda x: jax.jvp(lambda x: grown(x, checkpoints="auto"), (x,), (x,)))
    assert_close(export.export(f)(symbolic("n")).call(X), f(X))


@pytest.mark.parametrize("derivative", [jax.grad, jax.hessian])
@pytest.mark.parametrize(
    ("checkpoints", "shown"),
    [("auto", '"auto"'), (None, '"auto"'), (dynloop.Memory("1MiB"), r"dynloop.Memory\('1MiB'\)")],
    ids=["auto", "None", "Memory"],
)
def test_bytes_of_a_symbolic_size_are_refused(derivative: Any, checkpoints: Any, shown: str):
    f = derivative(lambda x: grown(x, checkpoints=checkpoints))
    with pytest.raises(ArgumentError, match=rf"checkpoints={shown} counts the bytes .* symbolic; .* checkpoints=8"):
        export.export(jax.jit(f))(symbolic("n"))
    # What the message says to write works.
    export.export(jax.jit(derivative(lambda x: grown(x, checkpoints=8))))(symbolic("n"))


def test_a_loop_without_reverse_mode_stays_one_at_a_symbolic_size():
    with pytest.raises(DerivativeError, match="checkpoints=0"):
        export.export(jax.jit(jax.grad(lambda x: grown(x, checkpoints=0))))(symbolic("n"))


# ---- the bound

BOUNDED: dict[str, Function] = {
    "forward": lambda x: grown(x, max_steps=9),
    "gradient": jax.grad(lambda x: grown(x, max_steps=9)),
    "jvp": lambda x: jax.jvp(lambda x: grown(x, max_steps=9), (x,), (x,)),
    "vmap of the gradient": lambda x: jax.vmap(jax.grad(lambda x: grown(x, max_steps=9)))(x[None]),
    "scan": lambda x: lax.scan(lambda c, _: (c * grown(c, max_steps=9), None), x, None, length=2)[0],
}


@pytest.mark.parametrize("f", BOUNDED.values(), ids=BOUNDED.keys())
def test_a_bound_that_raises_is_not_exported(f: Function):
    with pytest.raises(ArgumentError, match=r'on_max_steps="raise" needs .*exported.*Give on_max_steps="stop"'):
        export.export(jax.jit(f))(X)


def test_a_bound_that_raises_still_compiles_after_it_was_refused():
    f = jax.jit(BOUNDED["forward"])
    with pytest.raises(ArgumentError, match="exported"):
        export.export(f)(X)
    assert_close(f(X), grown(X))
