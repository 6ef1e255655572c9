"""Gradients at full optimisation without fused multiply-add, printed bit by bit.

`python -m tests.on_jax.bits` prints, as JSON, for each loop and each `checkpoints` the gradient's bytes in hexadecimal,
and how far it is from the unrolled loop's. It sets XLA's flags itself, so it runs in a process of its own.
"""

import json
import os
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":
    # Fused multiply-add rounds once where two operations round twice; AVX without AVX2 has none.
    os.environ["XLA_FLAGS"] = "--xla_cpu_max_isa=AVX"
    os.environ["JAX_ENABLE_X64"] = "1"

import jax
import jax.numpy as jnp
import numpy as np

import dynloop

CHECKPOINTS = [1, 2, 3, 7, "auto", "all"]
STEPS = 57


def unrolled(body: Callable[[Any], Any], carry: Any) -> Any:
    for _ in range(STEPS):
        carry = body(carry)
    return carry


def looped(checkpoints: Any) -> Callable[..., Any]:
    def loop(body: Callable[[Any], Any], carry: Any) -> Any:
        options = {"checkpoints": checkpoints, "max_steps": 64}
        start = (jnp.asarray(0, jnp.int32), carry)
        return dynloop.while_loop(lambda c: c[0] < STEPS, lambda c: (c[0] + 1, body(c[1])), start, **options)[1]

    return loop


def lorenz(loop: Any) -> Callable[..., Any]:
    """Lorenz' equations by Euler steps: products and sums, where fusing would show."""

    def f(x: Any, p: Any) -> Any:
        def body(s: Any) -> Any:
            x, y, z = s
            return x + 0.01 * p[0] * (y - x), y + 0.01 * (x * (p[1] - z) - y), z + 0.01 * (x * y - p[2] * z)

        return sum(loop(body, (x[0], x[1], x[2])))

    return f


def network(loop: Any) -> Callable[..., Any]:
    """A small residual network with shared weights."""

    def f(x: Any, p: Any) -> Any:
        w = jnp.outer(p, p) * 0.003

        def body(h: Any) -> Any:
            return h + 0.1 * jnp.tanh(w @ h)

        return jnp.sum(loop(body, x) ** 2)

    return f


LOOPS = {"lorenz": lorenz, "network": network}
X, P = np.array([1.0, 2.0, 20.0]), np.array([10.0, 28.0, 8.0 / 3.0])


def flat_gradient(f: Callable[..., Any], run: Callable[..., Any]) -> np.ndarray:
    return np.concatenate(jax.device_get(run(jax.grad(f, (0, 1)))(X, P)))


def measure() -> dict[str, dict[str, tuple[str, float]]]:
    found: dict[str, dict[str, tuple[str, float]]] = {}
    for name, make in LOOPS.items():
        # Op by op: XLA takes minutes to fuse so long a chain of scalars.
        oracle = flat_gradient(make(unrolled), lambda f: f)
        found[name] = {}
        for checkpoints in CHECKPOINTS:
            gradient = flat_gradient(make(looped(checkpoints)), jax.jit)
            error = float(np.max(np.abs(gradient - oracle)) / np.max(np.abs(oracle)))
            found[name][str(checkpoints)] = (gradient.tobytes().hex(), error)
    return found


if __name__ == "__main__":
    print(json.dumps(measure()))
