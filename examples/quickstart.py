"""How fast do hares breed and lynxes starve? Twenty-one years of pelts, and a loop whose length nobody knows.

Hares breed and are eaten, lynxes eat and starve: four rates, and a solver that turns them into a record of pelts.
The solver chooses its own steps, some of them twice; by the gradient through every one of them we fit the rates, what
both animals start from, and the noise of both records: eight parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from dormand_prince import Body, State, as_it_is, solve
from matplotlib.figure import Figure
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

import adjoint

jax.config.update("jax_enable_x64", True)

HERE = Path(__file__).parent
# Thousands of pelts that the Hudson's Bay Company took in, year by year: as Howard 2009 tabulates them.
RECORD = HERE / "hudson_bay_lynx_hare.csv"
SLOTS = 8

# What is fitted, its unit, and for the rates the posterior mean under weak priors: Carpenter 2018.
PARAMETERS = (
    ("hares are born", "1/year", "0.55"),
    ("hares are eaten", "1/year per thousand lynxes", "0.028"),
    ("lynxes die", "1/year", "0.80"),
    ("lynxes are fed", "1/year per thousand hares", "0.024"),
    ("hares in 1900", "thousands", ""),
    ("lynxes in 1900", "thousands", ""),
    ("noise of hares", "deviation of the logarithm", ""),
    ("noise of lynxes", "deviation of the logarithm", ""),
)


def read_record(path: Path = RECORD) -> tuple[np.ndarray, np.ndarray]:
    """The years since 1900 and, for each of them, hares and lynxes in thousands of pelts."""
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    return table[:, 0] - 1900, table[:, 1:]


def populations(logarithms: jax.Array, times: jax.Array, around: Callable[[Body], Body] = as_it_is) -> State:
    """Hares and lynxes at `times`, in `saved`, after Lotka 1925 and Volterra 1926."""
    birth, eaten, death, fed = jnp.exp(logarithms[:4])

    def change(value: jax.Array) -> jax.Array:
        hares, lynxes = value
        return jnp.stack([(birth - eaten * lynxes) * hares, (fed * hares - death) * lynxes])

    return solve(change, jnp.exp(logarithms[4:6]), times, checkpoints=SLOTS, around=around)


def misfit(
    logarithms: jax.Array, times: jax.Array, pelts: jax.Array, around: Callable[[Body], Body] = as_it_is
) -> tuple[jax.Array, State]:
    """Minus the logarithm of the likelihood but for a constant, each record being log-normal; and the solver's end."""
    end = populations(logarithms, times, around)
    log_noise = logarithms[None, 6:]
    errors = (jnp.log(pelts) - jnp.log(end.saved)) / jnp.exp(log_noise)
    return jnp.sum(errors**2 / 2 + log_noise), end


misfit_and_gradient = jax.jit(jax.value_and_grad(misfit, has_aux=True))


def first_guess(pelts: np.ndarray) -> np.ndarray:
    """Logarithms of parameters that cycle in about ten years around the record's means."""
    # A small cycle lasts 2 pi / sqrt(birth death); the means of any are death / fed hares and birth / eaten lynxes.
    hares, lynxes = pelts.mean(axis=0)
    birth = death = 2 * np.pi / 10
    return np.log([birth, birth / lynxes, death, death / hares, *pelts[0], 0.5, 0.5])


def fit(times: np.ndarray, pelts: np.ndarray) -> np.ndarray:
    """The likeliest logarithms of PARAMETERS, [8], by the gradient through the solver.

    `times` is [years], in years since 1900; `pelts` is [years, 2], hares and lynxes in thousands.
    """

    def value_and_slope(logarithms: np.ndarray) -> tuple[float, np.ndarray]:
        (value, _), slope = misfit_and_gradient(logarithms, times, pelts)
        return float(value), np.asarray(slope)

    found = minimize(value_and_slope, first_guess(pelts), jac=True, method="L-BFGS-B", options={"ftol": 1e-12})
    return found.x


def fit_independently(times: np.ndarray, pelts: np.ndarray) -> np.ndarray:
    """The same, by SciPy alone: its own solver, and its own differences for a gradient."""

    def value(logarithms: np.ndarray) -> float:
        birth, eaten, death, fed, *start, _, _ = np.exp(logarithms)
        change = lambda _, y: ((birth - eaten * y[1]) * y[0], (fed * y[0] - death) * y[1])
        path = solve_ivp(change, (times[0], times[-1]), start, "LSODA", times, rtol=1e-9, atol=1e-9).y.T
        errors = np.log(pelts / path) / np.exp(logarithms[6:])
        return float(np.sum(errors**2) / 2 + len(times) * np.sum(logarithms[6:]))

    return minimize(value, first_guess(pelts), method="BFGS", options={"gtol": 1e-3}).x


def central_differences(logarithms: np.ndarray, times: np.ndarray, pelts: np.ndarray, by: float = 1e-5) -> np.ndarray:
    """The gradient of the misfit, [8], from its values alone, `by` to both sides of each of the logarithms.

    `times` and `pelts` are those of `fit`.
    """
    value = lambda shift: float(misfit_and_gradient(logarithms + shift, times, pelts)[0][0])
    return np.array([(value(shift) - value(-shift)) / (2 * by) for shift in by * np.eye(len(logarithms))])


def evaluations(logarithms: np.ndarray, times: np.ndarray, pelts: np.ndarray) -> int:
    """How often one gradient runs the body of the loop: each run calls Python, which counts."""
    count = 0

    def note(_: jax.Array) -> np.ndarray:
        nonlocal count
        count += 1
        return np.zeros(())

    @jax.custom_jvp
    def noted(value: jax.Array) -> jax.Array:
        # All else in a step depends on this sum, so no compiler may leave the call out.
        return value + jax.pure_callback(note, jax.ShapeDtypeStruct((), value.dtype), value)

    noted.defjvp(lambda values, tangents: (noted(*values), *tangents))
    around = lambda body: lambda state: body(state._replace(value=noted(state.value)))
    jax.block_until_ready(jax.jit(jax.grad(partial(misfit, around=around), has_aux=True))(logarithms, times, pelts))
    return count


@dataclass(frozen=True)
class Report:
    """What the fit found, and what its gradient cost."""

    # [8], in the units of PARAMETERS
    fitted: np.ndarray
    independent: np.ndarray
    # steps of the solver
    accepted: int
    rejected: int
    # bytes of one state of the loop
    state_bytes: int
    # evaluations of a step in one gradient
    executed: int
    predicted: int
    optimal: int
    # [8], by the logarithms of the parameters, at the first guess
    gradient: np.ndarray
    differences: np.ndarray

    @property
    def steps(self) -> int:
        return self.accepted + self.rejected

    @property
    def gradient_error(self) -> float:
        return float(np.max(abs(self.gradient / self.differences - 1)))

    def __str__(self) -> str:
        columns = zip(PARAMETERS, self.fitted, self.independent, strict=True)
        rows = [f"{name:18}{a:>#8.3g}{b:>#10.3g}{c:>12}  {unit}" for (name, unit, c), a, b in columns]
        return "\n".join(
            [
                f"{'':18}{'fitted':>8}{'by SciPy':>10}{'literature':>12}",
                *rows,
                "",
                f"steps of the solver     {self.steps}: {self.accepted} accepted, {self.rejected} rejected",
                f"states kept             {SLOTS}, of {self.state_bytes} bytes each: {SLOTS * self.state_bytes} bytes",
                f"evaluations of a step   {self.executed} executed, {self.predicted} predicted, "
                f"{self.optimal} the fewest possible, with the steps known",
                f"gradient                within {self.gradient_error:.0e} of central differences, at the first guess",
            ]
        )


def main(picture: Path = HERE / "quickstart.png") -> Report:
    """Fits, compares, counts, draws."""
    times, pelts = read_record()
    found, guess = fit(times, pelts), first_guess(pelts)
    (_, end), _ = misfit_and_gradient(found, times, pelts)
    steps = int(end.accepted + end.rejected)
    report = Report(
        fitted=np.exp(found),
        independent=np.exp(fit_independently(times, pelts)),
        accepted=int(end.accepted),
        rejected=int(end.rejected),
        state_bytes=sum(leaf.nbytes for leaf in jax.tree.leaves(end)),
        executed=evaluations(found, times, pelts),
        predicted=adjoint.Online(SLOTS).cost(steps).evaluations,
        optimal=adjoint.advances(steps + 1, SLOTS) + steps,
        # At the likeliest parameters a gradient is zero, and nothing to compare with.
        gradient=np.asarray(misfit_and_gradient(guess, times, pelts)[1]),
        differences=central_differences(guess, times, pelts),
    )
    draw(found, times, pelts, picture)
    return report


def draw(logarithms: np.ndarray, times: np.ndarray, pelts: np.ndarray, picture: Path) -> None:
    """The record as points, the fit as lines."""
    fine = np.linspace(times[0], times[-1], 401)
    curves = jax.jit(populations)(logarithms, fine).saved
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for column, (animal, colour) in enumerate([("hare", "tab:blue"), ("lynx", "tab:orange")]):
        axes.plot(1900 + fine, curves[:, column], color=colour, label=f"{animal}, fitted")
        axes.plot(1900 + times, pelts[:, column], "o", color=colour, markersize=5, label=f"{animal}, recorded")
    axes.set(xlabel="year", ylabel="pelts (thousands)", xlim=(1899.5, 1920.5), ylim=(0, 92))
    axes.set_xticks(range(1900, 1921, 5))
    axes.set_title("Hare and lynx in the records of the Hudson's Bay Company", loc="left", fontsize="medium")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=4, loc="upper center", columnspacing=1.5)
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    print(main())
