"""A fixed-point layer: both of its gradients against linear algebra."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests.dynloop.adapter import Backend


@pytest.fixture
def layers(story: Callable[[str], Any]) -> Any:
    return story("fixed_point")


def vjp_of(backend: Backend) -> Any:
    return import_module({"jax": "jax", "torch": "torch.func"}[backend.library]).vjp


def test_value_and_gradient_through_the_loop_equal_the_closed_form(layers: Any, backend: Backend) -> None:
    (weights, bias), target = layers.example()
    fixed, exact = layers.closed_form((weights, bias), target)
    solve = lambda w, b: layers.unrolled_layer(backend.xp, (w, b), backend.xp.zeros(6), 1e-13, checkpoints=2)
    loss = lambda w, b: layers.loss(solve(w, b), backend.asarray(target))
    arrays = backend.asarray(weights), backend.asarray(bias)
    np.testing.assert_allclose(backend.value(solve, *arrays), fixed, rtol=0, atol=1e-12)
    assert layers.distance(backend.grad(loss, (0, 1))(*arrays), exact) < 1e-10


def test_implicit_gradient_equals_the_closed_form(layers: Any, backend: Backend) -> None:
    parameters, target = layers.example()
    fixed, exact = layers.closed_form(parameters, target)
    arrays = tuple(map(backend.asarray, parameters))
    found = layers.implicit_gradient(
        backend.xp, vjp_of(backend), arrays, backend.asarray(fixed), backend.asarray(fixed - target), 1e-13
    )
    assert layers.distance(found, exact) < 1e-11


def test_implicit_rule_of_the_layer_equals_the_gradient_through_the_loop(layers: Any) -> None:
    through, implicit = layers.errors(1e-12)
    assert through < 1e-9
    assert implicit < 1e-9


def test_gradient_is_as_good_as_the_tolerance(layers: Any) -> None:
    # Each application multiplies both errors by the same contraction, so neither runs ahead of the tolerance.
    rough, fine = layers.errors(1e-3), layers.errors(1e-7)
    assert max(fine) < 1e-2 * min(rough)
    assert min(rough) > 1e-5, "a rough tolerance must show, or the comparison shows nothing"


def test_layer_that_does_not_settle_raises(layers: Any, backend: Backend) -> None:
    # z -> 1 - z goes to and fro for ever.
    with pytest.raises(RuntimeError, match="max_steps"):
        layers.settle(backend.xp, lambda z: 1 - z, backend.xp.zeros(3), 1e-6)


@pytest.mark.parametrize("tolerance", [0.0, -1e-3, float("nan")])
def test_tolerance_that_no_state_meets_is_refused(layers: Any, tolerance: float) -> None:
    with pytest.raises(ValueError, match="tolerance must be positive"):
        layers.settle(jnp, lambda z: z / 2, jnp.ones(3), tolerance)


def test_norms_are_printed_beside_each_other(layers: Any, capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    layers.main([str(tmp_path / "errors.png")])
    through, exact = (float(part.split()[-1]) for part in capsys.readouterr().out.split(","))
    assert through == pytest.approx(exact, rel=1e-9)
    assert (tmp_path / "errors.png").read_bytes().startswith(b"\x89PNG")
