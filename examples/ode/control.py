"""The next step's length: Söderlind's digital filters, of which I, PI and PID control are three.

A step whose error is e, in units of the tolerance, is accepted if e is at most 1. The next one is longer by
safety * (1/e)^(a/k) (1/e')^(b/k) (1/e'')^(c/k), where e' and e'' are the errors of the steps accepted before, k is the
order of the error, and a, b, c make the filter (Söderlind 2003). After a rejection the last error alone counts.
"""

from dataclasses import dataclass
from typing import Any

Array = Any

SAFETY, SHRINK_MOST, GROW_MOST = 0.9, 0.2, 10.0
# Below it an error is as good as none; the powers of zero have no derivative.
LEAST_ERROR = 1e-10


@dataclass(frozen=True)
class Control:
    """The exponents of the last error, of the one before and of the one before that."""

    weights: tuple[float, float, float]

    def accepted(self, errors: tuple[Array, Array, Array], order: int, after_rejection: Array, xp: Any) -> Array:
        """How much longer the step after an accepted one may be."""
        factor = SAFETY
        for weight, error in zip(self.weights, errors, strict=True):
            if weight:
                factor = factor * error ** (-weight / order)
        # What has just been too long is not made longer at once.
        return xp.minimum(xp.clip(factor, SHRINK_MOST, None), xp.where(after_rejection, 1.0, GROW_MOST))

    def rejected(self, error: Array, order: int, xp: Any) -> Array:
        """How much shorter the next attempt is."""
        return xp.clip(SAFETY * error ** (-1 / order), SHRINK_MOST, 1.0)


I = Control((1.0, 0.0, 0.0))
# Söderlind 2003: PI3040, after Gustafsson 1991, and H312PID.
PI = Control((0.7, -0.4, 0.0))
PID = Control((1 / 18, 1 / 9, 1 / 18))


def size(error: Array, scale: Array, xp: Any) -> Array:
    """The root of the mean square of an error in units of its tolerance; infinite if it is no number."""
    square = xp.mean((error / scale) ** 2)
    return xp.sqrt(xp.where(xp.isfinite(square), xp.clip(square, LEAST_ERROR**2, None), xp.inf))


def first_step(
    field: Any, time: Array, value: Array, slope: Array, span: Array, order: int, rtol: float, atol: float, xp: Any
) -> Array:
    """A first step, with the sign of `span`, that is no longer than it: Hairer, Nørsett and Wanner 1993, section II.4.

    Takes one evaluation of the field.
    """
    scale = atol + rtol * xp.abs(value)
    # Kept off zero, where a root has no derivative.
    norm = lambda x: xp.sqrt(xp.clip(xp.mean((x / scale) ** 2), 1e-30, None))
    of_value, of_slope = norm(value), norm(slope)
    tiny = (of_value < 1e-5) | (of_slope < 1e-5)
    guess = xp.where(tiny, 1e-6, 0.01 * of_value / xp.where(tiny, 1.0, of_slope))
    guess = xp.minimum(guess, xp.abs(span)) * xp.sign(span)
    bent = norm(field(time + guess, value + guess * slope) - slope) / xp.abs(guess)
    most = xp.maximum(of_slope, bent)
    flat = most <= 1e-15
    longer = xp.where(
        flat, xp.clip(xp.abs(guess) * 1e-3, 1e-6, None), (0.01 / xp.where(flat, 1.0, most)) ** (1 / order)
    )
    return xp.minimum(xp.minimum(100 * xp.abs(guess), longer), xp.abs(span)) * xp.sign(span)
