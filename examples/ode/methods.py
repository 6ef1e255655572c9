"""The steps: two explicit Runge-Kutta pairs and one Rosenbrock method, with what each knows between its ends.

Tsit5 is the pair of Tsitouras 2011, DormandPrince54 that of Dormand and Prince 1980 with the dense output of Hairer,
Nørsett and Wanner 1993, section II.6; Rodas4 is the stiffly accurate Rosenbrock method of order 4(3) of Hairer and
Wanner 1996, sections IV.7 and VI.4, in the form that needs no product with the Jacobian.
A method is written for arrays of any library: what it needs of one is `xp`, and for Rodas4 `jacfwd`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Array = Any
Field = Callable[[Array, Array], Array]


class Trial(NamedTuple):
    """One step, before anybody has accepted it."""

    value: Array  # [n], at the end
    slope: Array  # [n], of the field there
    error: Array  # [n], an estimate of the value's
    stages: tuple[Array, ...]  # what `between` needs, [n] each


def weighted(weights: Sequence[Any], stages: Sequence[Array]) -> Array:
    """The sum of the stages, each with its weight."""
    terms = [w * stage for w, stage in zip(weights, stages, strict=True) if not (isinstance(w, float) and w == 0)]
    return sum(terms[1:], terms[0])


@dataclass(frozen=True)
class RungeKutta:
    """An explicit pair whose last stage is the first one of the next step."""

    name: str
    order: int
    nodes: tuple[float, ...]
    rows: tuple[tuple[float, ...], ...]  # of stages 1, 2, ...; the last one is the solution's
    error: tuple[float, ...]
    # What each stage weighs at a part of the step between 0 and 1.
    dense: Callable[[Array], tuple[Array, ...]]

    @property
    def evaluations(self) -> int:
        """Of the field, in one trial; none of them is repeated."""
        return len(self.rows)

    @property
    def kept(self) -> int:
        """How many arrays `between` needs."""
        return len(self.rows) + 1

    def attempt(
        self, field: Field, time: Array, value: Array, slope: Array, step: Array, xp: Any, jacfwd: Any
    ) -> Trial:
        stages, end = [slope], value
        for node, row in zip(self.nodes, self.rows, strict=True):
            end = value + step * weighted(row, stages)
            stages.append(field(time + node * step, end))
        return Trial(end, stages[-1], step * weighted(self.error, stages), tuple(stages))

    def between(self, part: Array, step: Array, start: Array, end: Array, stages: tuple[Array, ...]) -> Array:
        """The solution at `start` plus a part of the step, 0 to 1; of order 4."""
        return start + step * weighted(self.dense(part), stages)


def dormand_prince_dense(x: Array) -> tuple[Array, ...]:
    """Hairer, Nørsett and Wanner 1993, section II.6: a cubic through both ends and slopes, and a term of degree 4."""
    y = 1 - x
    ends = DP_ROWS[-1]
    quartic = x * x * y * y
    weights = [x * x * (3 - 2 * x) * b + quartic * d for b, d in zip((*ends, 0.0), DP_QUARTIC, strict=True)]
    weights[0] = weights[0] + x * y * y
    weights[-1] = weights[-1] - x * x * y
    return tuple(weights)


DP_ROWS = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
DP_QUARTIC = (
    -12715105075 / 11282082432,
    0.0,
    87487479700 / 32700410799,
    -10690763975 / 1880347072,
    701980252875 / 199316789632,
    -1453857185 / 822651844,
    69997945 / 29380423,
)

DormandPrince54 = RungeKutta(
    name="DormandPrince54",
    order=5,
    nodes=(1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0),
    rows=DP_ROWS,
    error=(71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40),
    dense=dormand_prince_dense,
)


def tsitouras_dense(x: Array) -> tuple[Array, ...]:
    """Tsitouras 2011, section 3."""
    xx = x * x
    return (
        -1.0530884977290216 * x * (x - 1.3299890189751412) * (xx - 1.4364028541716351 * x + 0.7139816917074209),
        0.1017 * xx * (xx - 2.1966568338249754 * x + 1.2949852507374631),
        2.490627285651252793 * xx * (xx - 2.38535645472061657 * x + 1.57803468208092486),
        -16.54810288924490272 * xx * (x - 1.21712927295533244) * (x - 0.61620406037800089),
        47.37952196281928122 * xx * (x - 1.203071208372362603) * (x - 0.658047292653547382),
        -34.87065786149660974 * xx * (x - 1.2) * (x - 0.666666666666666667),
        2.5 * xx * (x - 1) * (x - 0.6),
    )


Tsit5 = RungeKutta(
    name="Tsit5",
    order=5,
    nodes=(0.161, 0.327, 0.9, 0.9800255409045097, 1.0, 1.0),
    rows=(
        (0.161,),
        (-0.008480655492356989, 0.335480655492357),
        (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
        (5.325864828439257, -11.748883564062828, 7.495539342889836, -0.09249506636175525),
        (5.861455442946420, -12.920969317847109, 8.159367898576159, -0.07158497328140100, -0.02826905039406838),
        (0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081, 2.324710524099774),
    ),
    error=(
        -0.001780011052225772,
        -0.0008164344596567469,
        0.007880878010261995,
        -0.1447110071732629,
        0.5823571654525552,
        -0.45808210592918695,
        1 / 66,
    ),
    dense=tsitouras_dense,
)


@dataclass(frozen=True)
class Rosenbrock:
    """A linearly implicit method: one Jacobian, and one linear system for each stage, in each step."""

    name: str
    order: int
    diagonal: float
    nodes: tuple[float, ...]
    by_time: tuple[float, ...]
    rows: tuple[tuple[float, ...], ...]
    couplings: tuple[tuple[float, ...], ...]

    @property
    def evaluations(self) -> int:
        """Of the field, in one trial, those of its Jacobian apart."""
        return len(self.nodes)

    @property
    def kept(self) -> int:
        """How many arrays `between` needs."""
        return 2

    def attempt(
        self, field: Field, time: Array, value: Array, slope: Array, step: Array, xp: Any, jacfwd: Any
    ) -> Trial:
        if jacfwd is None:
            raise ValueError(f"{self.name} differentiates the field: give jacfwd=jax.jacfwd, or torch.func.jacfwd")
        by_time, by_value = (jacfwd(field, argnums=i)(time, value) for i in (0, 1))
        matrix = xp.eye(value.shape[0], dtype=value.dtype) / (step * self.diagonal) - by_value
        stages: list[Array] = []
        end, at_end = value, slope
        for node, by, row, coupling in zip(self.nodes, self.by_time, self.rows, self.couplings, strict=True):
            if stages:
                end = value + weighted(row, stages)
                at_end = field(time + node * step, end) + weighted(coupling, stages) / step
            stages.append(xp.linalg.solve(matrix, at_end + step * by * by_time))
        # Stiffly accurate: the last stage is the error of the value before it, and corrects it.
        end = end + stages[-1]
        at_end = field(time + step, end)
        return Trial(end, at_end, stages[-1], (slope, at_end))

    def between(self, part: Array, step: Array, start: Array, end: Array, stages: tuple[Array, ...]) -> Array:
        """The cubic through both ends and slopes at a part of the step, 0 to 1; of order 3."""
        x, y = part, 1 - part
        ends = y * y * (1 + 2 * x) * start + x * x * (3 - 2 * x) * end
        return ends + step * x * y * (y * stages[0] - x * stages[1])


Rodas4 = Rosenbrock(
    name="Rodas4",
    order=4,
    diagonal=0.25,
    nodes=(0.0, 0.386, 0.21, 0.63, 1.0, 1.0),
    by_time=(0.25, -0.1043, 0.1035, -0.0362, 0.0, 0.0),
    rows=(
        (),
        (1.544,),
        (0.9466785280815826, 0.2557011698983284),
        (3.314825187068521, 2.896124015972201, 0.9986419139977817),
        (1.221224509226641, 6.019134481288629, 12.53708332932087, -0.6878860361058950),
        (1.221224509226641, 6.019134481288629, 12.53708332932087, -0.6878860361058950, 1.0),
    ),
    couplings=(
        (),
        (-5.6688,),
        (-2.430093356833875, -0.2063599157091915),
        (-0.1073529058151375, -9.594562251023355, -20.47028614809616),
        (7.496443313967647, -10.24680431464352, -33.99990352819905, 11.70890893206160),
        (8.083246795921522, -7.981132988064893, -31.52159432874371, 16.31930543123136, -6.058818238834054),
    ),
)

Method = RungeKutta | Rosenbrock
