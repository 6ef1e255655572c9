"""Balls that collide in a bowl, against what no collision changes; and the derivative of when they do."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.dynloop.adapter import Backend

END = 3.0


@pytest.fixture(scope="module")
def bowl(story: Callable[[str], Any]) -> Any:
    return story("bowl")


def test_energy_is_kept_and_the_centre_swings_freely(bowl: Any, backend: Backend) -> None:
    position, velocity = bowl.start()
    result = backend.value(
        lambda x, v: bowl.simulate(backend.xp, x, v, checkpoints=0), *map(backend.asarray, (position, velocity))
    )
    end = result.carry
    assert int(end.collisions) == 13, "as many on every backend, and enough to lose energy by"
    np.testing.assert_allclose(float(end.time), bowl.END, rtol=1e-14)
    np.testing.assert_allclose(bowl.energy(end.position, end.velocity), bowl.energy(position, velocity), rtol=1e-12)
    centre = position.mean(0) * np.cos(bowl.END) + velocity.mean(0) * np.sin(bowl.END)
    np.testing.assert_allclose(np.asarray(end.position).mean(0), centre, rtol=0, atol=1e-12)
    bowl.check_apart(np.asarray(end.position))


def test_balls_exchange_their_velocities_where_they_meet(bowl: Any, backend: Backend) -> None:
    # From the same height on both sides they meet at the bottom, and each comes back to where it was.
    position = np.array([[-1.0, 0.0], [1.0, 0.0]])
    end = backend.value(
        lambda x: bowl.simulate(backend.xp, x, 0 * x, 1.5, checkpoints=0).carry, backend.asarray(position)
    )
    # cos t = RADIUS: they touch. What follows is the way of two balls that would pass through, with the names changed.
    meet = np.arccos(bowl.RADIUS)
    after = bowl.RADIUS * np.cos(1.5 - meet) + np.sin(meet) * np.sin(1.5 - meet)
    np.testing.assert_allclose(end.position, [[-after, 0], [after, 0]], rtol=0, atol=1e-12)
    assert int(end.collisions) == 1


def test_gradient_equals_central_differences(bowl: Any, backend: Backend) -> None:
    start = bowl.start(3)
    direction = np.random.default_rng(0).normal(size=(3, 2))
    position = backend.asarray(start[0])

    # It depends on when the balls met; the whole energy does not.
    kinetic = lambda v: (bowl.simulate(backend.xp, position, v, END).carry.velocity ** 2).sum() / 2
    slope = np.asarray(backend.grad(kinetic)(backend.asarray(start[1])))
    run = backend.run(kinetic)
    value = lambda by: float(run(backend.asarray(start[1] + by * direction)))
    difference = (8 * (value(1e-4) - value(-1e-4)) - (value(2e-4) - value(-2e-4))) / 12e-4
    np.testing.assert_allclose((slope * direction).sum(), difference, rtol=1e-7)


def test_motion_is_symplectic(bowl: Any) -> None:
    # Liouville: a derivative that took a collision for one at a fixed time would not be.
    start = jnp.stack([jnp.asarray(part) for part in bowl.start(3)]).ravel()

    def flow(state: jax.Array) -> tuple[jax.Array, jax.Array]:
        position, velocity = state.reshape(2, 3, 2)
        end = bowl.simulate(jnp, position, velocity, END).carry
        return jnp.stack([end.position, end.velocity]).ravel(), end.collisions

    slope, collisions = jax.jit(jax.jacfwd(flow, has_aux=True))(start)
    form = np.kron([[0, 1], [-1, 0]], np.eye(6))
    assert int(collisions) > 1
    np.testing.assert_allclose(slope.T @ form @ slope, form, rtol=0, atol=1e-7)


@pytest.mark.parametrize("shape", [(1, 2), (4,)])
def test_bowl_without_a_pair_is_refused(bowl: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="two balls or more"):
        bowl.simulate(jnp, jnp.zeros(shape), jnp.zeros(shape))


def test_balls_that_overlap_are_refused(bowl: Any) -> None:
    with pytest.raises(ValueError, match="two balls overlap by"):
        bowl.start(20)


def test_energies_are_printed_beside_each_other(bowl: Any, capsys: Any, tmp_path: Any) -> None:
    bowl.main([str(tmp_path / "bowl.png")])
    energies = [float(part.split()[-1]) for part in capsys.readouterr().out.split(",")]
    assert energies[0] == pytest.approx(energies[1], rel=1e-11)
    assert (tmp_path / "bowl.png").read_bytes().startswith(b"\x89PNG")
