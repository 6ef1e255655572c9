"""Claims about `dynloop.Progress`: the bar follows the real steps of the lane that has taken most."""

import io
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import dynloop


def doubled(progress: dynloop.Progress) -> Any:
    return lambda x: dynloop.while_loop(lambda y: y < 100, lambda y: 2 * y, x, checkpoints=1, observe=progress)


def last_line(written: io.StringIO) -> str:
    return written.getvalue().replace("\r", "\n").strip().splitlines()[-1].strip()


def test_the_bar_ends_with_the_number_of_real_steps():
    written = io.StringIO()
    with dynloop.Progress(total=7, description="doubling", file=written) as progress:
        jax.jit(jax.grad(doubled(progress)))(jnp.float32(1))
    assert progress.steps == 7
    assert "doubling: 100%" in last_line(written)
    assert "7/7" in last_line(written)


def test_the_lane_with_most_steps_moves_the_bar():
    written = io.StringIO()
    with dynloop.Progress(file=written) as progress:
        jax.vmap(doubled(progress))(jnp.asarray([60.0, 1.0, 200.0]))
    assert progress.steps == 7
    assert last_line(written).startswith("7 steps")


def test_another_run_begins_another_bar():
    written = io.StringIO()
    with dynloop.Progress(file=written) as progress:
        for start in (1.0, 30.0):
            jax.block_until_ready(doubled(progress)(jnp.float32(start)))
            jax.effects_barrier()
    assert progress.steps == 2
    shown = [line.rpartition("\r")[2].split()[0] for line in written.getvalue().split("\n") if line.strip()]
    assert shown == ["7", "2"]


@pytest.mark.parametrize("is_progress", [True, False])
def test_only_an_observer_that_reads_the_carry_brings_it_to_the_host(is_progress: bool):
    watch = dynloop.Progress(file=io.StringIO()) if is_progress else dynloop.on_step(lambda i, c: None)
    loop = lambda x: dynloop.while_loop(lambda y: y[0] < 100, lambda y: 2 * y, x, observe=watch)
    text = jax.jit(loop).lower(jnp.ones(5)).as_text()
    (call,) = [line for line in text.splitlines() if "callback" in line and "custom_call" in line]
    assert ("tensor<5xf" in call) is not is_progress


@pytest.mark.parametrize(("total", "error"), [(0, ValueError), (2.5, TypeError), (True, TypeError)])
def test_a_total_that_counts_no_steps_is_refused(total: Any, error: type[Exception]):
    with pytest.raises(error, match="Progress: total must be"):
        dynloop.Progress(total)
