"""An adaptive solver of differential equations in one loop.

Nobody knows how many steps it takes: the solution itself decides how long each one may be, and which are done again.
So it is a `dynloop.while_loop` without a bound, and its gradient keeps as many states as the caller says.
The method is the 5(4) pair of Dormand and Prince 1980, table 2; its step control is that of Hairer, Nørsett and
Wanner 1993, section II.4 (errors) and the appendix's code DOPRI5 (the constants).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

import dynloop

# Stage by stage: how much of each slope so far. The last row gives the solution of order 5.
STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
# The solution of order 5 less the one of order 4.
DIFFERENCE = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)

SAFETY, SHRINK_MOST, GROW_MOST = 0.9, 0.2, 10.0
# A step's length answers to its own error and, against swinging to and fro, to that of the step accepted before it.
BY_LAST_ERROR = 0.04
BY_ERROR = 0.2 - 0.75 * BY_LAST_ERROR
FIRST_STEP = 0.1


class State(NamedTuple):
    """What goes from step to step."""

    time: jax.Array
    value: jax.Array  # [n], the solution at `time`
    slope: jax.Array  # [n], its derivative there: the last stage of one step is the first of the next
    step: jax.Array  # the length to try
    error: jax.Array  # of the step accepted last, in units of the tolerance
    saved: jax.Array  # [times, n], NaN where the solution has not arrived yet
    arrived: jax.Array  # how many of the times it has
    accepted: jax.Array
    rejected: jax.Array


Field = Callable[[jax.Array], jax.Array]
Body = Callable[[State], State]


def as_it_is(body: Body) -> Body:
    """Nothing around the body."""
    return body


def solve(
    field: Field,
    start: jax.Array,
    times: jax.Array,
    *,
    tolerance: float = 1e-8,
    checkpoints: int = 8,
    around: Callable[[Body], Body] = as_it_is,
) -> State:
    """The last state of d value / d time = field(value), whose `saved` are the values at `times`, the first `start`.

    `start` is [n], the value at `times[0]`; `times` is [times], ascending, in the unit that `field` is per.
    `tolerance` bounds each step's error, relative to the value where that exceeds 1, absolute elsewhere.
    `checkpoints` is the number of states that a gradient keeps.
    `around` may wrap the body of the loop, to watch it.
    """

    def is_under_way(state: State) -> jax.Array:
        # A step too short to move the time, or NaN, ends the loop; what is missing in `saved` stays NaN.
        return (state.arrived < times.size) & (state.time + state.step > state.time)

    def body(state: State) -> State:
        arrival = times[state.arrived]
        arrives = state.time + state.step >= arrival
        step = jnp.where(arrives, arrival - state.time, state.step)

        slopes, value = [state.slope], state.value
        for weights in STAGES:
            value = state.value + step * weighted(weights, slopes)
            slopes.append(field(value))
        scale = tolerance * (1 + jnp.maximum(abs(state.value), abs(value)))
        # The square is kept off zero, where its root has no derivative.
        error = jnp.sqrt(jnp.maximum(jnp.mean((step * weighted(DIFFERENCE, slopes) / scale) ** 2), 1e-20))

        accept = error <= 1
        factor = jnp.clip(SAFETY * state.error**BY_LAST_ERROR / error**BY_ERROR, SHRINK_MOST, GROW_MOST)
        saves = accept & arrives
        row = jnp.where(saves, value, state.saved[state.arrived])
        return State(
            time=jnp.where(accept, jnp.where(arrives, arrival, state.time + step), state.time),
            value=jnp.where(accept, value, state.value),
            slope=jnp.where(accept, slopes[-1], state.slope),
            # A step cut short to arrive says nothing about the next: what was proposed before stands.
            step=jnp.where(saves, state.step, step * factor),
            error=jnp.where(accept, jnp.maximum(error, 1e-4), state.error),
            saved=state.saved.at[state.arrived].set(row),
            arrived=state.arrived + saves,
            accepted=state.accepted + accept,
            rejected=state.rejected + ~accept,
        )

    first = State(
        time=times[0],
        value=start,
        slope=field(start),
        step=jnp.full_like(times[0], FIRST_STEP),
        error=jnp.full_like(times[0], 1e-4),
        saved=jnp.full((times.size, start.size), jnp.nan, start.dtype).at[0].set(start),
        arrived=jnp.int32(1),
        accepted=jnp.int32(0),
        rejected=jnp.int32(0),
    )
    return dynloop.while_loop(is_under_way, around(body), first, checkpoints=checkpoints)


def weighted(weights: tuple[float, ...], slopes: list[jax.Array]) -> jax.Array:
    """The sum of the slopes, each with its weight."""
    return sum((w * slope for w, slope in zip(weights, slopes, strict=True) if w), jnp.zeros_like(slopes[0]))
