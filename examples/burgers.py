"""How thick is the fluid? Two equations in space and time, solved by the method of lines with steps as they need them.

Space is a ring of points, on which derivatives are matrices (Trefethen 2000, chapter 3); what is left is an ordinary
differential equation that the solver kit takes, with steps that grow as the field grows smooth. Heat that has spread
from a point is a sum of bells; Burgers' equation u_t + u u_x = nu u_xx, in which waves steepen, becomes the equation of
heat by the substitution of Hopf 1950 and Cole 1951, so both ends are known. Then the other way round: from the exact
end alone, the viscosity and the wave it all began with are recovered by the gradient through every step. This file
prints the errors of both solves, and the viscosity recovered beside the true one.

`python examples/burgers.py [picture.png]`; the functions that take `xp`, jax.numpy or torch, run on both.
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from ode import Solution, Solver, Tsit5, solve
from scipy.optimize import minimize
from scipy.special import ive

Array = Any

POINTS = 64
VISCOSITY, END = 0.1, 1.5
CONDUCTIVITY, SPREAD_FROM, SPREAD_TO = 0.5, 0.2, 1.2
MODES = 3


def places(points: int = POINTS) -> np.ndarray:
    """The points of the ring, from 0 to 2 pi."""
    return 2 * np.pi * np.arange(points) / points


def derivatives(points: int = POINTS) -> tuple[np.ndarray, np.ndarray]:
    """The matrices of the first and of the second derivative of the interpolating trigonometric polynomial."""
    if points < 4 or points % 2:
        raise ValueError(f"points must be even, and 4 at least; got {points}")
    transform = np.fft.fft(np.eye(points), axis=0)
    waves = np.fft.fftfreq(points, 1 / points)[:, None]
    # The highest wave has no first derivative on the points: it would be a sine that is zero on all of them.
    odd = np.where(waves == -points // 2, 0, waves)
    back = lambda spectrum: np.fft.ifft(spectrum, axis=0).real
    return back(1j * odd * transform), back(-(waves**2) * transform)


def heat(xp: Any, conductivity: Array, start: Array, times: Any, **options: Any) -> Solution:
    """The field of heat from `start` [points], at the first of `times`, to the last: u_t = conductivity u_xx."""
    bend = xp.asarray(derivatives(start.shape[0])[1], dtype=start.dtype)
    return solve(Solver(xp, Tsit5, **options), lambda _, u: conductivity * (bend @ u), times, start)


def burgers(xp: Any, viscosity: Array, start: Array, times: Any, *, save: bool = False, **options: Any) -> Solution:
    """The field of velocity, likewise: u_t + u u_x = viscosity u_xx."""
    slope, bend = (xp.asarray(matrix, dtype=start.dtype) for matrix in derivatives(start.shape[0]))
    change = lambda _, u: viscosity * (bend @ u) - u * (slope @ u)
    return solve(Solver(xp, Tsit5, **options), change, times, start, save=save)


def heat_kernel(x: np.ndarray, time: float, conductivity: float = CONDUCTIVITY) -> np.ndarray:
    """What a unit of heat at pi is after `time` on the ring: one bell from every turn."""
    turns = x[:, None] - np.pi + 2 * np.pi * np.arange(-8, 9)
    return np.exp(-(turns**2) / (4 * conductivity * time)).sum(1) / np.sqrt(4 * np.pi * conductivity * time)


def cole_hopf(x: np.ndarray, time: float, viscosity: float = VISCOSITY) -> np.ndarray:
    """What the wave sin x is after `time` under Burgers' equation.

    u = -2 nu (log w)_x, where w solves the equation of heat from exp((cos x - 1) / (2 nu)), whose Fourier coefficients
    are modified Bessel functions of the first kind.
    """
    n = np.arange(1, 200)
    weights = 2 * ive(n, 1 / (2 * viscosity)) * np.exp(-viscosity * n**2 * time)
    angles = x[:, None] * n
    w = ive(0, 1 / (2 * viscosity)) + np.cos(angles) @ weights
    return 2 * viscosity * (np.sin(angles) @ (n * weights)) / w


def wave(xp: Any, amplitudes: Array, points: int = POINTS) -> Array:
    """A sum of sines of one, two, three waves around the ring."""
    sines = np.sin(places(points)[:, None] * np.arange(1, MODES + 1))
    return xp.asarray(sines, dtype=amplitudes.dtype) @ amplitudes


def misfit(xp: Any, unknown: Array, end: Array, **options: Any) -> Array:
    """The mean square distance from `end` [points], for the logarithm of a viscosity and MODES amplitudes."""
    start = wave(xp, unknown[1:], end.shape[0])
    found = burgers(xp, xp.exp(unknown[0]), start, [0.0, END], **options)
    return ((found.value - end) ** 2).mean()


def recovered(points: int = POINTS, tolerance: float = 1e-8) -> np.ndarray:
    """Viscosity and amplitudes from the exact end alone, on JAX: [1 + MODES], from a guess three times too thick."""
    end = jnp.asarray(cole_hopf(places(points), END))
    loss = lambda unknown: misfit(jnp, unknown, end, rtol=tolerance, atol=tolerance, checkpoints=16)
    gradient = jax.jit(jax.value_and_grad(loss))

    def value_and_slope(unknown: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = gradient(unknown)
        return float(value), np.asarray(slope, float)

    guess = np.array([np.log(3 * VISCOSITY), 0.5, *(MODES - 1) * [0.0]])
    found = minimize(value_and_slope, guess, jac=True, method="BFGS", options={"gtol": 1e-9}).x
    return np.array([np.exp(found[0]), *found[1:]])


def errors(points: int = 96, tolerance: float = 1e-9) -> tuple[float, float]:
    """The largest errors of the ends of both equations."""
    x, options = places(points), dict[str, Any](rtol=tolerance, atol=tolerance)
    spread = jax.jit(lambda u: heat(jnp, CONDUCTIVITY, u, [SPREAD_FROM, SPREAD_TO], **options).value)
    steepened = jax.jit(lambda u: burgers(jnp, VISCOSITY, u, [0.0, END], **options).value)
    of_heat = spread(jnp.asarray(heat_kernel(x, SPREAD_FROM))) - heat_kernel(x, SPREAD_TO)
    of_burgers = steepened(jnp.sin(jnp.asarray(x))) - cole_hopf(x, END)
    return float(jnp.max(abs(of_heat))), float(jnp.max(abs(of_burgers)))


def draw(picture: str) -> None:
    """The wave as it steepens, solved as lines and exact as points."""
    x, times = places(), np.linspace(0, 3, 5)
    saved = burgers(jnp, VISCOSITY, jnp.sin(jnp.asarray(x)), times, save=True).saved
    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for time, u in zip(times, np.asarray(saved), strict=True):
        (line,) = axes.plot(x, u, label=f"t = {time:g}")
        axes.plot(x, cole_hopf(x, time), ".", color=line.get_color(), markersize=3)
    axes.set(xlabel="x", ylabel="u")
    axes.legend(frameon=False, fontsize="small")
    figure.savefig(picture, dpi=150)


def main(arguments: list[str]) -> None:
    """Prints the errors and the viscosity beside the true one, and draws when asked."""
    jax.config.update("jax_enable_x64", True)
    of_heat, of_burgers = errors()
    print(f"largest error: heat {of_heat:.1e}, Burgers {of_burgers:.1e}")
    print(f"viscosity recovered {recovered()[0]:.8f}, true {VISCOSITY:.8f}")
    if arguments:
        draw(arguments[0])


if __name__ == "__main__":
    main(sys.argv[1:])
