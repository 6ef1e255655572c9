"""A curve through fourteen measurements, and what each measurement does to it.

y = b1 (1 - exp(-b2 x)) is fitted to the data Misra1a, of dental research in monomolecular adsorption, whose best
parameters the Statistical Reference Datasets certify to eleven digits (NIST 1997). Levenberg-Marquardt (Marquardt 1963)
finds them from far away, and Newton's method from near by; both stop when a step no longer moves b, and some of the
first one's steps are refused. The gradient goes through all of them, and says how b follows every measured y; the
implicit function theorem says the same without the steps. This file prints b1 beside the certified value.

`python examples/least_squares.py [picture.png]`; the functions that take `xp`, jax.numpy or torch, run on both.
"""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import dynloop

Array = Any
Curve = Callable[[Array], tuple[Array, Array]]

# NIST 1997, Misra1a: the independent variable and the measured one.
X = np.array([77.6, 114.9, 141.1, 190.8, 239.9, 289.0, 332.8, 378.4, 434.8, 477.3, 536.8, 593.1, 689.1, 760.0])
Y = np.array([10.07, 14.73, 17.94, 23.93, 29.61, 35.18, 40.02, 44.82, 50.76, 55.05, 61.01, 66.40, 75.47, 81.78])
CERTIFIED = np.array([238.94212918, 5.5015643181e-4])
CERTIFIED_SUM = 0.12455138894
# The two starts that are given there, from far away and from near by.
FAR, NEAR = np.array([500.0, 1e-4]), np.array([250.0, 5e-4])

FIRST_DAMPING, LESS, MORE = 1e-3, 0.1, 10.0
MOST_STEPS = 1000


class Fit(NamedTuple):
    """What goes from step to step of Levenberg-Marquardt."""

    b: Array  # [n], the parameters
    squares: Array  # the sum of the squared residuals there
    damping: Array  # how much of the scaled identity the step adds to the normal equations
    moved: Array  # the length of the last step, accepted or not, in units of b
    accepted: Array  # how many steps were
    refused: Array  # how many were not


def saturating(xp: Any, x: Array) -> Curve:
    """b1 (1 - exp(-b2 x)) at x [m], and its derivative by b, [m, 2]."""

    def curve(b: Array) -> tuple[Array, Array]:
        decay = xp.exp(-b[1] * x)
        return b[0] * (1 - decay), xp.stack([1 - decay, b[0] * x * decay], -1)

    return curve


def levenberg_marquardt(
    xp: Any, curve: Curve, y: Array, start: Array, tolerance: float = 1e-12, checkpoints: Any = 8
) -> Fit:
    """The b [n] where the squares of y - curve(b) sum to the least, from `start`.

    It stops when a step moves no parameter by more than `tolerance` of it, and raises RuntimeError after MOST_STEPS.
    `curve` gives the values at b, [m] like `y`, and their derivative, [m, n].
    """
    check(y, start, tolerance)

    def body(fit: Fit) -> Fit:
        values, slopes = curve(fit.b)
        normal = slopes.T @ slopes
        scale = xp.sqrt(xp.diagonal(normal))
        # In units in which every column of the derivative has length 1, b1 = 239 and b2 = 0.00055 weigh the same.
        unit = normal / (scale[:, None] * scale[None, :]) + fit.damping * xp.eye(scale.shape[0], dtype=scale.dtype)
        step = xp.linalg.solve(unit, slopes.T @ (y - values) / scale) / scale
        b = fit.b + step
        squares = ((y - curve(b)[0]) ** 2).sum()
        # At the end two sums differ by rounding alone; a step that is refused for that would stop b from moving on.
        accept = squares <= fit.squares * (1 + 1e-12)
        return Fit(
            b=xp.where(accept, b, fit.b),
            squares=xp.where(accept, squares, fit.squares),
            damping=fit.damping * xp.where(accept, LESS, MORE),
            moved=xp.max(xp.abs(step / b)),
            accepted=fit.accepted + accept,
            refused=fit.refused + ~accept,
        )

    squares = ((y - curve(start)[0]) ** 2).sum()
    first = Fit(start, squares, 0 * squares + FIRST_DAMPING, 0 * squares + 1, 0, 0)
    # Steps that are refused again and again grow short by their damping, so this ends too where no step helps.
    under_way = lambda fit: fit.moved > tolerance
    return dynloop.while_loop(under_way, body, first, checkpoints=checkpoints, max_steps=MOST_STEPS)


def newton(xp: Any, function: Curve, start: Array, tolerance: float = 1e-12, checkpoints: Any = 8) -> dynloop.Result:
    """The zero b [n] of `function`, by Newton's method from `start`: a Result whose carry is (b, the last step).

    `function` gives the values at b, [n], and their derivative, [n, n].
    """
    check(start, start, tolerance)

    def body(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        b, _ = carry
        values, slopes = function(b)
        step = -xp.linalg.solve(slopes, values)
        return b + step, step

    under_way = lambda carry: xp.max(xp.abs(carry[1] / carry[0])) > tolerance
    return dynloop.while_loop(
        under_way, body, (start, start), checkpoints=checkpoints, max_steps=MOST_STEPS, full_output=True
    )


def check(y: Array, start: Array, tolerance: float) -> None:
    """Refuses what no step could come to an end with."""
    if not tolerance > 0:
        raise ValueError(f"tolerance must be positive, since rounding keeps b moving; got {tolerance}; give 1e-12, say")
    if start.ndim != 1 or y.ndim != 1 or y.shape[0] < start.shape[0]:
        raise ValueError(
            "y must be [m] and start [n], with at least as many measurements as parameters; "
            f"got {tuple(y.shape)} and {tuple(start.shape)}; give more measurements, or fit fewer parameters"
        )


def stationary(xp: Any, x: Array, y: Array) -> Curve:
    """The derivative of half the sum of squares by b, which is zero at the best fit, and its own derivative."""

    def function(b: Array) -> tuple[Array, Array]:
        values, slopes = saturating(xp, x)(b)
        decay, residuals = xp.exp(-b[1] * x), y - values
        mixed, second = (residuals * x * decay).sum(), -(residuals * b[0] * x**2 * decay).sum()
        bend = xp.stack([xp.stack([0 * mixed, mixed]), xp.stack([mixed, second])])
        return -slopes.T @ residuals, slopes.T @ slopes - bend

    return function


def sensitivity(b: np.ndarray, x: np.ndarray = X, y: np.ndarray = Y) -> np.ndarray:
    """How the best b [2] follows each of y [m], by the implicit function theorem: [2, m]."""
    _, slopes = saturating(np, x)(b)
    return np.linalg.solve(stationary(np, x, y)(b)[1], slopes.T)


def of_first_parameter(y: Array) -> tuple[Array, Fit]:
    """b1 of the fit from far away, and all of the fit, on JAX."""
    fit = levenberg_marquardt(jnp, saturating(jnp, jnp.asarray(X)), y, jnp.asarray(FAR))
    return fit.b[0], fit


def draw(fit: Fit, slope: np.ndarray, picture: str) -> None:
    """The data and the curve; below, what each measurement does to b1."""
    figure = Figure(figsize=(5.5, 5), layout="constrained")
    above, below = figure.subplots(2, sharex=True)
    fine = np.linspace(0, 800, 200)
    above.plot(fine, saturating(np, fine)(np.asarray(fit.b))[0], color="tab:blue")
    above.plot(X, Y, "o", color="tab:orange")
    above.set(ylabel="y, measured and fitted")
    below.stem(X, slope, label="through the loop")
    below.plot(X, sensitivity(CERTIFIED)[0], "x", color="tab:orange", label="implicit function theorem")
    below.set(xlabel="x", ylabel="d b1 / d y")
    below.legend(frameon=False)
    figure.savefig(picture, dpi=150)


def main(arguments: list[str]) -> None:
    """Prints the fitted parameter beside the certified one, and draws when asked."""
    jax.config.update("jax_enable_x64", True)
    (b1, fit), slope = jax.jit(jax.value_and_grad(of_first_parameter, has_aux=True))(jnp.asarray(Y))
    print(f"b1 fitted {b1:.8f}, certified {CERTIFIED[0]:.8f}")
    if arguments:
        draw(fit, np.asarray(slope), arguments[0])


if __name__ == "__main__":
    main(sys.argv[1:])
