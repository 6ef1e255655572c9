"""How much work buys how much precision: the solver kit beside scipy, and what a gradient through it says.

A satellite flies from the earth around the moon and comes back to the very place it started from (Arenstorf's orbit).
So the end is known, and with it the error of every solver at every tolerance. With the same method and control the
kit evaluates the field as often as scipy does; then the gradient through every step tells how the mass of the moon
moves the end, and scipy's variational equations say the same.
"""

from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from ode import ARENSTORF, PI, DormandPrince54, I, Rodas4, Solution, Solver, Tsit5, solve
from scipy.integrate import solve_ivp

jax.config.update("jax_enable_x64", True)

HERE = Path(__file__).parent
TOLERANCES = (1e-4, 1e-6, 1e-8, 1e-10)
KIT = {"DormandPrince54, I": (DormandPrince54, I), "Tsit5, PI": (Tsit5, PI), "Rodas4, PI": (Rodas4, PI)}


@dataclass(frozen=True)
class Row:
    """One solve: its error is the largest one of the end."""

    solver: str
    tolerance: float
    error: float
    steps: int
    evaluations: int


def around_the_moon(solver: Solver, mass: jax.Array, end: float = ARENSTORF.end) -> Solution:
    """The orbit from its start, for a moon that has the part `mass` of both masses."""
    field = ARENSTORF.field(jnp)
    return solve(solver, lambda t, y: field(t, y, mass[None]), [0.0, end], jnp.array(ARENSTORF.start))


def error(end: np.ndarray) -> float:
    return float(np.max(np.abs(end - np.array(ARENSTORF.known))))


def by_kit(name: str, tolerance: float) -> Row:
    method, control = KIT[name]
    solver = Solver(jnp, method, tolerance, tolerance, control, jacfwd=jax.jacfwd)
    end = jax.jit(lambda mass: around_the_moon(solver, mass))(jnp.array(ARENSTORF.parameters[0]))
    steps = int(end.accepted) + int(end.rejected)
    return Row(name, tolerance, error(np.asarray(end.value)), steps, int(end.evaluations))


def by_scipy(method: str, tolerance: float) -> Row:
    field = ARENSTORF.field(np)
    change = lambda t, y: field(t, y, ARENSTORF.parameters)
    end = solve_ivp(change, (0, ARENSTORF.end), ARENSTORF.start, method, rtol=tolerance, atol=tolerance)
    return Row(f"scipy {method}", tolerance, error(end.y[:, -1]), (end.nfev - 2) // 6, end.nfev)


def by_mass(solver: Solver, end: float) -> np.ndarray:
    """How the mass of the moon moves the end, [4], by forward mode through every step."""
    function = jax.jit(jax.jacfwd(lambda mass: around_the_moon(solver, mass, end).value))
    return np.asarray(function(jnp.array(ARENSTORF.parameters[0])))


def by_mass_in_reverse(solver: Solver, end: float) -> np.ndarray:
    """The same by reverse mode: a gradient of each of the four."""
    function = jax.jit(jax.jacrev(lambda mass: around_the_moon(solver, mass, end).value))
    return np.asarray(function(jnp.array(ARENSTORF.parameters[0])))


def by_variational_equations(end: float) -> np.ndarray:
    """The same, [4], by scipy and the derivative of the field, joined to the orbit as one system."""
    field = ARENSTORF.field(jnp)

    @jax.jit
    def joint(time: float, state: jax.Array) -> jax.Array:
        along = lambda y, mass: field(time, y, mass[None])
        return jnp.concatenate(jax.jvp(along, (state[:4], jnp.array(ARENSTORF.parameters[0])), (state[4:], 1.0)))

    change = lambda t, y: np.asarray(joint(t, y))
    start = np.array([*ARENSTORF.start, 0, 0, 0, 0])
    return solve_ivp(change, (0, end), start, "DOP853", rtol=1e-12, atol=1e-12).y[4:, -1]


def draw(rows: list[Row], path: Path) -> None:
    figure = Figure(figsize=(5, 4), layout="constrained")
    axes = figure.subplots()
    for solver in dict.fromkeys(row.solver for row in rows):
        line = [row for row in rows if row.solver == solver]
        # Over the line of the kit's that it coincides with.
        style, order = ("k--", 3) if solver.startswith("scipy") else ("o-", 2)
        axes.loglog([row.evaluations for row in line], [row.error for row in line], style, zorder=order, label=solver)
    axes.set(xlabel="evaluations of the field", ylabel="error of the end", title="Arenstorf's orbit")
    axes.legend()
    figure.savefig(path)


def main(picture: Path = HERE / "work_precision.png", tolerances: tuple[float, ...] = TOLERANCES) -> list[Row]:
    rows = [by_scipy("RK45", tolerance) for tolerance in tolerances]
    rows += [by_kit(name, tolerance) for name in KIT for tolerance in tolerances]
    print(f"{'solver':20} {'tolerance':>9} {'error':>9} {'steps':>6} {'evaluations':>11}")
    for row in rows:
        print(f"{row.solver:20} {row.tolerance:9.0e} {row.error:9.1e} {row.steps:6} {row.evaluations:11}")

    # A quarter of the orbit: all of it magnifies every difference by millions.
    end = ARENSTORF.end / 4
    solver = Solver(jnp, Tsit5, 1e-10, 1e-10, checkpoints=16)
    known = by_variational_equations(end)
    print("\nby the moon's mass   ", *(f"{entry:14.6f}" for entry in known), " variational equations")
    for mode, found in (("forward mode", by_mass(solver, end)), ("reverse mode", by_mass_in_reverse(solver, end))):
        print("                     ", *(f"{entry:14.6f}" for entry in found), f" {mode}")
    draw(rows, picture)
    print(f"\n{picture.name} is drawn")
    return rows


if __name__ == "__main__":
    main()
