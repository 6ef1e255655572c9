"""The solver kit on PyTorch: the same source, the same steps, the same gradients as on JAX."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.examples.ode_kit import kit, solved, solver


@pytest.mark.parametrize("method", ["DormandPrince54", "Tsit5", "Rodas4"])
def test_steps_values_and_gradients_are_those_on_jax(method: str) -> None:
    problem, tolerance = kit().LORENZ, 1e-4
    of_jax = solver(method, tolerance)
    known = jax.jit(lambda: solved(problem, of_jax))()
    slope = jax.jit(jax.grad(lambda p: jnp.sum(solved(problem, of_jax, p).value)))(jnp.array(problem.parameters))

    field = problem.field(torch)
    parameters = torch.tensor(problem.parameters, dtype=torch.float64, requires_grad=True)
    start = torch.tensor(problem.start, dtype=torch.float64)
    of_torch = kit().Solver(torch, getattr(kit(), method), tolerance, tolerance, jacfwd=torch.func.jacfwd)
    end = kit().solve(of_torch, lambda t, y: field(t, y, parameters), [0.0, problem.end], start)

    assert (int(end.accepted), int(end.rejected)) == (int(known.accepted), int(known.rejected))
    np.testing.assert_allclose(end.value.detach(), known.value, rtol=1e-8)
    np.testing.assert_allclose(torch.autograd.grad(end.value.sum(), parameters)[0], slope, rtol=1e-6)


def turn(time: Any, value: Any) -> Any:
    return torch.stack([value[1], -value[0]])


def test_values_are_saved() -> None:
    times = np.array([0.0, 0.1, 2.0, 5.0])
    start = torch.tensor([1.0, 0.0], dtype=torch.float64)
    end = kit().solve(kit().Solver(torch), turn, times, start, save=True)
    np.testing.assert_allclose(end.saved[:, 0], np.cos(times), atol=1e-5)


def test_an_event_is_found() -> None:
    start = torch.tensor([1.0, 0.0], dtype=torch.float64)
    end = kit().solve(kit().Solver(torch, rtol=1e-9), turn, [0.0, 5.0], start, event=lambda t, y: y[0])
    assert int(end.status) == kit().Status.EVENT
    np.testing.assert_allclose(end.time, np.pi / 2, rtol=1e-8)
    assert "stopped at the event" in str(end)


def test_a_rejected_step_that_is_no_number_leaves_the_gradient_alone() -> None:
    # (1 - k t / 2)^2, which steps that are too long leave for where the root is NaN.
    rate, start = torch.tensor(1.0, dtype=torch.float64, requires_grad=True), torch.ones(1, dtype=torch.float64)
    end = kit().solve(kit().Solver(torch, rtol=1e-6), lambda t, y: -rate * torch.sqrt(y), [0.0, 1.9], start)
    assert int(end.rejected) > 0
    np.testing.assert_allclose(torch.autograd.grad(end.value[0], rate)[0], -1.9 * (1 - 0.95), rtol=1e-4)


def test_times_have_their_gradient() -> None:
    # exp(-(t^2 - t0^2) / 2)
    times = torch.tensor([0.3, 0.7, 1.2], dtype=torch.float64, requires_grad=True)
    start = torch.ones(1, dtype=torch.float64)
    saved = kit().solve(kit().Solver(torch, rtol=1e-8), lambda t, y: -y * t, times, start, save=True).saved[:, 0]
    value = np.exp(-(np.array([0.7, 1.2]) ** 2 - 0.09) / 2)
    np.testing.assert_allclose(saved.detach(), [1.0, *value], rtol=1e-6)
    slope = [0.3 * value.sum(), *(-np.array([0.7, 1.2]) * value)]
    np.testing.assert_allclose(torch.autograd.grad(saved.sum(), times)[0], slope, rtol=1e-5)
