"""The solver kit on problems whose ends are known, its gradients against variational equations, and bad input."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from tests.examples.ode_kit import kit, solved, solver

# Of each problem the method, the tolerances and how far its end may be from the published one, relative to the largest
# entries but for Robertson's, whose are far apart.
ENDS: dict[str, tuple[str, dict[str, Any], float]] = {
    "ARENSTORF": ("DormandPrince54", {"tolerance": 1e-10}, 1e-4),
    "VAN_DER_POL": ("Rodas4", {"tolerance": 1e-5}, 1e-5),
    "ROBERTSON": ("Rodas4", {"tolerance": 1e-6, "atol": 1e-16}, 1e-4),
}


@pytest.mark.parametrize("name", ENDS)
def test_ends_are_the_published_ones(name: str) -> None:
    problem, (method, options, apart) = getattr(kit(), name), ENDS[name]
    end = jax.jit(lambda: solved(problem, solver(method, **options)))()
    assert int(end.status) == kit().Status.DONE
    atol = 0.0 if name == "ROBERTSON" else apart * np.max(np.abs(problem.known))
    np.testing.assert_allclose(end.value, problem.known, rtol=apart, atol=atol)
    assert float(end.time) == problem.end


def plain(problem: Any, **options: Any) -> Any:
    """The same problem by scipy."""
    field = problem.field(np)
    return solve_ivp(
        lambda t, y: field(t, y, problem.parameters), (0, options.pop("end", problem.end)), problem.start, **options
    )


@pytest.mark.parametrize(("name", "tolerance"), [("ARENSTORF", 1e-5), ("LORENZ", 1e-8)])
def test_evaluations_are_those_of_scipy(name: str, tolerance: float) -> None:
    problem = getattr(kit(), name)
    ours = jax.jit(lambda: solved(problem, solver("DormandPrince54", tolerance, control=kit().I)))()
    theirs = plain(problem, method="RK45", rtol=tolerance, atol=tolerance)
    assert abs(int(ours.evaluations) - theirs.nfev) <= 0.1 * theirs.nfev
    np.testing.assert_allclose(ours.value, theirs.y[:, -1], rtol=1e-4)


def variational(problem: Any, jacobians: Any, end: float, **options: Any) -> Any:
    """The end's derivatives by the start and by the parameters, [n, n + p], by scipy: Hairer et al. 1993, I.14."""
    n, p = len(problem.start), len(problem.parameters)
    field = problem.field(np)

    def joint(time: float, state: Any) -> Any:
        value, sensitivities = state[:n], state[n:].reshape(n, n + p)
        by_value, by_parameters = jacobians(value, problem.parameters)
        moved = by_value @ sensitivities
        moved[:, n:] += by_parameters
        return np.concatenate([field(time, value, problem.parameters), moved.ravel()])

    first = np.concatenate([problem.start, np.hstack([np.eye(n), np.zeros((n, p))]).ravel()])
    return solve_ivp(joint, (0, end), first, **options).y[n:, -1].reshape(n, n + p)


def of_lorenz(y: Any, k: Any) -> Any:
    by_value = np.array([[-k[0], k[0], 0], [k[1] - y[2], -1, -y[0]], [y[1], y[0], -k[2]]])
    return by_value, np.array([[y[1] - y[0], 0, 0], [0, y[0], 0], [0, 0, -y[2]]])


def of_robertson(y: Any, k: Any) -> Any:
    slow, back = np.array([k[0], 0, 0]), np.array([0, k[2] * y[2], k[2] * y[1]])
    quick = np.array([0, 2 * k[1] * y[1], 0])
    by_rates = [[-y[0], 0, y[1] * y[2]], [y[0], -(y[1] ** 2), -y[1] * y[2]], [0, y[1] ** 2, 0]]
    return np.stack([back - slow, slow - quick - back, quick]), np.array(by_rates)


GRADIENTS: dict[str, tuple[Any, str, dict[str, Any], float, dict[str, Any]]] = {
    "LORENZ": (of_lorenz, "Tsit5", {"tolerance": 1e-9}, 2.0, {"method": "DOP853", "rtol": 1e-12, "atol": 1e-12}),
    "ROBERTSON": (
        *(of_robertson, "Rodas4", {"tolerance": 1e-7, "atol": 1e-12}, 40.0),
        {"method": "Radau", "rtol": 1e-9, "atol": 1e-14},
    ),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_the_variational_equations(name: str) -> None:
    problem, (jacobians, method, options, end, theirs) = getattr(kit(), name), GRADIENTS[name]
    # Of the right size for each entry of the end.
    weights = 1 / np.abs(plain(problem, end=end, **theirs).y[:, -1])
    using = solver(method, checkpoints=16, **options)

    @jax.jit
    def gradients(start: Any, parameters: Any) -> Any:
        loss = lambda start, parameters: solved(problem, using, parameters, start, end).value @ weights
        return jax.grad(loss, (0, 1))(start, parameters)

    found = np.concatenate(gradients(jnp.array(problem.start), jnp.array(problem.parameters)))
    scale = np.array([*np.maximum(np.abs(problem.start), 1e-3), *problem.parameters])
    known = weights @ variational(problem, jacobians, end, **theirs)
    np.testing.assert_allclose(found * scale, known * scale, rtol=1e-4, atol=1e-5 * np.max(np.abs(known * scale)))


def test_both_modes_and_second_derivatives_are_those_of_a_decay() -> None:
    def end(rate: Any) -> Any:
        decay = solver(tolerance=1e-9, checkpoints=4)
        return kit().solve(decay, lambda t, y: -rate * y, [0.0, 2.0], jnp.array([1.0])).value[0]

    of_all = jax.jit(lambda rate: (jax.jvp(end, (rate,), (1.0,)), jax.jvp(jax.grad(end), (rate,), (1.0,))))
    (value, pushed), (slope, second) = of_all(0.7)
    exact = np.exp(-1.4)
    np.testing.assert_allclose([value, pushed, slope, second], [exact, -2 * exact, -2 * exact, 4 * exact], rtol=1e-6)


TIMES = np.array([0.0, 0.1, 0.15, 2.0, 5.0])
turn = lambda rate: lambda t, y: jnp.stack([rate * y[1], -rate * y[0]])


@pytest.mark.parametrize(("method", "control"), [("DormandPrince54", "PI"), ("Tsit5", "PID"), ("Rodas4", "PI")])
def test_saved_values_are_those_of_the_solution_and_cost_no_step(method: str, control: str) -> None:
    using = solver(method, 1e-6, control=getattr(kit(), control))
    start = jnp.array([1.0, 0.0])
    saved = jax.jit(lambda: kit().solve(using, turn(1.0), TIMES, start, save=True))()
    np.testing.assert_allclose(saved.saved[:, 0], np.cos(TIMES), rtol=0, atol=1e-5)
    np.testing.assert_allclose(saved.saved[:, 1], -np.sin(TIMES), rtol=0, atol=1e-5)
    alone = jax.jit(lambda: kit().solve(using, turn(1.0), TIMES[[0, -1]], start))()
    assert (int(saved.accepted), int(saved.rejected)) == (int(alone.accepted), int(alone.rejected))


def test_saved_values_have_their_gradient() -> None:
    loss = lambda rate: kit().solve(solver(tolerance=1e-8), turn(rate), TIMES, jnp.array([1.0, 0.0]), save=True).saved
    slope = jax.jit(jax.grad(lambda rate: jnp.sum(loss(rate)[:, 0])))(1.0)
    np.testing.assert_allclose(slope, -np.sum(TIMES * np.sin(TIMES)), rtol=1e-5)


def thrown(gravity: Any, end: float = 5.0) -> Any:
    """A ball from a height of 1, upwards with a speed of 1, until it is down."""
    fall = lambda t, y: jnp.stack([y[1], -gravity])
    return kit().solve(solver(tolerance=1e-9), fall, [0.0, end], jnp.array([1.0, 1.0]), event=lambda t, y: y[0])


def test_the_time_of_an_event_and_its_derivative_are_exact() -> None:
    arrival = lambda gravity: (1 + np.sqrt(1 + 2 * gravity)) / gravity
    value, slope = jax.jit(jax.value_and_grad(lambda gravity: thrown(gravity).time))(9.81)
    np.testing.assert_allclose(value, arrival(9.81), rtol=1e-12)
    np.testing.assert_allclose(slope, (arrival(9.81 + 1e-5) - arrival(9.81 - 1e-5)) / 2e-5, rtol=1e-7)


def test_an_event_that_is_never_reached_leaves_the_end() -> None:
    end = jax.jit(lambda: thrown(9.81, end=0.25))()
    assert str(end).startswith("t = 0.25: reached the end (")
    np.testing.assert_allclose(end.value, [1 + 0.25 - 9.81 / 2 * 0.25**2, 1 - 9.81 * 0.25], rtol=1e-8)


def test_times_may_descend() -> None:
    end = kit().solve(solver(tolerance=1e-9), lambda t, y: -y, [0.0, -1.0], jnp.array([1.0]))
    np.testing.assert_allclose(end.value, [np.e], rtol=1e-7)


STOPS: dict[str, tuple[Any, float, dict[str, Any], str, str]] = {
    # y' = y^2 from 1 is 1 / (1 - t).
    "runs off to infinity": (lambda t, y: y**2, 1.0, {}, "STEP_UNDERFLOW", "no step is short enough"),
    "leaves the domain": (lambda t, y: jnp.sqrt(y - t), 0.5, {}, "NOT_FINITE", "the field is NaN"),
    "starts outside": (lambda t, y: jnp.nan * y, 1.0, {}, "NOT_FINITE", "the field is NaN"),
    "is stiff, and the method explicit": (
        *(lambda t, y: -1e5 * (y - jnp.cos(t)), 0.0),
        *({"max_steps": 200}, "MAX_STEPS", "if the problem is stiff and the method explicit, take Rodas4"),
    ),
}


@pytest.mark.parametrize("name", STOPS)
def test_a_solve_that_cannot_go_on_says_why(name: str) -> None:
    field, start, options, status, words = STOPS[name]
    end = jax.jit(lambda: kit().solve(solver(**options), field, [0.0, 10.0], jnp.array([start])))()
    assert int(end.status) == kit().Status[status]
    assert words in str(end)
    assert 0 <= float(end.time) < 1.1
    assert np.all(np.isfinite(end.value))


def test_what_is_saved_behind_the_stop_is_no_number() -> None:
    end = kit().solve(solver(), lambda t, y: y**2, [0.0, 0.5, 2.0], jnp.array([1.0]), save=True)
    np.testing.assert_allclose(end.saved[:2, 0], [1.0, 2.0], rtol=1e-5)
    assert np.isnan(end.saved[2, 0])


REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "no time": ({"times": [0.0]}, "times must be the start and the end at least"),
    "no span": ({"times": [1.0, 1.0]}, "without repeating one"),
    "to and fro": ({"times": [0.0, 2.0, 1.0]}, "times must ascend, or descend"),
    "endless": ({"times": [0.0, np.inf]}, "times must be finite"),
    "integers": ({"start": jnp.array([1, 2])}, "start must be one row of floats"),
    "a scalar": ({"start": jnp.array(1.0)}, r"start must be one row of floats; got shape \(\)"),
    "another shape": ({"field": lambda t, y: y[:1]}, r"field must return what start is, \(2,\) of float64"),
    "finer than floats": ({"solver": {"rtol": 1e-17}}, "below what float64 can tell apart"),
    "zero tolerance": ({"solver": {"atol": 0.0}}, "atol must be positive; got 0.0"),
    "negative tolerance": ({"solver": {"rtol": -1e-6}}, "rtol must be positive"),
    "tolerance that is none": ({"solver": {"rtol": np.nan}}, "rtol must be positive"),
    "no steps": ({"solver": {"max_steps": 0}}, "max_steps must be at least 1"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_bad_input_is_refused_in_words(name: str) -> None:
    given, words = REFUSALS[name]
    options = {"field": lambda t, y: -y, "times": [0.0, 1.0], "start": jnp.array([1.0, 2.0]), "solver": {}} | given
    with pytest.raises(ValueError, match=words):
        kit().solve(solver(**options.pop("solver")), **options)
