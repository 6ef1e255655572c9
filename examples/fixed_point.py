"""A layer that is applied until its state stands still, and two ways to its gradient.

A deep equilibrium layer (Bai, Kolter and Koltun 2019) returns the z with z = tanh(W z + b); how often it is applied
depends on W, b and the tolerance. One gradient goes back through every application, in the memory that is chosen. The
other forgets them, and solves the adjoint's own fixed point, u = dL/dz + (df/dz)^T u, by a second loop (Christianson
1994). Both end at the gradient that linear algebra gives in closed form; this file prints how near they come.

`python examples/fixed_point.py [picture.png]`; the functions that take `xp`, jax.numpy or torch, run on both.
"""

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import root

import dynloop

Array = Any
Layer = Callable[[Any, Array], Array]

MOST_STEPS = 10_000


def layer(xp: Any, parameters: tuple[Array, Array], z: Array) -> Array:
    """tanh(W z + b) of (W [n, n], b [n]) and z [n]."""
    weights, bias = parameters
    return xp.tanh(weights @ z + bias)


def settle(xp: Any, step: Callable[[Array], Array], start: Array, tolerance: Any, checkpoints: Any = 8) -> Array:
    """Where `step` no longer moves z by more than `tolerance`; a RuntimeError if it still does after MOST_STEPS.

    `start` is z [n], `tolerance` a float or traced, and `checkpoints` the number of states that a gradient keeps.
    """
    if isinstance(tolerance, float) and not tolerance > 0:
        raise ValueError(
            f"settle: tolerance must be positive, since rounding keeps z moving; got {tolerance}; give 1e-10, say"
        )
    moves = lambda z: xp.linalg.norm(step(z) - z) > tolerance
    return dynloop.while_loop(moves, step, start, checkpoints=checkpoints, max_steps=MOST_STEPS)


def unrolled_layer(xp: Any, parameters: Any, start: Array, tolerance: Any, checkpoints: Any = 8) -> Array:
    """The fixed point, with the gradient that goes back through every application."""
    return settle(xp, lambda z: layer(xp, parameters, z), start, tolerance, checkpoints)


def implicit_gradient(xp: Any, vjp: Any, parameters: Any, fixed: Array, cotangent: Array, tolerance: Any) -> Any:
    """What `cotangent` [n] at the fixed point [n] means for the parameters, by the implicit function theorem.

    `vjp` is jax.vjp or torch.func.vjp.
    """
    _, pull = vjp(lambda z: layer(xp, parameters, z), fixed)
    adjoint = settle(xp, lambda u: cotangent + pull(u)[0], cotangent, tolerance, checkpoints=0)
    _, pull_parameters = vjp(lambda p: layer(xp, p, fixed), parameters)
    return pull_parameters(adjoint)[0]


def implicit_layer(tolerance: Any) -> Callable[[Any, Array], Array]:
    """The fixed point as a function of (parameters, start), on JAX, with the implicit gradient as its rule."""

    @jax.custom_vjp
    def solve(parameters: Any, start: Array) -> Array:
        return unrolled_layer(jnp, parameters, start, tolerance, checkpoints=0)

    def ahead(parameters: Any, start: Array) -> tuple[Array, Any]:
        fixed = solve(parameters, start)
        return fixed, (parameters, fixed)

    def back(kept: Any, cotangent: Array) -> tuple[Any, Array]:
        parameters, fixed = kept
        return implicit_gradient(jnp, jax.vjp, parameters, fixed, cotangent, tolerance), jnp.zeros_like(fixed)

    solve.defvjp(ahead, back)
    return solve


def example(n: int = 6) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """((W, b), target), W of norm 0.9, so that tanh(W z + b) contracts."""
    draw = np.random.default_rng(0)
    weights = draw.normal(size=(n, n))
    return (0.9 * weights / np.linalg.norm(weights, 2), draw.normal(size=n)), draw.normal(size=n)


def loss(z: Array, target: Array) -> Array:
    """Half the squared distance."""
    return ((z - target) ** 2).sum() / 2


def closed_form(parameters: tuple[np.ndarray, np.ndarray], target: np.ndarray) -> tuple[np.ndarray, Any]:
    """The fixed point by SciPy's root finder, and the gradient of its loss by one linear system."""
    weights, bias = parameters
    z = root(lambda z: np.tanh(weights @ z + bias) - z, np.zeros_like(bias), tol=1e-14).x
    slope = 1 - z**2
    adjoint = np.linalg.solve((np.eye(len(z)) - slope[:, None] * weights).T, z - target)
    return z, (np.outer(slope * adjoint, z), slope * adjoint)


def distance(found: Any, exact: Any) -> float:
    """The greatest difference of two gradients, relative to the greatest entry."""
    return max(float(np.max(abs(np.asarray(a) - b)) / np.max(abs(b))) for a, b in zip(found, exact, strict=True))


@jax.jit
def both_gradients(parameters: Any, target: Array, tolerance: Array) -> tuple[Any, Any]:
    """Through the loop, and by the implicit rule."""
    start = jnp.zeros_like(target)
    through = lambda p: loss(unrolled_layer(jnp, p, start, tolerance), target)
    implicit = lambda p: loss(implicit_layer(tolerance)(p, start), target)
    return jax.grad(through)(parameters), jax.grad(implicit)(parameters)


def errors(tolerance: float) -> tuple[float, float]:
    """How far the gradient through the loop, and the implicit one, are from the closed form."""
    parameters, target = example()
    exact = closed_form(parameters, target)[1]
    through, implicit = both_gradients(parameters, target, tolerance)
    return distance(through, exact), distance(implicit, exact)


def draw(picture: str) -> None:
    """The errors of both gradients over the tolerance."""
    tolerances = [10.0**-k for k in range(1, 13)]
    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.add_subplot()
    for values, label in zip(zip(*map(errors, tolerances), strict=True), ("through the loop", "implicit"), strict=True):
        axes.loglog(tolerances, values, "o-", label=label)
    axes.set(xlabel="tolerance of the fixed point", ylabel="relative error of the gradient")
    axes.legend(frameon=False)
    figure.savefig(picture, dpi=150)


def main(arguments: list[str]) -> None:
    """Prints the gradient's norm beside its reference, and draws when asked."""
    jax.config.update("jax_enable_x64", True)
    parameters, target = example()
    (_, found), _ = both_gradients(parameters, target, 1e-12)
    _, (_, exact) = closed_form(parameters, target)
    print(f"|dL/db| through the loop {np.linalg.norm(found):.12f}, in closed form {np.linalg.norm(exact):.12f}")
    if arguments:
        draw(arguments[0])


if __name__ == "__main__":
    main(sys.argv[1:])
