"""Kepler's third law, by a sampler that throws a coin after every step to decide whether to take another.

The logarithm of a planet's year is a line in the logarithm of its distance. With a normal prior and normal errors the
posterior of the line is normal too, with a mean in closed form; Hamiltonian Monte Carlo (Duane, Kennedy, Pendleton and
Roweth 1987) draws from it by following the motion of a particle in its potential. How long it follows is drawn as it
goes, so that no period of the motion is met by bad luck again and again (Bou-Rabee and Sanz-Serna 2017): the key of the
random numbers is part of the carry, and a gradient that runs a step again throws the same coin. Each of the chains is a
`dynloop.scan` with a `dynloop.while_loop` inside. This file prints the sampled slope beside the exact one; it runs on
JAX, whose keys are values.

`python examples/planets.py [picture.png]`
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import dynloop

Potential = Callable[[jax.Array], jax.Array]

# Mercury to Neptune: the half axis of the orbit in units of the Earth's, and the year in units of the Earth's.
DISTANCE = np.array([0.387, 0.723, 1.0, 1.524, 5.203, 9.537, 19.19, 30.07])
YEAR = np.array([0.2408, 0.6152, 1.0, 1.8808, 11.862, 29.457, 84.02, 164.8])
# The deviation of the logarithm of a year from the line, and that of the prior of both of the line's coefficients.
NOISE, PRIOR = 0.05, 1.0

STEP = 0.01  # of the motion; the fastest oscillation of the posterior has period 0.05
GOES_ON = 0.85  # the chance that another step follows
CHAINS, DRAWS, WARM_UP = 64, 200, 20


class Motion(NamedTuple):
    """What goes from step to step of a motion."""

    key: jax.Array  # of the coins still to be thrown
    position: jax.Array  # [n]
    momentum: jax.Array  # [n]
    goes_on: jax.Array  # what the last coin said


class Chain(NamedTuple):
    """What goes from draw to draw."""

    key: jax.Array
    position: jax.Array  # [n]
    accepted: jax.Array  # how many of the proposals were


def design() -> np.ndarray:
    """A row (1, log distance) for each planet: [8, 2]."""
    return np.stack([np.ones_like(DISTANCE), np.log(DISTANCE)], -1)


def potential(line: jax.Array) -> jax.Array:
    """Minus the logarithm of the posterior of a line [2], intercept and slope, but for a constant."""
    errors = (jnp.log(YEAR) - design() @ line) / NOISE
    return (errors @ errors + line @ line / PRIOR**2) / 2


def exact() -> tuple[np.ndarray, np.ndarray]:
    """The posterior's mean [2] and covariance [2, 2], in closed form."""
    covariance = np.linalg.inv(design().T @ design() / NOISE**2 + np.eye(2) / PRIOR**2)
    return covariance @ design().T @ np.log(YEAR) / NOISE**2, covariance


def follow(
    potential: Potential, key: jax.Array, position: jax.Array, momentum: jax.Array, checkpoints: Any = 8
) -> dynloop.Result:
    """The motion from `position` [n] with `momentum` [n], for as many leapfrog steps as the coins of `key` say."""
    slope = jax.grad(potential)

    def body(motion: Motion) -> Motion:
        key, coin = jax.random.split(motion.key)
        half = motion.momentum - STEP / 2 * slope(motion.position)
        position = motion.position + STEP * half
        momentum = half - STEP / 2 * slope(position)
        return Motion(key, position, momentum, jax.random.bernoulli(coin, GOES_ON))

    first = Motion(key, position, momentum, jnp.bool_(True))
    return dynloop.while_loop(lambda motion: motion.goes_on, body, first, checkpoints=checkpoints, full_output=True)


def sample(potential: Potential, key: jax.Array, start: jax.Array, draws: int = DRAWS) -> tuple[Chain, jax.Array]:
    """One chain from `start` [n]: its end, and its draws [draws, n]."""
    if start.ndim != 1:
        raise ValueError(f"sample: start must be one point, [n]; got {start.shape}; use jax.vmap for several chains")
    if draws < 1:
        raise ValueError(f"sample: draws must be at least 1; got {draws}")
    energy = lambda position, momentum: potential(position) + momentum @ momentum / 2

    def draw(chain: Chain, _: None) -> tuple[Chain, jax.Array]:
        key, kick, coins, chance = jax.random.split(chain.key, 4)
        momentum = jax.random.normal(kick, chain.position.shape, chain.position.dtype)
        end = follow(potential, coins, chain.position, momentum).carry
        # Metropolis: leapfrog keeps volume and can be run backwards, so only the change of energy counts.
        lost = energy(chain.position, momentum) - energy(end.position, end.momentum)
        accept = jnp.log(jax.random.uniform(chance, dtype=lost.dtype)) < lost
        position = jnp.where(accept, end.position, chain.position)
        return Chain(key, position, chain.accepted + accept), position

    return dynloop.scan(draw, Chain(key, start, jnp.int32(0)), length=draws)


@partial(jax.jit, static_argnames=("chains", "draws"))
def sample_all(key: jax.Array, chains: int = CHAINS, draws: int = DRAWS) -> tuple[Chain, jax.Array]:
    """All chains from wide apart, each by itself: their ends, and [chains, draws, 2]."""
    apart, key = jax.random.split(key)
    starts = exact()[0][None, :] + 0.05 * jax.random.normal(apart, (chains, 2))
    return jax.vmap(lambda key, start: sample(potential, key, start, draws))(jax.random.split(key, chains), starts)


def mean_and_error(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean [n] of draws [chains, draws, n] and its standard error, for which only the chains are independent."""
    means = draws.mean(axis=1)
    return means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(len(means))


def draw(draws: np.ndarray, picture: str) -> None:
    """The draws of the slope beside its exact density, and the planets with some of the lines."""
    mean, covariance = exact()
    figure = Figure(figsize=(7.5, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.hist(draws[..., 1].ravel(), bins=60, density=True, color="tab:blue", alpha=0.5)
    deviation = np.sqrt(covariance[1, 1])
    slopes = np.linspace(mean[1] - 4 * deviation, mean[1] + 4 * deviation, 200)
    left.plot(slopes, np.exp(-(((slopes - mean[1]) / deviation) ** 2) / 2) / deviation / np.sqrt(2 * np.pi), "k")
    left.set(xlabel="slope", ylabel="density")
    ends = np.array([0.3, 40.0])
    for intercept, slope in draws[:20, -1]:
        right.loglog(ends, np.exp(intercept) * ends**slope, color="tab:blue", alpha=0.2)
    right.loglog(DISTANCE, YEAR, "o", color="tab:orange")
    right.set(xlabel="distance", ylabel="year")
    figure.savefig(picture, dpi=150)


def main(arguments: list[str]) -> None:
    """Prints the sampled mean of the slope beside the exact one, and draws when asked."""
    jax.config.update("jax_enable_x64", True)
    draws = np.asarray(sample_all(jax.random.key(0))[1])[:, WARM_UP:]
    mean, error = mean_and_error(draws)
    print(f"slope sampled {mean[1]:.6f} (standard error {error[1]:.6f}), exact {exact()[0][1]:.6f}")
    if arguments:
        draw(draws, arguments[0])


if __name__ == "__main__":
    main(sys.argv[1:])
