"""CPU time of a gradient through a Diffrax solve: dynloop's TreeverseAdjoint against Diffrax's own adjoint.

    pip install -c constraints.txt -e ".[diffrax]"
    python benchmarks/diffrax_gradient_time.py [--repeats 9] [--only Lotka]

Both run in one process, alternating, with the same number of checkpoints and the same `max_steps`; the figures are
medians of process CPU time, and the ratios are dynloop's time over Diffrax's. Compile time is that of one
ahead-of-time compilation each, from tracing on. Diffrax's documents show problems of these three kinds.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp

from dynloop.integrations.diffrax import TreeverseAdjoint

CHECKPOINTS = 16
Loss = Callable[[Any, diffrax.AbstractAdjoint], tuple[jax.Array, jax.Array]]


@dataclass(frozen=True)
class Problem:
    """loss(parameters, adjoint) is differentiated with respect to `parameters`; it also tells the steps taken."""

    name: str
    parameters: Any
    loss: Loss


def ended(solution: diffrax.Solution) -> tuple[jax.Array, jax.Array]:
    assert solution.ys is not None
    return jnp.sum(jnp.asarray(solution.ys) ** 2), solution.stats["num_steps"]


def lotka() -> Problem:
    """Hares and lynxes over fifty years, saved at a hundred times."""

    def loss(rates: jax.Array, adjoint: diffrax.AbstractAdjoint) -> tuple[jax.Array, jax.Array]:
        field = lambda t, y, r: jnp.stack([(r[0] - r[1] * y[1]) * y[0], (r[2] * y[0] - r[3]) * y[1]])
        return ended(
            diffrax.diffeqsolve(
                *(diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, 50.0, 0.1, jnp.array([30.0, 4.0]), rates),
                saveat=diffrax.SaveAt(ts=jnp.linspace(0, 50, 100)),
                stepsize_controller=diffrax.PIDController(rtol=1e-8, atol=1e-8),
                adjoint=adjoint,
            )
        )

    return Problem("Lotka", jnp.array([0.55, 0.028, 0.024, 0.80]), loss)


def neural(batch: int = 64, width: int = 64) -> Problem:
    """A batch of sixteen numbers each through a network as the field, saved at twenty times."""
    network = eqx.nn.MLP(16, 16, width, 2, activation=jax.nn.softplus, key=jax.random.key(0))
    weights, static = eqx.partition(network, eqx.is_array)
    start = jax.random.normal(jax.random.key(1), (batch, 16))

    def loss(weights: Any, adjoint: diffrax.AbstractAdjoint) -> tuple[jax.Array, jax.Array]:
        through = jax.vmap(eqx.combine(weights, static))
        field = lambda t, y, _: jnp.tanh(through(y) - y) * 3 * jnp.cos(3 * t)
        return ended(
            diffrax.diffeqsolve(
                *(diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, 10.0, 0.05, start),
                saveat=diffrax.SaveAt(ts=jnp.linspace(0, 10, 20)),
                stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-6),
                adjoint=adjoint,
            )
        )

    return Problem("neural", weights, loss)


def robertson() -> Problem:
    """Robertson's reactions to time 1e4, by an implicit method."""

    def loss(rates: jax.Array, adjoint: diffrax.AbstractAdjoint) -> tuple[jax.Array, jax.Array]:
        def field(t: Any, y: jax.Array, k: jax.Array) -> jax.Array:
            slow, quick, back = k[0] * y[0], k[1] * y[1] ** 2, k[2] * y[1] * y[2]
            return jnp.stack([back - slow, slow - quick - back, quick])

        return ended(
            diffrax.diffeqsolve(
                *(diffrax.ODETerm(field), diffrax.Kvaerno5(), 0.0, 1e4, 2e-4, jnp.array([1.0, 0.0, 0.0]), rates),
                stepsize_controller=diffrax.PIDController(rtol=1e-8, atol=1e-8),
                adjoint=adjoint,
            )
        )

    return Problem("stiff", jnp.array([0.04, 3e7, 1e4]), loss)


def compiled(problem: Problem, adjoint: diffrax.AbstractAdjoint) -> tuple[Callable[[], Any], float]:
    """The compiled gradient, and the CPU seconds that tracing and compiling took."""
    start = time.process_time()
    gradient = jax.jit(jax.value_and_grad(lambda p: problem.loss(p, adjoint), has_aux=True))
    run = gradient.lower(problem.parameters).compile()
    return lambda: jax.block_until_ready(run(problem.parameters)), time.process_time() - start


def furthest(ours: Any, theirs: Any) -> float:
    """The largest difference between two gradients, of each leaf relative to its largest entry."""
    apart = jax.tree.map(lambda a, b: float(jnp.max(abs(a - b)) / jnp.max(abs(b))), ours, theirs)
    return max(jax.tree.leaves(apart))


def measure(problem: Problem, repeats: int) -> None:
    adjoints = {
        "dynloop": TreeverseAdjoint(CHECKPOINTS),
        "diffrax": diffrax.RecursiveCheckpointAdjoint(checkpoints=CHECKPOINTS),
    }
    made = {name: compiled(problem, adjoint) for name, adjoint in adjoints.items()}
    found = {name: run() for name, (run, _) in made.items()}
    running: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(repeats):
        for name, (run, _) in made.items():
            start = time.process_time()
            run()
            running[name].append(time.process_time() - start)
    ours, theirs = (1e3 * statistics.median(running[name]) for name in adjoints)
    ours_compile, theirs_compile = (made[name][1] for name in adjoints)
    steps = int(found["dynloop"][0][1])
    print(
        f"{problem.name:7} n={steps:<5} gradient {ours:8.1f} ms / {theirs:8.1f} ms = {ours / theirs:4.2f}   "
        f"apart {furthest(found['dynloop'][1], found['diffrax'][1]):.0e}   "
        f"compile {ours_compile:5.2f} s / {theirs_compile:5.2f} s = {ours_compile / theirs_compile:4.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", default="", help="a part of the name of the problems to run")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    machine = platform.processor() or platform.machine()
    versions = f"jax {jax.__version__}, diffrax {diffrax.__version__}"
    print(f"{machine}, {versions}, float64, {CHECKPOINTS} checkpoints, dynloop / diffrax")
    for problem in (lotka(), neural(), robertson()):
        if arguments.only in problem.name:
            measure(problem, arguments.repeats)


if __name__ == "__main__":
    main()
