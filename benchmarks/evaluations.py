"""How often a gradient evaluates the step: counted while it runs, predicted, and the least possible.

    pip install -c constraints.txt -e ".[jax]"
    python benchmarks/evaluations.py

dynloop and equinox differentiate one loop of n steps in s slots. The step counts its evaluations
through a callback that its derivative depends on, so that no taped evaluation is optimised away.
The least possible is P(n + 1, s) + n, for a reversal that knows n (Griewank & Walther 2000).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np

import adjoint
import dynloop

# Steps and slots: those of `gradient_time.py`, and where the third sweep begins: with 45 slots two sweeps suffice for
# beta(45, 2) = 1081 steps, and a split reversal of n steps is a chain of n + 1.
CASES = [(1000, 10), (1000, 45), (1080, 45), (1081, 45), (10_000, 16), (10_000, 100), (200, 8), (200, 20)]


def counted(loop: Callable[..., Any], steps: int) -> int:
    """The evaluations of the step in one gradient."""
    calls = 0

    def count(i: Any) -> Any:
        nonlocal calls
        calls += 1
        return np.float32(1)

    @jax.custom_jvp
    def one(i: Any) -> Any:
        return jax.pure_callback(count, jax.ShapeDtypeStruct((), jnp.float32), i)

    one.defjvp(lambda primals, tangents: (one(*primals), jnp.zeros(())))

    def value(x: Any) -> Any:
        def body(carry: Any) -> Any:
            i, y = carry
            return i + 1, jnp.sin(y) * one(i)

        return loop(lambda carry: carry[0] < steps, body, (jnp.int32(0), x))[1]

    jax.block_until_ready(jax.jit(jax.grad(value))(jnp.float32(1)))
    return calls


def main() -> None:
    print(f"jax {jax.__version__}; evaluations of the step in one gradient")
    print(f"{'n':>6} {'s':>4} {'dynloop':>8} {'predicted':>10} {'equinox':>8} {'least':>7}")
    for steps, slots in CASES:
        ours = counted(partial(dynloop.while_loop, checkpoints=slots), steps)
        theirs = counted(partial(eqxi.while_loop, kind="checkpointed", checkpoints=slots), steps)
        predicted = adjoint.Online(slots).cost(steps).evaluations
        least = adjoint.advances(steps + 1, slots) + steps
        print(f"{steps:6} {slots:4} {ours:8} {predicted:10} {theirs:8} {least:7}", flush=True)


if __name__ == "__main__":
    main()
