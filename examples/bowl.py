"""Five balls in a bowl: when is the next collision?

Between collisions every ball swings freely in the bowl, x'' = -x, and its way is known; what is not known is when two
of them touch. The outer loop goes from collision to collision, and by a short step where there is none; the inner one
bisects the step in which two balls begin to overlap. Bisection moves by comparisons, which have no derivative, so one
step of Newton's method follows it, and that step's derivative is the one of the collision's time by the implicit
function theorem. Elastic collisions of equal balls keep the energy, and the centre of them all swings as if there were
none: so much is known, however often they collide. This file prints the energy at the end beside that of the start.

`python examples/bowl.py [picture.png]`; the functions that take `xp`, jax.numpy or torch, run on both.
"""

import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import dynloop

Array = Any

# In units in which the bowl's swing takes 2 pi.
RADIUS, STEP, END = 0.2, 0.05, 6.0
# Bisection ends at this, and Newton's method squares what is left.
SHORTEST = 1e-9
MOST_STEPS = 100_000


class Bowl(NamedTuple):
    """What goes from collision to collision."""

    time: Array
    position: Array  # [balls, 2]
    velocity: Array  # [balls, 2]
    collisions: Array  # how many there have been


def pairs(balls: int) -> np.ndarray:
    """A row for each pair, 1 at one ball and -1 at the other, so that it takes differences: [pairs, balls]."""
    first, second = np.triu_indices(balls, 1)
    return np.eye(balls)[first] - np.eye(balls)[second]


def swing(xp: Any, position: Array, velocity: Array, time: Array) -> tuple[Array, Array]:
    """Position and velocity after `time` without a collision."""
    cos, sin = xp.cos(time), xp.sin(time)
    return position * cos + velocity * sin, velocity * cos - position * sin


def gaps(xp: Any, pair: Array, position: Array, velocity: Array) -> tuple[Array, Array, Array]:
    """How far the balls of each pair are apart, how fast that grows, [pairs], and the way between them, [pairs, 2]."""
    between = pair @ position
    length = xp.sqrt((between * between).sum(-1))
    normal = between / length[:, None]
    return length - 2 * RADIUS, ((pair @ velocity) * normal).sum(-1), normal


def simulate(xp: Any, position: Array, velocity: Array, end: float = END, checkpoints: Any = 8) -> dynloop.Result:
    """The balls at time `end`, as the carry of a Result that counts the steps of the outer loop.

    `position` and `velocity` are [balls, 2], no two of the balls overlapping, as `check_apart` tells.
    """
    if position.ndim != 2 or tuple(position.shape) != tuple(velocity.shape) or position.shape[0] < 2:
        raise ValueError(
            "simulate: position and velocity must be [balls, 2], of two balls or more; "
            f"got {tuple(position.shape)} and {tuple(velocity.shape)}"
        )
    pair = xp.asarray(pairs(position.shape[0]))

    def colliding(state: Bowl, after: Array) -> Array:
        # Those that have just collided touch, and part: only who overlaps and comes nearer collides.
        gap, growth, _ = gaps(xp, pair, *swing(xp, state.position, state.velocity, after))
        return (gap < 0) & (growth < 0)

    def body(state: Bowl) -> Bowl:
        step = xp.minimum(end - state.time, 0 * state.time + STEP)

        def halve(bracket: tuple[Array, Array]) -> tuple[Array, Array]:
            early, late = bracket
            middle = (early + late) / 2
            overlap = xp.any(colliding(state, middle))
            return xp.where(overlap, early, middle), xp.where(overlap, middle, late)

        def is_wide(bracket: tuple[Array, Array]) -> Array:
            return (bracket[1] - bracket[0] > SHORTEST) & xp.any(colliding(state, bracket[1]))

        _, after = dynloop.while_loop(is_wide, halve, (0 * step, step), checkpoints=checkpoints)
        collides = colliding(state, after)
        hit = xp.any(collides)
        # One, for the pair that collides; another pair that meets it within SHORTEST would collide as well.
        chosen = xp.where(collides, 1.0, 0.0)
        gap, growth, _ = gaps(xp, pair, *swing(xp, state.position, state.velocity, after))
        late_by = xp.where(hit, (chosen * gap).sum() / xp.where(hit, (chosen * growth).sum(), -1.0), 0.0)
        after = after - late_by
        position, velocity = swing(xp, state.position, state.velocity, after)
        _, growth, normal = gaps(xp, pair, position, velocity)
        # Equal balls exchange what they have along the line between them.
        velocity = velocity - pair.T @ ((chosen * growth)[:, None] * normal)
        return Bowl(state.time + after, position, velocity, state.collisions + hit)

    first = Bowl(0 * position[0, 0], position, velocity, 0)
    return dynloop.while_loop(
        lambda state: state.time < end, body, first, checkpoints=checkpoints, max_steps=MOST_STEPS, full_output=True
    )


def energy(position: Array, velocity: Array) -> Array:
    """Of all balls, each of mass 1, in the bowl."""
    return ((position * position).sum() + (velocity * velocity).sum()) / 2


def check_apart(position: np.ndarray) -> None:
    """Refuses balls that overlap, which nothing could have brought there."""
    gap, _, _ = gaps(np, pairs(len(position)), position, position)
    if np.min(gap) < 0:
        raise ValueError(
            f"two balls overlap by {-np.min(gap):.3g}; put the centres {2 * RADIUS} apart at least, or take fewer balls"
        )


def start(balls: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Balls in a circle, kicked at random: positions and velocities, [balls, 2] each."""
    angles = 2 * np.pi * np.arange(balls) / balls
    position = np.stack([np.cos(angles), np.sin(angles)], -1)
    check_apart(position)
    return position, np.random.default_rng(1).normal(scale=0.5, size=(balls, 2))


def draw(picture: str) -> None:
    """The ways of the balls, and of their centre."""
    position, velocity = map(jnp.asarray, start())
    until = jax.jit(jax.vmap(lambda end: simulate(jnp, position, velocity, end, 0).carry.position))
    ways = np.asarray(until(jnp.linspace(0, END, 300)))
    figure = Figure(figsize=(4, 4), layout="constrained")
    axes = figure.add_subplot()
    for ball in range(ways.shape[1]):
        axes.plot(*ways[:, ball].T)
    axes.plot(*ways.mean(axis=1).T, "k--", label="their centre")
    axes.set_aspect("equal")
    axes.legend(frameon=False)
    figure.savefig(picture, dpi=150)


def main(arguments: list[str]) -> None:
    """Prints the energy at the end beside that of the start, and draws when asked."""
    jax.config.update("jax_enable_x64", True)
    position, velocity = start()
    bowl = jax.jit(lambda x, v: simulate(jnp, x, v))(position, velocity).carry
    print(
        f"after {bowl.collisions} collisions: energy {energy(bowl.position, bowl.velocity):.12f}, "
        f"at the start {energy(position, velocity):.12f}"
    )
    if arguments:
        draw(arguments[0])


if __name__ == "__main__":
    main(sys.argv[1:])
