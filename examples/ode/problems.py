"""Four problems whose ends are known, each a field for arrays of any library.

Arenstorf's orbit is that of Hairer, Nørsett and Wanner 1993, section II.0, a satellite between earth and moon that
comes back to where it was; van der Pol's and Robertson's are the stiff ones of Hairer and Wanner 1996, section IV.10,
with the ends of the test set of Mazzia and Magherini 2008; Lorenz's is chaotic, and has no published end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Array = Any


@dataclass(frozen=True)
class Problem:
    """d value / d time = field(xp)(time, value, parameters) from 0 to `end`; `known` is the end, if published."""

    name: str
    field: Callable[[Any], Callable[[Array, Array, Array], Array]]
    start: tuple[float, ...]
    end: float
    parameters: tuple[float, ...]
    known: tuple[float, ...] | None


def orbit(xp: Any) -> Callable[[Array, Array, Array], Array]:
    """Place and speed of the satellite, x, y, x', y'; the parameter is the moon's part of the mass."""

    def field(time: Array, value: Array, parameters: Array) -> Array:
        x, y, u, v = value[0], value[1], value[2], value[3]
        moon = parameters[0]
        earth = 1 - moon
        by_earth = ((x + moon) ** 2 + y**2) ** 1.5
        by_moon = ((x - earth) ** 2 + y**2) ** 1.5
        pull_x = earth * (x + moon) / by_earth + moon * (x - earth) / by_moon
        pull_y = earth * y / by_earth + moon * y / by_moon
        return xp.stack([u, v, x + 2 * v - pull_x, y - 2 * u - pull_y])

    return field


def oscillator(xp: Any) -> Callable[[Array, Array, Array], Array]:
    """Van der Pol's; the parameter makes it stiff, the smaller the more."""

    def field(time: Array, value: Array, parameters: Array) -> Array:
        x, speed = value[0], value[1]
        return xp.stack([speed, ((1 - x**2) * speed - x) / parameters[0]])

    return field


def reactions(xp: Any) -> Callable[[Array, Array, Array], Array]:
    """Robertson's three substances; the parameters are three rates."""

    def field(time: Array, value: Array, parameters: Array) -> Array:
        slow = parameters[0] * value[0]
        quick = parameters[1] * value[1] ** 2
        back = parameters[2] * value[1] * value[2]
        return xp.stack([back - slow, slow - quick - back, quick])

    return field


def convection(xp: Any) -> Callable[[Array, Array, Array], Array]:
    """Lorenz's; the parameters are sigma, rho and beta."""

    def field(time: Array, value: Array, parameters: Array) -> Array:
        x, y, z = value[0], value[1], value[2]
        return xp.stack([parameters[0] * (y - x), x * (parameters[1] - z) - y, x * y - parameters[2] * z])

    return field


ARENSTORF = Problem(
    name="Arenstorf",
    field=orbit,
    start=(0.994, 0.0, 0.0, -2.00158510637908252240537862224),
    end=17.0652165601579625588917206249,
    parameters=(0.012277471,),
    known=(0.994, 0.0, 0.0, -2.00158510637908252240537862224),
)
VAN_DER_POL = Problem(
    name="van der Pol",
    field=oscillator,
    start=(2.0, 0.0),
    end=2.0,
    parameters=(1e-6,),
    known=(1.706167732170483, -0.8928097010247975),
)
ROBERTSON = Problem(
    name="Robertson",
    field=reactions,
    start=(1.0, 0.0, 0.0),
    end=1e11,
    parameters=(0.04, 3e7, 1e4),
    known=(2.083340149701255e-08, 8.333360770334713e-14, 0.9999999791665050),
)
LORENZ = Problem(
    name="Lorenz",
    field=convection,
    start=(1.0, 1.0, 1.0),
    end=2.0,
    parameters=(10.0, 28.0, 8 / 3),
    known=None,
)
