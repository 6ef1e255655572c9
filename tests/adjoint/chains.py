"""A chain to reverse, its adjoint by hand, and the plain answer: what tests of the driver and the stores compare with.

The map is a rotation with a damped product in it, on plain floats: not linear, so a wrong state gives a wrong adjoint,
and not commutative, so a wrong order does. Everything is computed in one way, so answers are equal bit for bit.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from adjoint import Action, Advance, Discard, Restore, Store, Turn

State = tuple[float, float]
START: State = (0.4, -0.7)
SEED: State = (1.0, 0.5)


def step(i: int, state: State) -> State:
    x, y = state
    return 0.8 * x - 0.6 * y + 0.01 * x * y, 0.6 * x + 0.8 * y + 0.001 * i


def turn(i: int, state: State, cotangent: State) -> State:
    (x, y), (a, b) = state, cotangent
    return a * (0.8 + 0.01 * y) + 0.6 * b, a * (-0.6 + 0.01 * x) + 0.8 * b


def states(steps: int, start: State = START) -> list[State]:
    """All states of the chain, the last one included."""
    kept = [start]
    for i in range(steps):
        kept.append(step(i, kept[-1]))
    return kept


def unrolled(steps: int, seed: State = SEED) -> tuple[State, State]:
    """The last state and the cotangent of state 0, with every state kept in a list."""
    kept = states(steps)
    cotangent = seed
    for i in reversed(range(steps)):
        cotangent = turn(i, kept[i], cotangent)
    return kept[-1], cotangent


@dataclass(frozen=True)
class TwoTiers:
    """Every `period`-th state in tier 1, and while an interval is reversed all its other states in tier 0."""

    period: int

    def actions(self, steps: int) -> Iterator[Action]:
        starts = range(0, steps, self.period)
        for start in starts:
            yield Store(start, start // self.period, tier=1)
            yield Advance(start, min(start + self.period, steps))
        for start in reversed(starts):
            last, slot = min(start + self.period, steps) - 1, start // self.period
            yield Restore(start, slot, tier=1)
            for state in range(start, last):
                yield Advance(state, state + 1)
                yield Store(state + 1, state - start)
            for state in range(last, start, -1):
                yield Restore(state, state - start - 1)
                yield Discard(state, state - start - 1)
                yield Turn(state)
            yield Restore(start, slot, tier=1)
            yield Discard(start, slot, tier=1)
            yield Turn(start)


def record(i: int, state: State) -> tuple[State, State]:
    """A step with its tape, which is the state that it starts from."""
    return step(i, state), state


def apply(i: int, tape: State, cotangent: State) -> State:
    """The adjoint of a step from its tape."""
    return turn(i, tape, cotangent)
