"""What ball threw this picture? Its place and its size, from twenty-four by twenty-four pixels.

A ray goes from the eye through each pixel and walks: as far at a time as the nearest surface is away, so it never walks
through one (Hart 1996). A ray at the ball's middle arrives in a few steps, one that grazes it takes many, one that
misses leaves. A lamp near by lights what is hit, and the less the farther it is: a lamp far away could not tell a small
ball from a large one behind it. The ball grows dark towards its rim, so that the picture has no hard edge, where it
would have no derivative. The gradient goes back through every ray's own steps, and by it we recover what the picture
was made of; the quadratic equation of line and sphere is the reference. This file prints the recovered radius.

`python examples/ray_march.py [picture.png]`; the functions that take `xp`, jax.numpy or torch, run on both, and take
`vmap` beside it, by which each ray stops by itself.
"""

import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import minimize

import dynloop

Array = Any

# The ball's centre and its radius, and where the search begins; the eye stands at the origin and looks along z.
TRUE = np.array([0.3, -0.2, 4.0, 1.0])
GUESS = np.array([0.0, 0.0, 3.5, 0.7])
LAMP, BRIGHTNESS = (2.0, 2.0, 1.0), 8.0
SIDE = 24
# A ray arrives when the ball is nearer than this, and has left when it has walked this far.
NEAR, FAR = 1e-9, 10.0


class Walk(NamedTuple):
    """What goes from step to step of a ray."""

    way: Array  # how far it has walked
    gap: Array  # how far the ball is from there


def rays(side: int = SIDE) -> np.ndarray:
    """The directions from the eye through a square of pixels, of length 1: [side^2, 3]."""
    if side < 1:
        raise ValueError(f"rays: side must be the number of pixels along an edge; got {side}; give 24, say")
    across = 0.8 * ((np.arange(side) + 0.5) / side - 0.5)
    x, y = np.meshgrid(across, -across)
    directions = np.stack([x, y, np.ones_like(x)], -1).reshape(-1, 3)
    return directions / np.linalg.norm(directions, axis=1, keepdims=True)


def distance(xp: Any, ball: Array, point: Array) -> Array:
    """How far a ball [4], centre and radius, is from a point [3]; negative inside of it."""
    offset = point - ball[:3]
    return xp.sqrt(offset @ offset) - ball[3]


def walk(xp: Any, ball: Array, ray: Array, checkpoints: Any = 8) -> dynloop.Result:
    """Where a ray [3] of length 1 ends, the carry of a Result that counts its steps."""

    def body(state: Walk) -> Walk:
        way = state.way + state.gap
        return Walk(way, distance(xp, ball, way * ray))

    start = 0 * ball[0]
    first = Walk(start, distance(xp, ball, start * ray))
    under_way = lambda state: (state.gap > NEAR) & (state.way < FAR)
    return dynloop.while_loop(under_way, body, first, checkpoints=checkpoints, full_output=True)


def shade(xp: Any, ball: Array, ray: Array, way: Array) -> Array:
    """The light that comes back along a ray from the ball's surface, which it meets after `way`."""
    point = way * ray
    normal = (point - ball[:3]) / ball[3]
    to_lamp = xp.asarray(LAMP) - point
    square = to_lamp @ to_lamp
    lit = BRIGHTNESS * (normal @ to_lamp) / (square * xp.sqrt(square))
    return xp.where(lit > 0, lit, 0 * lit) * (normal @ ray) ** 2


def pixel(xp: Any, ball: Array, ray: Array, checkpoints: Any = 8) -> Array:
    """What the eye sees along a ray: black where it misses."""
    way = walk(xp, ball, ray, checkpoints).carry.way
    light = shade(xp, ball, ray, way)
    return xp.where(way < FAR, light, 0 * light)


def picture_of(xp: Any, vmap: Any, ball: Array, directions: Array, checkpoints: Any = 8) -> Array:
    """The pixels [side^2] along the directions [side^2, 3] of a ball [4]; `vmap` is jax.vmap or torch.vmap."""
    return vmap(lambda ray: pixel(xp, ball, ray, checkpoints))(directions)


def picture_by_formula(ball: Array, directions: Array) -> Array:
    """The same on JAX without a loop: the nearer root of the quadratic equation."""

    def light(ray: Array) -> Array:
        along = ray @ ball[:3]
        square = ball[3] ** 2 - ball[:3] @ ball[:3] + along**2
        # The root's derivative is kept finite for the rays that miss.
        way = along - jnp.sqrt(jnp.where(square > 0, square, 1.0))
        return jnp.where(square > 0, shade(jnp, ball, ray, way), 0.0)

    return jax.vmap(light)(directions)


@jax.jit
@jax.value_and_grad
def misfit_and_gradient(ball: Array, directions: Array, picture: Array) -> Array:
    """Half the sum of squared differences, and its derivative by the ball."""
    return ((picture_of(jnp, jax.vmap, ball, directions) - picture) ** 2).sum() / 2


def recover(directions: np.ndarray, picture: np.ndarray) -> np.ndarray:
    """The ball [4] whose picture comes nearest, from GUESS on."""

    def value_and_slope(ball: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = misfit_and_gradient(ball, directions, picture)
        return float(value), np.asarray(slope)

    return minimize(value_and_slope, GUESS, jac=True, method="BFGS", options={"gtol": 1e-9}).x


def draw(found: np.ndarray, picture: str) -> None:
    """What was seen, what the search began with, what it found, and how many steps each ray took."""
    directions = jnp.asarray(rays())
    see = jax.jit(lambda ball: picture_of(jnp, jax.vmap, ball, directions))
    steps = jax.vmap(lambda ray: walk(jnp, jnp.asarray(found), ray).steps)(directions)
    images = {
        "given": see(TRUE),
        "first guess": see(GUESS),
        "recovered": see(found),
        "steps of each ray, log2": jnp.log2(steps),
    }
    figure = Figure(figsize=(9, 2.6), layout="constrained")
    for axes, (title, image) in zip(figure.subplots(1, 4), images.items(), strict=True):
        figure.colorbar(axes.imshow(np.reshape(image, (SIDE, SIDE)), cmap="gray"), ax=axes, shrink=0.8)
        axes.set_title(title, fontsize="medium")
        axes.axis("off")
    figure.savefig(picture, dpi=150)


def main(arguments: list[str]) -> None:
    """Prints the recovered radius beside the true one, and draws when asked."""
    jax.config.update("jax_enable_x64", True)
    directions = rays()
    found = recover(directions, np.asarray(picture_by_formula(jnp.asarray(TRUE), jnp.asarray(directions))))
    print(f"radius recovered {found[3]:.6f}, true {TRUE[3]:.6f}")
    if arguments:
        draw(found, arguments[0])


if __name__ == "__main__":
    main(sys.argv[1:])
