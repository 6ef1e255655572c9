"""The methods by torchdiffeq's names: what their stages weigh, as torchdiffeq takes them.

An adaptive method is an explicit Runge-Kutta pair: Dormand and Prince 1980 with the error of Shampine 1986, Bogacki and
Shampine 1989, Heun's with Euler's, and Fehlberg 1969. Beside its error each knows the middle of a step, and so the
polynomial of degree four through both ends, both slopes and the middle. A fixed method takes the steps it is told.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

Field = Callable[[Tensor, Tensor], Tensor]


class Taken(NamedTuple):
    """One step from (start, before) to (end, after), before anybody has accepted it; times and length as real scalars.

    slope, next_slope: of the field at both ends.   error: of `after`, an estimate.   middle: the solution halfway.
    """

    start: Tensor
    end: Tensor
    length: Tensor
    before: Tensor
    after: Tensor
    slope: Tensor
    next_slope: Tensor
    error: Tensor
    middle: Tensor


def weighted(weights: Sequence[float], stages: Sequence[Tensor]) -> Tensor:
    """The sum of the stages, each with its weight."""
    terms = [stage * w for w, stage in zip(weights, stages, strict=False) if w]
    return sum(terms[1:], terms[0])


@dataclass(frozen=True)
class Pair:
    """An explicit pair; its last stage passes for the slope at the end of the step.

    rows: of the stages after the first.   solution: what the stages weigh at the end; None: as in the last row.
    """

    order: int
    nodes: tuple[float, ...]
    rows: tuple[tuple[float, ...], ...]
    solution: tuple[float, ...] | None
    error: tuple[float, ...]
    middle: tuple[float, ...]

    def step(self, field: Field, start: Tensor, length: Tensor, before: Tensor, slope: Tensor) -> Taken:
        end = start + length
        real = before.real.dtype
        t, h = start.to(real), length.to(real)
        stages, after = [slope], before
        for node, row in zip(self.nodes, self.rows, strict=True):
            after = before + h * weighted(row, stages)
            stages.append(field(end.to(real) if node == 1 else t + node * h, after))
        if self.solution is not None:
            after = before + h * weighted(self.solution, stages)
        error, middle = h * weighted(self.error, stages), before + h * weighted(self.middle, stages)
        return Taken(start, end, length, before, after, slope, stages[-1], error, middle)


def between(step: Taken, times: Tensor) -> Tensor:
    """The solution inside of a step, at scalar or stacked times: [*times, *state]."""
    part = ((times - step.start) / (step.end - step.start)).to(step.before.real.dtype)
    # Whoever asks for a time outside takes nothing from here, but an overflow would spoil its gradient.
    x = part.clamp(0, 1).reshape(*times.shape, *(1,) * step.before.dim())
    y0, y1, middle = step.before, step.after, step.middle
    h = step.length.to(y0.real.dtype)
    f0, f1 = h * step.slope, h * step.next_slope
    quartic = 2 * (f1 - f0) - 8 * (y1 + y0) + 16 * middle
    cubic = 5 * f0 - 3 * f1 + 18 * y0 + 14 * y1 - 32 * middle
    square = f1 - 4 * f0 - 11 * y0 - 5 * y1 + 16 * middle
    return y0 + x * (f0 + x * (square + x * (cubic + x * quartic)))


ADAPTIVE = {
    "dopri5": Pair(
        order=5,
        nodes=(1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0),
        rows=(
            (1 / 5,),
            (3 / 40, 9 / 40),
            (44 / 45, -56 / 15, 32 / 9),
            (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
            (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
            (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
        ),
        solution=None,
        error=(
            35 / 384 - 1951 / 21600,
            0.0,
            500 / 1113 - 22642 / 50085,
            125 / 192 - 451 / 720,
            12231 / 42400 - 2187 / 6784,
            11 / 84 - 649 / 6300,
            -1 / 60,
        ),
        middle=(
            6025192743 / 30085553152 / 2,
            0.0,
            51252292925 / 65400821598 / 2,
            -2691868925 / 45128329728 / 2,
            187940372067 / 1594534317056 / 2,
            -1776094331 / 19743644256 / 2,
            11237099 / 235043384 / 2,
        ),
    ),
    "bosh3": Pair(
        order=3,
        nodes=(1 / 2, 3 / 4, 1.0),
        rows=((1 / 2,), (0.0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)),
        solution=None,
        error=(2 / 9 - 7 / 24, 1 / 3 - 1 / 4, 4 / 9 - 1 / 3, -1 / 8),
        middle=(0.0, 1 / 2, 0.0, 0.0),
    ),
    "fehlberg2": Pair(
        order=2,
        nodes=(1 / 2, 1.0),
        rows=((1 / 2,), (1 / 256, 255 / 256)),
        solution=(1 / 512, 255 / 256, 1 / 512),
        error=(-1 / 512, 0.0, 1 / 512),
        middle=(0.0, 1 / 2, 0.0),
    ),
    "adaptive_heun": Pair(
        order=2,
        nodes=(1.0,),
        rows=((1.0,),),
        solution=(1 / 2, 1 / 2),
        error=(1 / 2, -1 / 2),
        middle=(1 / 2, 0.0),
    ),
}


def euler(field: Field, t0: Tensor, t1: Tensor, y: Tensor, slope: Tensor) -> Tensor:
    return y + (t1 - t0) * slope


def midpoint(field: Field, t0: Tensor, t1: Tensor, y: Tensor, slope: Tensor) -> Tensor:
    h = t1 - t0
    return y + h * field(t0 + h / 2, y + h / 2 * slope)


def heun2(field: Field, t0: Tensor, t1: Tensor, y: Tensor, slope: Tensor) -> Tensor:
    h = t1 - t0
    return y + h / 2 * (slope + field(t1, y + h * slope))


def heun3(field: Field, t0: Tensor, t1: Tensor, y: Tensor, slope: Tensor) -> Tensor:
    h = t1 - t0
    second = field(t0 + h / 3, y + h / 3 * slope)
    return y + h / 4 * (slope + 3 * field(t0 + h * (2 / 3), y + h * (2 / 3) * second))


def rk4(field: Field, t0: Tensor, t1: Tensor, y: Tensor, slope: Tensor) -> Tensor:
    """Kutta's 3/8 rule (Kutta 1901), which torchdiffeq takes for its smaller error."""
    h = t1 - t0
    second = field(t0 + h / 3, y + h / 3 * slope)
    third = field(t0 + h * (2 / 3), y + h * (second - slope / 3))
    fourth = field(t1, y + h * (slope - second + third))
    return y + h / 8 * (slope + 3 * (second + third) + fourth)


FIXED: dict[str, Any] = {"euler": euler, "midpoint": midpoint, "heun2": heun2, "heun3": heun3, "rk4": rk4}
