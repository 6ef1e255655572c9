"""`python -m dynloop demo`: one loop of unknown length, its gradient, and what that costs, as a short story.

JAX is loaded when the story is told.
"""

from typing import Any

import adjoint
from adjoint.report import in_bytes
from dynloop.errors import BackendError
from dynloop.explain import explain
from dynloop.loops import while_loop

POINTS = 1000
SLOTS = 12
NUDGE = 0.05

STORY = """\
A rod is heated in the middle and cooled along its length, until its temperature stands still.
How many steps that takes depends on the power of the heater, so nobody knows it beforehand:

    rod = while_loop(moves, step, cold, checkpoints={slots})

With power {power:g} it takes {steps} steps. The rod is {value:.4f} warm then, and the next unit of
power would add {slope:.4f}. Two more runs, by finite differences, say {differences:.4f}.

A gradient goes through the steps backwards, so it needs their states, in the opposite order.
There are {steps} states of {state}, together {everything}. This one kept {slots} at once, in {kept},
and computed the others again: {evaluations} evaluations of the step, {each:.2f} for each step, where
keeping every state would take two. Had the number of steps been known, {least} would have
been the least possible for {slots} states: not knowing it cost {excess:.2%}.

Here is what it did, time across and steps down:

{picture}

And this is what dynloop.explain tells of the loop:

{report}"""


def tell() -> str:
    """The story, with the numbers of this run."""
    try:
        import jax
        import jax.numpy as jnp
    except ImportError as error:
        raise BackendError(f'the demo runs on JAX: {error}; install it with pip install "dynloop[jax]"') from error

    place = jnp.linspace(-1, 1, POINTS, dtype=jnp.float32)
    heater = jnp.exp(-8 * place**2)

    def heated(rod: Any, power: Any) -> Any:
        """One step: heat flows to the neighbours, comes from the heater, and is radiated off."""
        around = 0.25 * (jnp.roll(rod, 1) - 2 * rod + jnp.roll(rod, -1))
        return rod + around + 0.01 * (power * heater - rod**4 - 0.5 * rod)

    def warmth(power: Any) -> Any:
        moves = lambda c: jnp.max(jnp.abs(c[1] - c[0])) > 1e-5
        step = lambda c: (c[1], heated(c[1], power))
        cold = jnp.zeros(POINTS, jnp.float32)
        return jnp.mean(while_loop(moves, step, (cold, heated(cold, power)), checkpoints=SLOTS)[1])

    power = jnp.float32(1.5)
    value, slope = jax.value_and_grad(warmth)(power)
    run = jax.jit(warmth)
    differences = (run(power + NUDGE) - run(power - NUDGE)) / (2 * NUDGE)
    report = explain(jax.grad(warmth))(power)
    loop = report.loops[0]
    return STORY.format(
        power=power,
        steps=loop.steps,
        value=value,
        slope=slope,
        differences=differences,
        slots=loop.slots,
        state=in_bytes(loop.state_bytes),
        everything=in_bytes(loop.steps * loop.state_bytes),
        kept=in_bytes(loop.buffer_bytes),
        evaluations=loop.executed,
        each=loop.executed / loop.steps,
        least=loop.least,
        excess=loop.ratio - 1,
        picture=adjoint.draw(adjoint.Online(loop.slots), loop.longest),
        report=report,
    )
