"""dynloop on JAX: own primitives, with rules for every transformation.

Read in this order: `functions` (the user's functions, traced), `structure` (loops and steps as values),
`derived` (what differentiation makes of them), `primitives` (the five, declared), then one file for each
primitive's meaning and rules, `joint` (how reverse mode takes a joint equation apart), `placement` and
`descent` (the schedule inside the compiled loop), `batching` and `lanes` (vmap).
"""

from dynloop.on_jax import batching, forward, loop, reverse, reverse_tangent, tangent
from dynloop.on_jax.entry import fori_loop, scan, while_loop

__all__ = [
    "batching",
    "forward",
    "fori_loop",
    "loop",
    "reverse",
    "reverse_tangent",
    "scan",
    "tangent",
    "while_loop",
]
