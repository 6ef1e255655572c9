"""When must a lander light its engine? As late as it can, and the loop that finds out ends when it stands still.

A vessel falls to the moon, and its engine, once lit, burns fuel and makes it lighter. The least fuel is burnt by
falling freely, and then braking with all there is, so that speed and height vanish together (Meditch 1964): control
that is bang-bang, with one instant of switching. Falling is a solve up to that instant, and braking is a solve up to an
event, the speed's zero, at a time that the data decide. The height where it stops has a derivative by the instant,
through both, and Newton's method finds the instant that makes it zero. Then the derivative of the fuel by the throttle
tells that less than full throttle burns more. This file prints the instant beside that of the rocket equation
(Tsiolkovsky 1903), solved by halving.

`python examples/lander.py [picture.png]`; the functions that take `xp`, jax.numpy or torch, run on both.
"""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from ode import DormandPrince54, Solver, solve
from scipy.optimize import brentq

Array = Any

GRAVITY = 1.62  # m/s^2, on the moon
HEIGHT, SPEED = 2000.0, -20.0  # m and m/s, at time 0
PUSH = 3.0  # m/s^2, of the engine at full throttle on the full mass
EXHAUST = 3050.0  # m/s
MOST_BRAKING = 1000.0  # s; all the mass would be burnt a little later


class Landing(NamedTuple):
    """Where and when the vessel stands still."""

    height: Array  # m above the ground, negative under it
    time: Array  # s
    fuel: Array  # burnt, as a part of the mass at time 0
    status: Array  # of the solve that brakes: EVENT, if it came to stand


def field(xp: Any, throttle: Array) -> Callable[[Array, Array], Array]:
    """Of height, speed and mass, the last as a part of the mass at time 0."""

    def change(_: Array, state: Array) -> Array:
        burnt = throttle * PUSH / EXHAUST
        return xp.stack([state[1], throttle * PUSH / state[2] - GRAVITY, -burnt + 0 * state[2]])

    return change


def land(xp: Any, ignition: Array, throttle: Array, checkpoints: Any = 8) -> Landing:
    """Falls until `ignition`, a time after 0, and then brakes with `throttle`, from 0 to 1, until it stands still."""
    solver = Solver(xp, DormandPrince54, rtol=1e-10, atol=1e-10, checkpoints=checkpoints)
    zero = 0 * ignition
    start = xp.stack([zero + HEIGHT, zero + SPEED, zero + 1])
    lit = solve(solver, field(xp, zero), [zero, ignition], start)
    stopped = lambda _, state: state[1]
    end = solve(solver, field(xp, throttle), [ignition, ignition + MOST_BRAKING], lit.value, event=stopped)
    return Landing(end.value[0], end.time, 1 - end.value[2], end.status)


def newton(value_and_slope: Callable[[float], tuple[float, float]], start: float, tolerance: float = 1e-6) -> float:
    """The instant at which the height vanishes, to within `tolerance` meters."""
    instant, height = start, np.inf
    for _ in range(20):
        height, slope = value_and_slope(instant)
        if abs(height) <= tolerance:
            return instant
        instant -= height / slope
    raise RuntimeError(f"20 steps of Newton's method from ignition={start} leave {height} m; start nearer")


@jax.jit
def slopes(ignition: Array, throttle: Array) -> tuple[Array, Array, Landing]:
    """How height and fuel [2] follow the ignition and the throttle, in reverse mode on JAX, and the landing itself."""

    def height_and_fuel(ignition: Array, throttle: Array) -> tuple[Array, Landing]:
        landing = land(jnp, ignition, throttle)
        return jnp.stack([landing.height, landing.fuel]), landing

    (by_ignition, by_throttle), landing = jax.jacrev(height_and_fuel, (0, 1), has_aux=True)(ignition, throttle)
    return by_ignition, by_throttle, landing


def best_ignition(throttle: float = 1.0, start: float = 15.0) -> float:
    """The instant of lighting the engine that lands the vessel softly, s."""

    def height_and_slope(ignition: float) -> tuple[float, float]:
        by_ignition, _, landing = slopes(ignition, throttle)
        return float(landing.height), float(by_ignition[0])

    return newton(height_and_slope, start)


def price_of_throttle(ignition: float, throttle: float = 1.0) -> float:
    """The derivative of the fuel by the throttle, where the ignition follows so that the landing stays soft."""
    by_ignition, by_throttle, _ = slopes(ignition, throttle)
    # The implicit function theorem for the height, which stays zero.
    follows = -by_throttle[0] / by_ignition[0]
    return float(by_throttle[1] + by_ignition[1] * follows)


def by_rocket_equation(throttle: float = 1.0) -> tuple[float, float, float]:
    """Ignition, landing time and fuel in closed form, but for one halving for how long the engine burns."""
    share = throttle * PUSH / EXHAUST

    def ignition(burning: float) -> float:
        return (SPEED - GRAVITY * burning - EXHAUST * np.log1p(-share * burning)) / GRAVITY

    def height(burning: float) -> float:
        at, rest = ignition(burning), 1 - share * burning
        lit, speed = HEIGHT + SPEED * at - GRAVITY * at**2 / 2, SPEED - GRAVITY * at
        won = EXHAUST * (rest * np.log(rest) + share * burning) / share
        return lit + speed * burning - GRAVITY * burning**2 / 2 + won

    burning: Any = brentq(height, 1.0, 200.0, xtol=1e-12, rtol=np.float64(1e-14))
    return ignition(burning), ignition(burning) + burning, share * burning


@jax.jit
def path(ignition: Array) -> tuple[Array, Array]:
    """Heights and speeds on the way at full throttle, on JAX; NaN behind the end."""
    solver = Solver(jnp, DormandPrince54, rtol=1e-8, atol=1e-8)
    falling, braking = jnp.linspace(0.0, 1.0, 50) * ignition, jnp.linspace(0.0, 60.0, 200) + ignition
    start, stopped = jnp.array([HEIGHT, SPEED, 1.0]), lambda _, state: state[1]
    down: Any = solve(solver, field(jnp, jnp.array(0.0)), falling, start, save=True).saved
    up: Any = solve(solver, field(jnp, jnp.array(1.0)), braking, down[-1], event=stopped, save=True).saved
    states = jnp.concatenate([down, up])
    return states[:, 0], states[:, 1]


def draw(ignitions: list[float], picture: str) -> None:
    """Height against speed, for the best instant and for one before and one behind it."""
    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.add_subplot()
    for ignition in ignitions:
        heights, speeds = path(ignition)
        axes.plot(speeds, heights, label=f"lit at {ignition:.1f} s")
    axes.axhline(0, color="k", linewidth=0.5)
    axes.set(xlabel="speed (m/s)", ylabel="height (m)")
    axes.legend(frameon=False)
    figure.savefig(picture, dpi=150)


def main(arguments: list[str]) -> None:
    """Prints instant, time and fuel beside the rocket equation's, and draws when asked."""
    jax.config.update("jax_enable_x64", True)
    ignition, exact = best_ignition(), by_rocket_equation()
    landing = slopes(ignition, 1.0)[2]
    print(f"ignition {ignition:.6f} s, by the rocket equation {exact[0]:.6f} s")
    print(f"landing {float(landing.time):.6f} s, by the rocket equation {exact[1]:.6f} s")
    print(f"fuel {float(landing.fuel):.6f}, by the rocket equation {exact[2]:.6f}")
    print(f"derivative of the fuel by the throttle {price_of_throttle(ignition):.6f}: less throttle burns more")
    if arguments:
        draw([ignition - 2, ignition, ignition + 2], arguments[0])


if __name__ == "__main__":
    main(sys.argv[1:])
