"""A loop that records each evaluation of its body while a compiled gradient runs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import dynloop


class Evaluation(NamedTuple):
    """One run of the body: the step's index, and whether it was taped for its adjoint."""

    step: int
    is_taped: bool


@dataclass(frozen=True)
class Recorder:
    """`note(i, x)` is the identity on x, and records an evaluation of step i when it runs."""

    seen: list[Evaluation] = field(default_factory=list)

    def note(self, i: jax.Array, x: jax.Array) -> jax.Array:
        @jax.custom_vjp
        def noted(i: jax.Array, x: jax.Array) -> jax.Array:
            return self.ask(self.evaluated, i, x)

        def forward(i: jax.Array, x: jax.Array) -> tuple[jax.Array, Any]:
            y = noted(i, x)
            return y, (i, y)

        def backward(residuals: Any, ct: jax.Array) -> tuple[None, jax.Array]:
            i, y = residuals
            # It needs what the evaluation returned, so it runs after that and before any other.
            return None, ct + 0 * self.ask(self.taped, i, y)

        noted.defvjp(forward, backward)
        return noted(i, x)

    def evaluated(self, step: int) -> None:
        self.seen.append(Evaluation(step, is_taped=False))

    def taped(self, step: int) -> None:
        """The adjoint of the evaluation before."""
        assert self.seen[-1] == Evaluation(step, is_taped=False)
        self.seen[-1] = Evaluation(step, is_taped=True)

    def ask(self, what: Callable[[int], None], i: jax.Array, x: jax.Array) -> jax.Array:
        def callback(i: np.ndarray, x: np.ndarray) -> np.ndarray:
            what(int(i))
            return np.asarray(x)

        # Each step needs the value that the callback returns, so the callbacks run in the steps' order.
        return jax.pure_callback(callback, jax.ShapeDtypeStruct(x.shape, x.dtype), i, x)


@dataclass(frozen=True)
class CountedGradient:
    """The compiled gradient of a loop of n steps, n being an argument: calling it gives what it evaluated, in order."""

    run: Callable[[Any, Any], Any]
    recorder: Recorder

    def __call__(self, steps: int) -> list[Evaluation]:
        self.recorder.seen.clear()
        gradient = float(self.run(jnp.asarray(START), jnp.asarray(steps, jnp.int32)))
        jax.effects_barrier()
        assert math.isclose(gradient, expected_gradient(steps), rel_tol=1e-12)
        return list(self.recorder.seen)


START = 0.7


def expected_gradient(steps: int) -> float:
    """The product of the derivatives of y -> sin(y) / 2 + 0.1 along the way."""
    y, product = START, 1.0
    for _ in range(steps):
        y, product = 0.5 * math.sin(y) + 0.1, product * 0.5 * math.cos(y)
    return product


def counted_gradient(**options: Any) -> CountedGradient:
    """Compiles the gradient of the counted loop with these options of `dynloop.while_loop`."""

    def run(step: Step, x: Any, n: Any) -> Any:
        start = (jnp.asarray(0, jnp.int32), x)
        return dynloop.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, step(*c)), start, **options)[1]

    return _counted(run)


def counted_gradient_of_fori_loop(**options: Any) -> CountedGradient:
    """The same, of `dynloop.fori_loop`."""
    return _counted(lambda step, x, n: dynloop.fori_loop(0, n, step, x, **options))


def counted_gradient_of_scan(length: int, *, stops: bool, **options: Any) -> CountedGradient:
    """The same, of `dynloop.scan`; with `stops`, a number of steps up to `length`, else of all of them."""

    def run(step: Step, x: Any, n: Any) -> Any:
        def scanned(c: Any, row: Any) -> Any:
            y = step(*c)
            return (c[0] + 1, y), row

        until = (lambda c: c[0] >= n) if stops else None
        rows = jnp.zeros(length)
        return dynloop.scan(scanned, (jnp.asarray(0, jnp.int32), x), rows, until=until, **options)[0][1]

    return _counted(run)


Step = Callable[[Any, Any], Any]


def _counted(run: Callable[[Step, Any, Any], Any]) -> CountedGradient:
    """run: takes the step, a function of its index and the state, the first state and the number of steps."""
    recorder = Recorder()

    def step(i: Any, y: Any) -> Any:
        # Not linear: the derivative of a step needs its evaluation.
        return 0.5 * jnp.sin(recorder.note(i, y)) + 0.1

    return CountedGradient(jax.jit(jax.grad(lambda x, n: run(step, x, n))), recorder)
