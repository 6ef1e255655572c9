"""Claims about programs for a GPU, made on a machine that has none: every one lowers, and none calls back to the host.

What a GPU would compute is not tested here. A program that is lowered for `cuda` and holds no custom call consists of
StableHLO's own operations, which mean the same on every platform.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import export

import dynloop
from dynloop import ArgumentError
from tests.on_jax.programs import custom_calls
from tests.on_jax.subjects import SUBJECTS, V, W, X, looped
from tests.user_process import ROOT

pytestmark = pytest.mark.versions

Function = Callable[[Any], Any]

DERIVED: dict[str, Callable[[Function, Any], Any]] = {
    "forward": lambda f, x: f(x),
    "gradient": lambda f, x: jax.grad(f)(x),
    "Hessian": lambda f, x: jax.hessian(f)(x),
    "jvp": lambda f, x: jax.jvp(f, (x,), (x,)),
    "vmap of the gradient": lambda f, x: jax.vmap(jax.grad(f))(jnp.stack([x, 2 * x])),
}


def cuda_program(f: Callable[..., Any], *args: Any) -> str:
    return export.export(jax.jit(f), platforms=["cuda"])(*args).mlir_module()


def plain() -> tuple[Function, jax.Array]:
    """A loop whose state decides when it ends: under vmap its lanes stop by themselves."""
    far = lambda y: jnp.sum(y**2) < 100
    grow = lambda y: 1.5 * y + jnp.sin(W @ y)
    return lambda x: jnp.sum(dynloop.while_loop(far, grow, x, checkpoints=4)), X


def stopped() -> tuple[Function, jax.Array]:
    """A bound, and every state kept."""
    f = SUBJECTS["simple"](looped(max_steps=9, checkpoints="all", on_max_steps="stop"))
    return lambda x: f(x, W), X


def marked() -> tuple[Function, jax.Array]:
    """A bound whose answer past it is NaN, slots beside a leaf buffer, and a typed key in the carry."""
    options = {"max_steps": 9000, "checkpoints": dynloop.Memory("64KiB"), "on_max_steps": "nan"}
    f = SUBJECTS["typed_keys"](looped(**options))
    return lambda x: f(x, W), X


def hare_and_lynx() -> tuple[Function, jax.Array]:
    """Both files of examples/: the misfit of the quickstart, which runs the adaptive solver."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "examples"))
        quickstart = import_module("quickstart")
    times, pelts = map(jnp.asarray, quickstart.read_record())
    return lambda x: quickstart.misfit(x, times, pelts)[0], jnp.asarray(quickstart.first_guess(pelts))


@pytest.mark.parametrize("name", DERIVED)
@pytest.mark.parametrize("make", [plain, stopped, marked, hare_and_lynx])
def test_a_program_for_cuda_calls_nothing_outside(make: Any, name: str):
    f, x = make()
    program = cuda_program(lambda x: DERIVED[name](f, x), x)
    assert "stablehlo.while" in program
    assert custom_calls(program) == set()


def test_a_gradient_of_a_gradient_for_cuda_calls_nothing_outside():
    f, x = plain()
    program = cuda_program(jax.grad(lambda x: jnp.sum(jax.grad(f)(x) ** 2)), x)
    assert "stablehlo.while" in program
    assert custom_calls(program) == set()


def test_a_program_for_several_platforms_is_one():
    f, x = plain()
    exported = export.export(jax.jit(jax.grad(f)), platforms=["cpu", "cuda", "rocm", "tpu"])(x)
    assert exported.platforms == ("cpu", "cuda", "rocm", "tpu")
    assert custom_calls(exported.mlir_module()) == set()


def test_a_call_to_the_host_would_be_found():
    (name,) = custom_calls(jax.jit(lambda x: jax.pure_callback(jnp.sin, x, x)).lower(X).as_text())
    assert "callback" in name


def test_custom_calls_are_found_in_either_spelling():
    assert custom_calls('%0 = stablehlo.custom_call @first(%a) ... call_target_name = "second"') == {"first", "second"}


def bounded(x: jax.Array) -> jax.Array:
    return jnp.sum(dynloop.while_loop(lambda y: jnp.sum(y) < 9, lambda y: y + V**2, x, max_steps=50, checkpoints=2))


@pytest.mark.parametrize("platforms", [("cuda",), ("cpu", "cuda")], ids=["for cuda", "for both"])
@pytest.mark.parametrize("f", [bounded, jax.grad(bounded)], ids=["forward", "gradient"])
def test_a_bound_that_raises_is_not_lowered_for_another_machine(f: Any, platforms: tuple[str, ...]):
    with pytest.raises(ArgumentError, match=r'^while_loop: on_max_steps="raise" needs .*Give on_max_steps="stop"'):
        jax.jit(f).trace(X).lower(lowering_platforms=platforms)


def test_a_bound_that_raises_is_lowered_for_this_machine():
    assert len(custom_calls(jax.jit(bounded).trace(X).lower().as_text())) == 1
