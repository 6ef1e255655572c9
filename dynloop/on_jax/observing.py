"""How a running loop tells the host of its steps: one call for a step, whatever the number of lanes.

`watch` is a primitive without results. Under vmap it stays one call, with the lanes as leading axes,
which the host takes apart; JAX's own callbacks would become one call for each lane.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util as jtu

from dynloop.observers import Told
from dynloop.on_jax import internals

watch_p = internals.new_primitive("dynloop_watch")


@dataclass(frozen=True)
class Audience:
    """Who is told of the steps of a loop whose carry has this structure."""

    name: str
    observers: tuple[Told, ...]
    tree: Any
    paths: tuple[str, ...]

    @property
    def reads_carry(self) -> bool:
        return any(observer.reads_carry for observer in self.observers)

    def __call__(self, step: Any, is_live: Any, *leaves: Any) -> None:
        """is_live: [*lanes].   leaves: [*lanes, ...], none if nobody reads the carry."""
        is_live = np.asarray(is_live)
        for lane in zip(*np.nonzero(np.atleast_1d(is_live)), strict=True):
            one = [np.asarray(x)[lane] if is_live.ndim else np.asarray(x) for x in leaves]
            carry = jtu.tree_unflatten(self.tree, one) if self.reads_carry else None
            named = list(zip(self.paths, one, strict=True)) if self.reads_carry else []
            for observer in self.observers:
                observer.see(self.name, int(step), carry, named)


def watch(audience: Audience, step: Any, is_live: Any, leaves: Sequence[Any]) -> None:
    """Tell the audience that `step` made these leaves, if the boolean `is_live` holds."""
    read = leaves if audience.reads_carry else []
    plain = [jax.random.key_data(x) if internals.is_extended(x.dtype) else x for x in read]
    watch_p.bind(step, is_live, *plain, audience=audience)


def _meaning(step: Any, is_live: Any, *leaves: Any, audience: Audience) -> list[Any]:
    jax.debug.callback(audience, step, is_live, *leaves)
    return []


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    watch_p.bind(*primals, **params)
    return [], []


def _batch(
    axis_data: Any, args: Sequence[Any], dims: Sequence[Any], *, audience: Audience
) -> tuple[list[Any], list[Any]]:
    step, *rest = args
    assert dims[0] is None, "the lanes of a batch take their steps together"
    moved = [
        jnp.broadcast_to(x, (axis_data.size, *x.shape)) if d is None else jnp.moveaxis(x, d, 0)
        for x, d in zip(rest, dims[1:], strict=True)
    ]
    watch_p.bind(step, *moved, audience=audience)
    return [], []


watch_p.def_impl(lambda *args, **params: jax.jit(partial(_meaning, **params))(*args))
watch_p.def_effectful_abstract_eval(lambda *avals, audience: ([], internals.callback_effects()))
internals.set_lowering(watch_p, _meaning)
internals.set_jvp(watch_p, _jvp)
internals.set_batching(watch_p, _batch)
