"""dynloop on JAX: own primitives, with rules for every transformation.

Read in this order: `entry` (the public loops), `functions` and `assembly` (the user's functions, traced
and made into a loop), `structure` (loops and steps as values), `derived` (what differentiation makes of
them), `primitives` (the five, declared), then one file for each primitive's meaning and rules, `joint` (how
reverse mode takes a joint equation apart), `again` and `ordering` (a forward pass run once more, and when),
`placement` and `descent` (the schedule inside the compiled loop), `tiers` and `host_memory` (states on the
host), `batching` and `lanes` (vmap), `varying` (shard_map), `dead_code`. `guard`, `observing` and `verifying`
are what a running loop tells.
Conditionals are `branching` (the user's functions), `branches` (pairs as values), `cond` (the primitive)
and `branch_lanes` (vmap). `reporting` tells `dynloop.explain` what loops do;
`staging` is what `@dynloop.loop` asks for beside them.
"""

from dynloop.on_jax import (
    batching,
    branch_lanes,
    dead_code,
    forward,
    loop,
    reverse,
    reverse_tangent,
    staging,
    tangent,
)
from dynloop.on_jax.branching import cond
from dynloop.on_jax.entry import fori_loop, scan, while_loop
from dynloop.on_jax.reporting import explain

__all__ = [
    "batching",
    "branch_lanes",
    "cond",
    "dead_code",
    "explain",
    "forward",
    "fori_loop",
    "loop",
    "reverse",
    "reverse_tangent",
    "scan",
    "staging",
    "tangent",
    "while_loop",
]
