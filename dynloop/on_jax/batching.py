"""vmap of a loop is refused until lanes that finish early are handled right.

Masking a finished lane after the step still evaluates the body on a state whose condition is false,
where it may divide by zero, and a gradient then is 0 * inf. A refusal is better than such a number.
"""

from typing import Any, NoReturn

from dynloop.errors import BatchingError
from dynloop.on_jax import internals
from dynloop.on_jax.primitives import forward_p, loop_p, reverse_p, reverse_tangent_p, tangent_p


def refuse(axis_data: Any, args: Any, dims: Any, **params: Any) -> NoReturn:
    raise BatchingError(
        "while_loop: jax.vmap of a loop is not supported, nor are jax.jacfwd, jax.jacrev and jax.hessian. "
        "Use jax.lax.map over the lanes, or carry a batch and let cond be True while any member needs a step."
    )


for _primitive in (loop_p, forward_p, tangent_p, reverse_p, reverse_tangent_p):
    internals.set_batching(_primitive, refuse)
