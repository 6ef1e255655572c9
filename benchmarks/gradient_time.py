"""CPU time and compile time of a gradient: dynloop against equinox's checkpointed while loop.

    pip install -c constraints.txt -e ".[jax]"
    python benchmarks/gradient_time.py [--repeats 15] [--only Lorenz]

Both run in one process, alternating, with the same number of slots; the figures are medians of
process CPU time, so that a busy machine changes them little, and the ratios are dynloop's time
over equinox's. Compile time is that of an ahead-of-time compilation from tracing on, the median of
seven each, alternating; whatever the libraries remember is forgotten before each, so that it
includes the time in which dynloop makes its tables.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox.internal as eqxi
import jax
import problems

import adjoint
import dynloop
from adjoint.placement import optimum
from dynloop.on_jax import placement

COMPILATIONS = 7

# What outlives a compilation: the tables of a schedule, which depend on the number of slots.
TABLES = (adjoint.store_table, adjoint.beta_table, optimum, placement._events_of_blocks)


def dynloop_loop(slots: int) -> problems.Loop:
    return partial(dynloop.while_loop, checkpoints=slots)


def equinox_loop(slots: int) -> problems.Loop:
    return partial(eqxi.while_loop, kind="checkpointed", checkpoints=slots)


def forget() -> None:
    """Empties the caches that would make a second compilation cheaper than the first."""
    jax.clear_caches()
    for table in TABLES:
        table.cache_clear()


def compiled(problem: problems.Problem, loop: problems.Loop) -> tuple[Callable[[], Any], float]:
    """The compiled gradient, and the CPU seconds that tracing and compiling took."""
    forget()
    start = time.process_time()
    gradient = jax.jit(jax.grad(lambda p, n: problem.loss(loop, n, p)))
    run = gradient.lower(problem.parameters, problem.steps).compile()
    seconds = time.process_time() - start
    return lambda: jax.block_until_ready(run(problem.parameters, problem.steps)), seconds


def measure(problem: problems.Problem, slots: int, repeats: int) -> None:
    loops = {"dynloop": dynloop_loop(slots), "equinox": equinox_loop(slots)}
    runs: dict[str, Callable[[], Any]] = {}
    compiling: dict[str, list[float]] = {name: [] for name in loops}
    running: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(COMPILATIONS):
        for name, loop in loops.items():
            runs[name], seconds = compiled(problem, loop)
            compiling[name].append(seconds)
    for run in runs.values():
        run()
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.process_time()
            run()
            running[name].append(time.process_time() - start)
    ours, theirs = (statistics.median(running[name]) for name in loops)
    ours_compile, theirs_compile = (statistics.median(compiling[name]) for name in loops)
    print(
        f"{problem.name:8} n={problem.steps:<6} s={slots:<4} "
        f"gradient {1e3 * ours:8.1f} ms / {1e3 * theirs:8.1f} ms = {ours / theirs:5.2f}   "
        f"compile {ours_compile:5.2f} s / {theirs_compile:5.2f} s = {ours_compile / theirs_compile:5.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--only", default="", help="a part of the name of the problems to run")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"{platform.processor() or platform.machine()}, jax {jax.__version__}, float64, dynloop / equinox")
    rows = [
        (problems.lorenz(), 16),
        (problems.lorenz(), 100),
        (problems.burgers(), 10),
        (problems.burgers(), 45),
        (problems.network(), 8),
        (problems.network(), 20),
    ]
    for problem, slots in rows:
        if arguments.only in problem.name:
            measure(problem, slots, arguments.repeats)


if __name__ == "__main__":
    main()
