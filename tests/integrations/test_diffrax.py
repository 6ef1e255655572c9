"""TreeverseAdjoint against Diffrax's own adjoint, on Diffrax's examples made small, and where that one refuses."""

from collections.abc import Callable
from functools import partial
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax
import numpy as np
import optimistix
import pytest

import dynloop
from dynloop.integrations.diffrax import TESTED, TreeverseAdjoint
from tests.docstrings import run_examples
from tests.user_process import run_python

CONTROL = diffrax.PIDController(rtol=1e-7, atol=1e-9)
THEIRS = diffrax.RecursiveCheckpointAdjoint()
Solve = Callable[..., jax.Array]


def same_gradient(solve: Solve, at: Any, checkpoints: Any = "auto") -> Any:
    """Value and gradient with our adjoint, which must be those with Diffrax's."""
    ours, theirs = (
        jax.jit(jax.value_and_grad(partial(solve, adjoint=adjoint)))(at)
        for adjoint in (TreeverseAdjoint(checkpoints), THEIRS)
    )
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-8, atol=1e-10), ours, theirs)
    assert all(np.any(leaf != 0) for leaf in jax.tree.leaves(theirs))
    return ours


def quick_start(rates: jax.Array, adjoint: diffrax.AbstractAdjoint, max_steps: int | None = 4096) -> jax.Array:
    """Lotka and Volterra's equations, saved at three times."""

    def change(t: Any, y: jax.Array, rates: jax.Array) -> jax.Array:
        return jnp.stack([(rates[0] - rates[1] * y[1]) * y[0], (rates[2] * y[0] - rates[3]) * y[1]])

    solution = diffrax.diffeqsolve(
        *(diffrax.ODETerm(change), diffrax.Tsit5(), 0.0, 3.0, 0.1, jnp.array([10.0, 10.0]), rates),
        saveat=diffrax.SaveAt(ts=jnp.array([1.0, 2.0, 3.0])),
        stepsize_controller=CONTROL,
        adjoint=adjoint,
        max_steps=max_steps,
    )
    assert solution.ys is not None
    return jnp.sum(solution.ys**2) / 100


RATES = jnp.array([0.1, 0.02, 0.02, 0.4])


def test_quick_start_has_the_same_gradient_and_both_modes_agree_at_first_and_second_order() -> None:
    solve = partial(quick_start, adjoint=TreeverseAdjoint(checkpoints=5), max_steps=None)
    by, at = jnp.array([0.3, -0.2, 0.5, 0.1]), RATES
    gradient = jax.grad(solve)

    @jax.jit
    def derivatives(at: jax.Array) -> Any:
        slope, pushed = jax.jvp(gradient, (at,), (by,))
        return jax.jvp(solve, (at,), (by,)), slope, pushed, jax.grad(lambda x: gradient(x) @ by)(at)

    (value, tangent), slope, forward_over_reverse, reverse_over_reverse = derivatives(at)
    theirs = jax.jit(jax.value_and_grad(partial(quick_start, adjoint=THEIRS)))(at)
    np.testing.assert_allclose(value, theirs[0], rtol=1e-8)
    np.testing.assert_allclose(slope, theirs[1], rtol=1e-8)
    np.testing.assert_allclose(slope @ by, tangent, rtol=1e-10)
    np.testing.assert_allclose(forward_over_reverse, reverse_over_reverse, rtol=1e-9)
    # The step sizes have no derivative, here as in Diffrax, so differences see what these derivatives leave out.
    step = 1e-4
    ahead, behind = (derivatives(at + sign * step * by)[1] for sign in (1, -1))
    np.testing.assert_allclose((ahead - behind) / (2 * step), reverse_over_reverse, rtol=1e-4)


def test_diffrax_refuses_what_ours_takes() -> None:
    theirs = partial(quick_start, adjoint=THEIRS)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(theirs, (RATES,), (RATES,))
    with pytest.raises(RuntimeError, match="max_steps=None"):
        jax.grad(partial(quick_start, adjoint=THEIRS, max_steps=None))(RATES)


def test_stiff_example_has_the_same_values_and_gradients_and_forward_mode() -> None:
    def robertson(rates: jax.Array, adjoint: diffrax.AbstractAdjoint) -> jax.Array:
        def change(t: Any, y: jax.Array, k: jax.Array) -> jax.Array:
            slow, quick, back = k[0] * y[0], k[1] * 1e7 * y[1] ** 2, k[2] * 1e4 * y[1] * y[2]
            return jnp.stack([back - slow, slow - quick - back, quick])

        solution = diffrax.diffeqsolve(
            *(diffrax.ODETerm(change), diffrax.Kvaerno5(), 0.0, 40.0, 2e-4, jnp.array([1.0, 0.0, 0.0]), rates),
            stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-9),
            adjoint=adjoint,
        )
        assert solution.ys is not None
        return solution.ys[0, 0] + 1e4 * solution.ys[0, 1]

    rates = jnp.array([0.04, 3.0, 1.0])
    _, slope = same_gradient(robertson, rates)
    pushed = jax.jit(partial(jax.jvp, partial(robertson, adjoint=TreeverseAdjoint())))((rates,), (rates,))[1]
    np.testing.assert_allclose(pushed, slope @ rates, rtol=1e-9)


@pytest.mark.full
def test_neural_ode_has_the_same_values_and_gradients() -> None:
    network = eqx.nn.MLP(2, 2, 8, 1, activation=jax.nn.softplus, key=jax.random.key(0))
    weights, static = eqx.partition(network, eqx.is_array)

    def loss(weights: Any, adjoint: diffrax.AbstractAdjoint) -> jax.Array:
        field = eqx.combine(weights, static)
        solution = diffrax.diffeqsolve(
            *(diffrax.ODETerm(lambda t, y, _: field(y)), diffrax.Tsit5(), 0.0, 2.0, 0.1, jnp.array([0.3, -0.4])),
            saveat=diffrax.SaveAt(ts=jnp.linspace(0.0, 2.0, 5)),
            stepsize_controller=CONTROL,
            adjoint=adjoint,
        )
        assert solution.ys is not None
        return jnp.mean((solution.ys - 1.0) ** 2)

    same_gradient(loss, weights)


def oscillate(t: Any, y: jax.Array, rates: jax.Array) -> jax.Array:
    return jnp.stack([rates[0] * y[1], -rates[1] * y[0]])


def solved(rates: jax.Array, adjoint: diffrax.AbstractAdjoint, **changed: Any) -> diffrax.Solution:
    options = {"terms": diffrax.ODETerm(oscillate), "solver": diffrax.Tsit5(), "stepsize_controller": CONTROL}
    options |= {"t0": 0.0, "t1": 2.0, "dt0": 0.1, "y0": jnp.array([1.0, 0.5]), "args": rates, "max_steps": 128}
    return diffrax.diffeqsolve(**(options | changed), adjoint=adjoint)


def squares(tree: Any) -> jax.Array:
    """The sum of the squares of what was written: rows that were not are infinite."""
    return sum((jnp.sum(jnp.where(jnp.isinf(leaf), 0, leaf) ** 2) for leaf in jax.tree.leaves(tree)), jnp.array(0.0))


TWO_RATES = jnp.array([1.1, 0.9])


def test_all_that_may_be_saved_up_to_an_event_has_the_same_gradients() -> None:
    whole, weighed = diffrax.SubSaveAt(t0=True, steps=2), lambda t, y, rates: t * rates[0] * y[0]
    saved = diffrax.SubSaveAt(ts=jnp.array([0.1, 0.4]), t1=True, fn=weighed)
    saveat = diffrax.SaveAt(subs=[whole, saved], dense=True, solver_state=True)
    crossing = diffrax.Event(lambda t, y, args, **rest: y[0] - 0.2, optimistix.Newton(1e-12, 1e-12))

    def loss(rates: jax.Array, adjoint: diffrax.AbstractAdjoint) -> jax.Array:
        solution = solved(rates, adjoint, saveat=saveat, event=crossing)
        assert solution.ts is not None
        found = squares(solution.ys) + squares(solution.evaluate(0.55)) + solution.ts[1][-1] ** 2
        return jnp.where(solution.result == diffrax.RESULTS.event_occurred, found, jnp.nan)

    value, _ = same_gradient(loss, TWO_RATES, checkpoints=3)
    assert np.isfinite(value), "there is an event"


def noisy(levy_area: Any = diffrax.BrownianIncrement) -> Any:
    path = diffrax.VirtualBrownianTree(0.0, 2.0, tol=1e-3, shape=(2,), key=jax.random.key(3), levy_area=levy_area)
    diffusion = diffrax.ControlTerm(lambda t, y, rates: lineax.DiagonalLinearOperator(0.1 * rates), path)
    return diffrax.MultiTerm(diffrax.ODETerm(oscillate), diffusion)


SOLVERS: dict[str, Callable[[], dict[str, Any]]] = {
    "a solver around another": lambda: {
        "solver": diffrax.HalfSolver(diffrax.Heun()),
        "stepsize_controller": diffrax.PIDController(rtol=1e-4, atol=1e-6),
    },
    "a stochastic Runge-Kutta method": lambda: {
        "solver": diffrax.ShARK(),
        "terms": noisy(diffrax.SpaceTimeLevyArea),
        "stepsize_controller": diffrax.ConstantStepSize(),
    },
    "backwards, through a jump, from a step chosen by Diffrax": lambda: {
        "t1": -1.0,
        "dt0": None,
        "stepsize_controller": diffrax.ClipStepSizeController(CONTROL, jump_ts=jnp.array([-0.5])),
    },
}


FEW = "a solver around another"
CASES = [FEW, *(pytest.param(name, marks=pytest.mark.full) for name in SOLVERS if name != FEW)]


@pytest.mark.parametrize("name", CASES)
def test_other_solves_have_the_same_gradients_in_both_modes(name: str) -> None:
    options = SOLVERS[name]()
    loss = lambda rates, adjoint: squares(solved(rates, adjoint, **options).ys)
    _, slope = same_gradient(loss, TWO_RATES)
    pushed = jax.jit(partial(jax.jvp, partial(loss, adjoint=TreeverseAdjoint())))((TWO_RATES,), (TWO_RATES,))[1]
    np.testing.assert_allclose(pushed, slope @ TWO_RATES, rtol=1e-9)


@pytest.mark.full
def test_lanes_have_the_gradients_that_they_have_alone() -> None:
    # The faster lane takes more steps, and the slower one has more of the times in each of its own.
    saveat = diffrax.SaveAt(ts=jnp.array([0.0, 0.1, 0.2, 1.9, 2.0]))
    loss = lambda rates: squares(solved(rates, TreeverseAdjoint(), max_steps=None, saveat=saveat).ys)
    rates = jnp.stack([TWO_RATES, 9 * TWO_RATES])
    each = jax.jit(jax.grad(loss))
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(loss)))(rates), [each(rate) for rate in rates], rtol=1e-9)


@pytest.mark.parametrize("adjoint", [TreeverseAdjoint(), TreeverseAdjoint(checkpoints=0)])
def test_a_bound_that_is_met_is_diffrax_own_affair(adjoint: Any) -> None:
    with pytest.raises(RuntimeError, match="maximum number of solver steps"):
        solved(TWO_RATES, adjoint, max_steps=3)
    assert solved(TWO_RATES, adjoint, max_steps=3, throw=False).result == diffrax.RESULTS.max_steps_reached


def test_reverse_mode_without_checkpoints_is_refused() -> None:
    with pytest.raises(dynloop.DerivativeError, match="checkpoints=0"):
        jax.grad(lambda rates: squares(solved(rates, TreeverseAdjoint(checkpoints=0)).ys))(TWO_RATES)


def test_increments_that_cannot_be_drawn_again_are_refused() -> None:
    path = diffrax.UnsafeBrownianPath(shape=(2,), key=jax.random.key(0))
    term = diffrax.ControlTerm(lambda t, y, rates: lineax.DiagonalLinearOperator(rates), path)
    terms = diffrax.MultiTerm(diffrax.ODETerm(oscillate), term)
    options = {"terms": terms, "solver": diffrax.EulerHeun(), "stepsize_controller": diffrax.ConstantStepSize()}
    with pytest.raises(dynloop.ArgumentError, match=r"give a diffrax\.VirtualBrownianTree"):
        solved(TWO_RATES, TreeverseAdjoint(), **options)
    ours, theirs = (solved(TWO_RATES, adjoint, **options) for adjoint in (TreeverseAdjoint(0), diffrax.ForwardMode()))
    np.testing.assert_array_equal(ours.ys, theirs.ys)


def test_the_example_runs() -> None:
    assert run_examples(TreeverseAdjoint, "TreeverseAdjoint", {}) == (4, "")


def test_this_version_is_a_tested_one() -> None:
    assert diffrax.__version__ in TESTED


MOVES = {
    "_loop": "del diffrax.AbstractAdjoint._loop",
    "inner_while_loop": "diffrax.AbstractAdjoint._loop = property(lambda self: lambda outer_while_loop: None)",
    "save_index": "import diffrax._integrate as own; del own.SaveState.__dataclass_fields__['save_index']",
    "scan_kind": "del diffrax.AbstractSRK.__dataclass_fields__['scan_kind']",
}


@pytest.mark.parametrize("name", MOVES)
def test_a_diffrax_that_moves_a_name_is_told_which_version_works(name: str) -> None:
    with pytest.raises(AssertionError) as failed:
        run_python("-c", f"import diffrax\n{MOVES[name]}\nimport dynloop.integrations.diffrax")
    last = str(failed.value).strip().splitlines()[-1]
    assert last.startswith("ImportError: dynloop.integrations.diffrax needs what diffrax 0.7.2 does not have")
    assert name in last
    assert "pip install 'diffrax==0.7.2'" in last
