"""Next year's hares and lynxes, by a differential equation that a small network is: Chen et al. 2018.

The logarithms of both populations change at rates that nobody writes down; a network learns them from pairs of years
of the Hudson's Bay Company's record. Each pair is a lane of its own, whose solver takes the steps that it needs, and
the gradient goes through all of them. The years up to 1913 teach; of the later ones, each is forecast from the one
before it. This file prints the root of the mean square of these forecasts' errors in the logarithms, beside that of
the best linear map from year to year, of the oldest rule of weather, which says "as it was", and of the equations of
Lotka 1925 and Volterra 1926, fitted to the same pairs through the same solver.

`python examples/neural_ode.py [picture.png]`; the functions that take `xp`, jax.numpy or torch, run on both.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from matplotlib.figure import Figure
from ode import Solver, Tsit5, solve
from scipy.optimize import minimize

Array = Any
Rates = Callable[[Array], Array]

# Thousands of pelts, hare and lynx, year by year: as Howard 2009 tabulates them.
RECORD = Path(__file__).parent / "hudson_bay_lynx_hare.csv"
LAST_TAUGHT = 1913
HIDDEN, UPDATES = 8, 300
# The weight of the squared weights beside the squared errors: so much as one pair that is missed by 0.1 for a weight
# of 1; without it thirteen pairs do not hold a network.
DECAY = 0.01


class Network(NamedTuple):
    """Rates from logarithms; the last layer is linear."""

    first: Array  # [HIDDEN, 2]
    bias: Array  # [HIDDEN]
    last: Array  # [2, HIDDEN]
    drift: Array  # [2]


def network_rates(xp: Any, network: Network) -> Rates:
    """How fast logarithms [2] change, per year."""
    return lambda logs: network.last @ xp.tanh(network.first @ logs + network.bias) + network.drift


def lotka_volterra_rates(xp: Any, four: Array) -> Rates:
    """The same by the logarithms of four rates [4]; the populations are in units of their means."""
    birth, eaten, death, fed = (xp.exp(four[i]) for i in range(4))
    return lambda logs: xp.stack([birth - eaten * xp.exp(logs[1]), fed * xp.exp(logs[0]) - death])


def next_year(xp: Any, rates: Rates, logs: Array, checkpoints: Any = 8) -> Array:
    """The logarithms [2] a year after `logs` [2]."""
    solver = Solver(xp, Tsit5, rtol=1e-4, atol=1e-4, checkpoints=checkpoints)
    return solve(solver, lambda _, logs: rates(logs), [0.0, 1.0], logs).value


def misfit(xp: Any, vmap: Any, rates: Rates, before: Array, after: Array) -> Array:
    """Half the sum of the squared errors of forecasts of `after` from `before`, both [pairs, 2]."""
    return ((vmap(lambda logs: next_year(xp, rates, logs))(before) - after) ** 2).sum() / 2


def network_loss(xp: Any, vmap: Any, network: Network, before: Array, after: Array) -> Array:
    """What is least for the network that is learnt."""
    weight = (network.first**2).sum() + (network.last**2).sum()
    return misfit(xp, vmap, network_rates(xp, network), before, after) + DECAY * weight / 2


def record(path: Path = RECORD) -> tuple[np.ndarray, np.ndarray]:
    """The years, and the logarithms of hares and lynxes in each, [years, 2], less their means over the taught years."""
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    years, logs = table[:, 0], np.log(table[:, 1:])
    return years, logs - logs[years <= LAST_TAUGHT].mean(axis=0)


def newborn(seed: int = 0) -> Network:
    """A network that has learnt nothing."""
    draw = np.random.default_rng(seed)
    first, last = draw.normal(size=(HIDDEN, 2)) / np.sqrt(2), draw.normal(size=(2, HIDDEN)) / np.sqrt(HIDDEN)
    return Network(first, np.zeros(HIDDEN), last, np.zeros(2))


def fitted(loss: Callable[[Any], Array], start: Any, updates: int) -> Any:
    """Where `loss`, on JAX, is least near `start`, by the gradient through the solver and L-BFGS."""
    flat, whole = ravel_pytree(jax.tree.map(jnp.asarray, start))
    gradient = jax.jit(jax.value_and_grad(lambda flat: loss(whole(flat))))

    def value_and_slope(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = gradient(flat)
        return float(value), np.asarray(slope, float)

    found = minimize(value_and_slope, np.asarray(flat), jac=True, method="L-BFGS-B", options={"maxiter": updates})
    return whole(jnp.asarray(found.x))


def linear_map(before: np.ndarray, after: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The linear map with an intercept that forecasts `after` from `before` best, by least squares."""
    rows = lambda logs: np.hstack([logs, np.ones((len(logs), 1))])
    weights = np.linalg.lstsq(rows(before), after, rcond=None)[0]
    return lambda logs: rows(logs) @ weights


def forecasts(updates: int = UPDATES) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """The years that were held out, what was recorded in them, and what each model forecasts, [years, 2]."""
    years, logs = record()
    before, after, taught = logs[:-1], logs[1:], years[1:] <= LAST_TAUGHT
    known = jnp.asarray(before[taught]), jnp.asarray(after[taught])
    network = fitted(lambda n: network_loss(jnp, jax.vmap, n, *known), newborn(), updates)
    start = np.log(np.full(4, 2 * np.pi / 10))
    four = fitted(lambda f: misfit(jnp, jax.vmap, lotka_volterra_rates(jnp, f), *known), start, updates)

    held = before[~taught]
    through = lambda rates: np.asarray(jax.vmap(lambda logs: next_year(jnp, rates, logs))(jnp.asarray(held)))
    told = {
        "neural ODE": through(network_rates(jnp, network)),
        "Lotka and Volterra": through(lotka_volterra_rates(jnp, four)),
        "linear map": linear_map(before[taught], after[taught])(held),
        "as it was": held,
    }
    return years[1:][~taught], after[~taught], told


def error(forecast: np.ndarray, recorded: np.ndarray) -> float:
    """The root of the mean square."""
    return float(np.sqrt(np.mean((forecast - recorded) ** 2)))


def draw(years: np.ndarray, recorded: np.ndarray, told: dict[str, np.ndarray], picture: str) -> None:
    """The record of both animals, and the forecasts of the years held out."""
    figure = Figure(figsize=(7.5, 3.5), layout="constrained")
    all_years, logs = record()
    both = figure.subplots(1, 2)
    for column, (axes, animal) in enumerate(zip(both, ("hare", "lynx"), strict=True)):
        axes.plot(all_years, logs[:, column], "k.-", linewidth=0.5, label="recorded")
        for name, forecast in told.items():
            axes.plot(years, forecast[:, column], "o", markersize=4, alpha=0.7, label=name)
        axes.set(xlabel="year", ylabel=f"logarithm of {animal} by its mean")
    both[0].legend(frameon=False, fontsize="small")
    figure.savefig(picture, dpi=150)


def main(arguments: list[str], updates: int = UPDATES) -> None:
    """Prints the errors of the forecasts, and draws when asked."""
    jax.config.update("jax_enable_x64", True)
    years, recorded, told = forecasts(updates)
    print(f"{len(years)} years forecast, each from the one before: error of the logarithms")
    for name, forecast in told.items():
        print(f"{name:20}{error(forecast, recorded):.3f}")
    if arguments:
        draw(years, recorded, told, arguments[0])


if __name__ == "__main__":
    main(sys.argv[1:])
