"""Which outputs of a function a transformation touches: asked of JAX itself.

A probe is an identity bound on each output. Its JVP rule runs only if JAX holds that output's
tangent to be nonzero, and records a hit: JAX's own symbolic-zero answer, through `jit`, `scan`
and custom rules, with no walk over jaxprs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from dynloop.on_jax import internals
from dynloop.on_jax.flat import Mask, pick
from dynloop.on_jax.traced import Traced, remembered, tangent_avals, with_active

probe_p = internals.Primitive("dynloop_probe")
probe_p.def_abstract_eval(lambda aval, **_: aval)
probe_p.def_impl(lambda x, **_: x)
internals.set_lowering(probe_p, lambda x, **_: [x])


@dataclass(eq=False)
class Hits:
    """Positions seen by probes; compared by identity, since it is a primitive's parameter."""

    positions: set[int] = field(default_factory=set)


def _record_tangent(primals: Sequence[Any], tangents: Sequence[Any], *, hits: Hits, position: int) -> tuple[Any, Any]:
    hits.positions.add(position)
    return primals[0], tangents[0]


internals.set_jvp(probe_p, _record_tangent)


@remembered
def perturbed_outputs(function: Traced, mask: Mask) -> Mask:
    """Outputs that have a tangent when the masked inputs have one."""
    hits = Hits()

    def probed(*args: Any) -> list[Any]:
        return [probe_p.bind(x, hits=hits, position=i) for i, x in enumerate(function(*args))]

    def run(*flat: Any) -> list[Any]:
        args, tangents = flat[: len(mask)], flat[len(mask) :]
        out = jax.jvp(with_active(probed, mask, args), pick(args, mask), list(tangents))[1]
        return [t for t in out if t.dtype != jax.dtypes.float0]

    if any(mask):
        jax.make_jaxpr(run)(*function.inputs, *tangent_avals(pick(function.inputs, mask)))
    return tuple(i in hits.positions for i in range(len(function.outputs)))


def differs_between_lanes(x: Any) -> bool:
    """Is `x` batched, by a `vmap` that is being traced? One outside of a `jax.jit` is not seen from within."""
    hits = Hits()
    probe_p.bind(x, hits=hits, position=0)
    return bool(hits.positions)
