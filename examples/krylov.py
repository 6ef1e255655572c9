"""A membrane under load, and its highest tone: two loops that stop when the space they build is used up.

On a grid of springs, conjugate gradients (Hestenes and Stiefel 1952) find where the membrane rests, and Lanczos's
process (Lanczos 1950) finds its tones. In exact arithmetic both end after as many steps as the load reaches different
tones, which nobody counts beforehand: a square has most of its tones twice. Gradients go through all steps, and linear
algebra knows them: A^-T v for the load, and the squares of the tone's shape for the springs. One gradient is not to be
had so: where two tones are equal, the steps are too few to answer a spring that parts them, and the derivative of A^-1
b by such a spring is not that of the steps. This file prints the highest eigenvalue beside SciPy's.

`python examples/krylov.py [picture.png]`; the functions that take `xp`, jax.numpy or torch, run on both.
"""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from scipy.linalg import eigh

import dynloop

Array = Any
Operator = Callable[[Array], Array]


class Search(NamedTuple):
    """What goes from step to step of conjugate gradients."""

    x: Array  # [n], the solution so far
    residual: Array  # [n], what it leaves of the load
    direction: Array  # [n], along which it goes next
    square: Array  # of the residual's length


class Chain(NamedTuple):
    """What goes from step to step of Lanczos's process."""

    basis: Array  # [most, n], the vectors so far, zeros below
    vector: Array  # [n], the next one
    left: Array  # how long it was before it got length 1
    count: Array  # how many the basis has


def membrane(side: int = 6, ground: float = 0.1) -> np.ndarray:
    """Four springs at each knot of a square grid, its edge held, and one to the ground: [side^2, side^2]."""
    line = 2 * np.eye(side) - np.eye(side, k=1) - np.eye(side, k=-1)
    return np.kron(line, np.eye(side)) + np.kron(np.eye(side), line) + ground * np.eye(side**2)


def load(knots: int) -> np.ndarray:
    """One that reaches every tone: [knots]."""
    return np.random.default_rng(0).normal(size=knots)


def conjugate_gradients(
    xp: Any, operator: Operator, b: Array, tolerance: float = 1e-12, checkpoints: Any = 8, max_steps: int | None = None
) -> dynloop.Result:
    """The x [n] with operator(x) = b [n], as the carry's `x` in a Result.

    `operator` is linear, symmetric and positive definite, which nothing checks. It stops when the residual is shorter
    than `tolerance` times b, and raises RuntimeError after `max_steps`, by default 10 n.
    """
    check(b, tolerance)

    def body(search: Search) -> Search:
        image = operator(search.direction)
        along = search.square / (search.direction @ image)
        residual = search.residual - along * image
        square = residual @ residual
        direction = residual + square / search.square * search.direction
        return Search(search.x + along * search.direction, residual, direction, square)

    enough = tolerance**2 * (b @ b)
    return dynloop.while_loop(
        lambda search: search.square > enough,
        body,
        Search(0 * b, b, b, b @ b),
        checkpoints=checkpoints,
        max_steps=max_steps or 10 * b.shape[0],
        full_output=True,
    )


def lanczos(xp: Any, operator: Operator, start: Array, tolerance: float = 1e-8, checkpoints: Any = 8) -> dynloop.Result:
    """The tridiagonal matrix of a symmetric operator on the space that `start` [n] reaches, as the ys of a Result.

    They are its diagonal and, shifted by one, what stands beside it, [n] each and zeros past the last step. It stops
    when what is new in a step is shorter than `tolerance`.
    """
    check(start, tolerance)
    most = start.shape[0]
    rows = xp.arange(most)[:, None]

    def step(chain: Chain, _: None) -> tuple[Chain, tuple[Array, Array]]:
        basis = xp.where(rows == chain.count, chain.vector[None, :], chain.basis)
        image = operator(chain.vector)
        on = chain.vector @ image
        # Rounding lets the vectors lean on one another; taking their parts out twice keeps them upright.
        new = image - basis.T @ (basis @ image)
        new = new - basis.T @ (basis @ new)
        # Kept off zero, where a length has no derivative.
        left = xp.sqrt(new @ new + 1e-30)
        return Chain(basis, new / left, left, chain.count + 1), (on, left)

    length = xp.sqrt(start @ start)
    first = Chain(0 * rows * start[None, :], start / length, length, 0)
    return dynloop.scan(
        step,
        first,
        length=most,
        until=lambda chain: chain.left < tolerance,
        checkpoints=checkpoints,
        full_output=True,
    )


def check(vector: Array, tolerance: float) -> None:
    """Refuses what has no direction to start in."""
    if vector.ndim != 1:
        raise ValueError(f"the vector must be [n]; got {tuple(vector.shape)}; reshape it, and the operator with it")
    if not tolerance > 0:
        raise ValueError(
            f"tolerance must be positive, since rounding leaves a residual; got {tolerance}; give 1e-10, say"
        )


def highest(xp: Any, operator: Operator, start: Array, checkpoints: Any = 8) -> Array:
    """The greatest eigenvalue of a symmetric operator; positive, or the zeros past the last step would exceed it."""
    on, beside = lanczos(xp, operator, start, checkpoints=checkpoints).ys
    # The last one is where the process broke off: it couples to nothing.
    beside = xp.where(beside > 1e-6, beside, 0 * beside)[:-1]
    return xp.linalg.eigvalsh(xp.diag(on) + xp.diag(beside, 1) + xp.diag(beside, -1))[-1]


def highest_exactly(matrix: np.ndarray) -> tuple[float, np.ndarray]:
    """The same by SciPy, and its derivative by the matrix's diagonal: the squares of the tone's shape."""
    n = len(matrix)
    values, shapes = eigh(matrix, subset_by_index=[n - 1, n - 1])
    return float(values[0]), shapes[:, 0] ** 2


def different_tones(matrix: np.ndarray) -> int:
    """How many different eigenvalues a symmetric matrix has."""
    return 1 + int(np.sum(np.diff(np.linalg.eigvalsh(matrix)) > 1e-8))


def draw(picture: str) -> None:
    """The membrane at rest, and what each spring to the ground does to the highest tone."""
    matrix = membrane(12)
    b = load(len(matrix))
    rest = conjugate_gradients(jnp, lambda x: matrix @ x, jnp.asarray(b)).carry.x
    stiffened = lambda extra: highest(jnp, lambda x: matrix @ x + extra * x, jnp.asarray(b))
    slope = jax.jit(jax.grad(stiffened))(jnp.zeros(len(matrix)))
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    for axes, values, title in zip(
        figure.subplots(1, 2), (rest, slope), ("at rest under the load", "d tone / d spring"), strict=True
    ):
        figure.colorbar(axes.imshow(np.reshape(values, (12, 12))), ax=axes)
        axes.set_title(title, fontsize="medium")
    figure.savefig(picture, dpi=150)


def main(arguments: list[str]) -> None:
    """Prints the highest eigenvalue beside SciPy's, and draws when asked."""
    jax.config.update("jax_enable_x64", True)
    matrix = membrane()
    found = jax.jit(lambda start: highest(jnp, lambda x: matrix @ x, start))(load(len(matrix)))
    print(f"highest eigenvalue by Lanczos {found:.12f}, by SciPy {highest_exactly(matrix)[0]:.12f}")
    if arguments:
        draw(arguments[0])


if __name__ == "__main__":
    main(sys.argv[1:])
