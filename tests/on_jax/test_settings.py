"""Claims about JAX's settings: under each, a loop and its derivatives give what the unrolled loop gives.

What a process has from its start, its cache of compiled programs, is tried in processes of their own.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynloop
from tests.closeness import assert_close
from tests.on_jax.subjects import W, X
from tests.user_process import run_python

pytestmark = pytest.mark.versions

STEPS = 7
Loss = Callable[[Any, Any], Any]
SINGLE = 1e-4
"""What two orders of the same single-precision arithmetic may differ by, relative to the largest entry."""


def looped(x: jax.Array, w: jax.Array) -> jax.Array:
    body = lambda c: (c[0] + 1, jnp.tanh(w @ c[1]) + x)
    return jnp.sum(dynloop.while_loop(lambda c: c[0] < STEPS, body, (0, x), checkpoints=2)[1] ** 2)


def bounded(x: jax.Array, w: jax.Array) -> jax.Array:
    """Every state kept, and a bound that would raise."""
    body = lambda c: (c[0] + 1, jnp.tanh(w @ c[1]) + x)
    options = {"max_steps": 9, "checkpoints": "all"}
    return jnp.sum(dynloop.while_loop(lambda c: c[0] < STEPS, body, (0, x), **options)[1] ** 2)


def unrolled(x: jax.Array, w: jax.Array) -> jax.Array:
    y = x
    for _ in range(STEPS):
        y = jnp.tanh(w @ y) + x
    return jnp.sum(y**2)


DERIVED: dict[str, Callable[[Loss], Callable[[Any, Any], Any]]] = {
    "gradient": lambda f: jax.grad(f, (0, 1)),
    "jvp": lambda f: lambda x, w: jax.jvp(f, (x, w), (x, w)),
    "gradient of a gradient": lambda f: jax.grad(lambda x, w: jnp.sum(jax.grad(f)(x, w) ** 2)),
    "vmap of the gradient": lambda f: lambda x, w: jax.vmap(jax.grad(f), (0, None))(jnp.stack([x, -x]), w),
}

SETTINGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "debug_nans": lambda: jax.debug_nans(True),
    "debug_infs": lambda: jax.debug_infs(True),
    "checking_leaks": jax.checking_leaks,
    "disable_jit": jax.disable_jit,
    "32 bits": lambda: jax.enable_x64(False),
    "strict promotion of dtypes": lambda: jax.numpy_dtype_promotion("strict"),
}
CHANGING = ("debug_nans", "checking_leaks", "disable_jit", "32 bits")
"""The settings that change how a program is traced, compiled or run, and not only what is refused."""


def full(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.full)


@pytest.mark.parametrize(
    ("name", "is_compiled"),
    [
        ("gradient", False),
        ("vmap of the gradient", True),
        full("jvp", False),
        full("gradient", True),
        full("gradient of a gradient", True),
    ],
)
@pytest.mark.parametrize("setting", [name if name in CHANGING else full(name) for name in SETTINGS])
def test_derivatives_equal_unrolled_under_every_setting(setting: str, name: str, is_compiled: bool):
    expected = jax.jit(DERIVED[name](unrolled))(X, W)
    with SETTINGS[setting]():
        # The oracle's dtype is the suite's; a setting may make the loop's another.
        x, w = jnp.asarray(np.asarray(X)), jnp.asarray(np.asarray(W))
        f = DERIVED[name](looped)
        found = (jax.jit(f) if is_compiled else f)(x, w)
    assert_close(found, expected, SINGLE if setting == "32 bits" else 1e-12)


@pytest.mark.parametrize("setting", ["debug_nans", "disable_jit"])
def test_a_bound_that_would_raise_changes_no_gradient(setting: str):
    with SETTINGS[setting]():
        found = jax.grad(bounded, (0, 1))(X, W)
    assert_close(found, jax.jit(jax.grad(unrolled, (0, 1)))(X, W))


def test_a_nan_of_the_body_is_reported_by_debug_nans():
    f = lambda x: dynloop.while_loop(lambda y: y > 0, lambda y: jnp.log(y - 2), x)
    assert bool(jnp.isnan(f(jnp.asarray(1.0))))
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="nan"):
        f(jnp.asarray(1.0))


def test_a_leaked_tracer_is_reported_in_a_body():
    kept = []

    def body(y: Any) -> Any:
        kept.append(y)
        return 2 * y

    with jax.checking_leaks(), pytest.raises(Exception, match="Leaked"):
        dynloop.while_loop(lambda y: y < 10, body, jnp.asarray(1.0))


def test_ranks_that_differ_raise_in_the_body_as_outside_of_it():
    # The suite forbids the promotion of ranks; a loop adds no exception to that, and no promotion of its own.
    f = lambda x: dynloop.while_loop(lambda y: jnp.sum(y) < 10, lambda y: y + W, x)
    with pytest.raises(ValueError, match="jax_numpy_rank_promotion='raise'"):
        f(X)


WIDTHS = """
import sys
import jax
jax.config.update("jax_enable_x64", sys.argv[1] == "64")
jax.config.update("jax_numpy_rank_promotion", "raise")
import jax.numpy as jnp, dynloop
def f(x):
    body = lambda c: (c[0] + 1, jnp.sin(c[1]) * x)
    return jnp.sum(dynloop.while_loop(lambda c: c[0] < 7, body, (0, x), checkpoints=2)[1])
def unrolled(x):
    y = x
    for _ in range(7):
        y = jnp.sin(y) * x
    return jnp.sum(y)
x = jnp.asarray([1.5, 2.0])
found, expected = jax.jit(jax.grad(f))(x), jax.grad(unrolled)(x)
print(found.dtype, float(jnp.max(abs(found - expected) / abs(expected))))
"""


@pytest.mark.parametrize(("bits", "tolerance"), [(32, 1e-5), (64, 1e-12)])
def test_a_user_process_of_either_width_computes_the_gradient_of_its_dtype(bits: int, tolerance: float):
    dtype, error = run_python("-c", WIDTHS, str(bits)).split()
    assert dtype == f"float{bits}"
    assert float(error) < tolerance


CACHED = """
import sys
import jax, dynloop
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event) if event.endswith("cache_hits") else None)
f = lambda x: dynloop.while_loop(lambda y: y < 100, lambda y: 1.5 * y + y * x, x, checkpoints=2)
print(jax.jit(jax.grad(f))(0.5), len(hits))
def bounded(x):
    return dynloop.while_loop(lambda y: y < 100, lambda y: 1.5 * y + y * x, x, checkpoints=2, max_steps=9)
bounded = jax.jit(jax.grad(bounded))
print(bounded(0.5), 0)
try:
    print(bounded(1e-9), 0)
except (RuntimeError, ValueError) as error:
    print("raised" if "max_steps=9 was reached" in str(error) else error, 0)
"""


def test_a_program_is_found_in_the_cache_of_another_process(tmp_path: Path):
    """Its numbers are the same, and a bound that is reached raises, whether or not a program that raises is kept."""
    runs = [[line.split() for line in run_python("-c", CACHED, str(tmp_path)).splitlines()] for _ in range(2)]
    (first, *first_bounded), (second, *second_bounded) = runs
    assert (first[1], second[1]) == ("0", "1")
    assert second[0] == first[0] == first_bounded[0][0]
    assert first_bounded == second_bounded
    assert first_bounded[1][0] == "raised"
