"""TreeverseAdjoint for Optimistix: what its own adjoints find, and in every mode what the unrolled iterations have."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optimistix
import pytest

import dynloop
from dynloop.integrations.optimistix import TESTED, TreeverseAdjoint
from tests.docstrings import run_examples
from tests.user_process import run_python

START = jnp.array([0.2, 0.4])
AT = jnp.array([1.1, 0.9])


def contraction(y: jax.Array, a: jax.Array) -> jax.Array:
    return 0.5 * jnp.cos(a * y) + 0.1 * jnp.sin(y[::-1])


def residuals(y: jax.Array, a: jax.Array) -> jax.Array:
    """Rosenbrock's."""
    return jnp.stack([10 * a[0] * (y[1] - y[0] ** 2), a[1] - y[0]])


# The entry point, its function and solver, and whether the derivative has converged with the iterations.
SOLVES: dict[str, tuple[Any, Callable[..., Any], Any, bool]] = {
    "root_find": (optimistix.root_find, lambda y, a: y - contraction(y, a), optimistix.Newton(1e-10, 1e-10), True),
    "fixed_point": (optimistix.fixed_point, contraction, optimistix.FixedPointIteration(1e-10, 1e-10), True),
    "least_squares": (optimistix.least_squares, residuals, optimistix.LevenbergMarquardt(1e-10, 1e-10), False),
    "minimise": (optimistix.minimise, lambda y, a: jnp.sum(residuals(y, a) ** 2), optimistix.BFGS(1e-10, 1e-10), False),
}


def loss(at: jax.Array, name: str, adjoint: Any, max_steps: int | None = 256, start: jax.Array = START) -> jax.Array:
    entry, function, solver, _ = SOLVES[name]
    return jnp.sum(entry(function, solver, start, at, adjoint=adjoint, max_steps=max_steps).value ** 3)


@pytest.mark.parametrize("name", SOLVES)
def test_gradients_are_those_of_optimistix(name: str) -> None:
    ours = jax.jit(jax.value_and_grad(partial(loss, name=name, adjoint=TreeverseAdjoint(6), max_steps=None)))(AT)
    theirs = jax.jit(jax.value_and_grad(partial(loss, name=name, adjoint=optimistix.RecursiveCheckpointAdjoint())))(AT)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-8), ours, theirs)
    if SOLVES[name][-1]:
        implicit = jax.jit(jax.grad(partial(loss, name=name, adjoint=optimistix.ImplicitAdjoint())))(AT)
        np.testing.assert_allclose(ours[1], implicit, rtol=1e-7)


def test_all_orders_of_both_modes_are_those_of_the_unrolled_iterations() -> None:
    steps = 6
    entry, function, _, _ = SOLVES["fixed_point"]
    loose = optimistix.FixedPointIteration(rtol=1e-30, atol=1e-30)

    def through(at: jax.Array) -> jax.Array:
        solved = entry(function, loose, START, at, adjoint=TreeverseAdjoint(3), max_steps=steps, throw=False)
        return jnp.sum(solved.value**3)

    def unrolled(at: jax.Array) -> jax.Array:
        y = START
        for _ in range(steps):
            y = contraction(y, at)
        return jnp.sum(y**3)

    for mode in (jax.grad, jax.jacfwd, jax.hessian, lambda f: jax.jacrev(jax.grad(f))):
        ours, theirs = (jax.jit(mode(f))(AT) for f in (through, unrolled))
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)


def test_the_start_has_a_derivative() -> None:
    slope = jax.grad(lambda start: loss(AT, "fixed_point", TreeverseAdjoint(), start=start))(START)
    assert np.all(slope != 0)
    assert np.all(abs(slope) < 1e-8), "the iterations have converged, and so forgotten their start"


@pytest.mark.parametrize("adjoint", [TreeverseAdjoint(), TreeverseAdjoint(checkpoints=0)])
def test_a_bound_that_is_met_is_optimistix_own_affair(adjoint: Any) -> None:
    with pytest.raises(RuntimeError, match="maximum number of"):
        loss(AT, "fixed_point", adjoint, max_steps=2)


def test_reverse_mode_without_checkpoints_is_refused() -> None:
    with pytest.raises(dynloop.DerivativeError, match="checkpoints=0"):
        jax.grad(loss)(AT, "fixed_point", TreeverseAdjoint(checkpoints=0))


def test_the_example_runs() -> None:
    assert run_examples(TreeverseAdjoint, "TreeverseAdjoint", {}) == (4, "")


def test_this_version_is_a_tested_one() -> None:
    assert optimistix.__version__ in TESTED


MOVES = {
    "apply": "del optimistix.AbstractAdjoint.apply",
    "primal_fn": "optimistix.AbstractAdjoint.apply = lambda self, rewrite_fn, inputs, tags: None",
}


@pytest.mark.parametrize("name", MOVES)
def test_an_optimistix_that_moves_a_name_is_told_which_version_works(name: str) -> None:
    with pytest.raises(AssertionError) as failed:
        run_python("-c", f"import optimistix\n{MOVES[name]}\nimport dynloop.integrations.optimistix")
    last = str(failed.value).strip().splitlines()[-1]
    assert last.startswith("ImportError: dynloop.integrations.optimistix needs what optimistix 0.1.0 does not have")
    assert name in last
    assert "pip install 'optimistix==0.1.0'" in last
