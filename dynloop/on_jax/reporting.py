"""How `dynloop.explain` learns what loops do: while a listener listens, each loop's program tells it of its runs.

A loop's meaning in JAX operations is traced when a program is lowered. A function to explain is compiled anew with a
listener listening, so that every loop in it, inside of other loops and of `jax.jit` too, is given one more call
of the host, at its end. Nothing of that stays in a program that is compiled at another time.
"""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import jax
import numpy as np
from jax import tree_util as jtu

from dynloop import report
from dynloop.checkpoints import Layout
from dynloop.errors import ArgumentError, DynloopError
from dynloop.on_jax import internals
from dynloop.on_jax.derived import joint_loop, joint_masks, swept_loop
from dynloop.on_jax.flat import Mask, pick
from dynloop.on_jax.structure import Loop
from dynloop.on_jax.tiers import Buffers, Way
from dynloop.on_jax.traced import Traced, with_active
from dynloop.report import Report, Site

Direction = Literal["forward", "reversed"]


@dataclass(frozen=True, eq=False)
class Listener:
    """What has been told: for each site, how many runs took how many steps, and the bytes that went each way."""

    forward: dict[Site, Counter[int]] = field(default_factory=dict)
    reversed: dict[Site, Counter[int]] = field(default_factory=dict)
    moved: dict[Site, Counter[str]] = field(default_factory=dict)

    def hear(self, site: Site, direction: Direction, steps: Any) -> None:
        """steps: of each lane."""
        runs = self.forward if direction == "forward" else self.reversed
        runs.setdefault(site, Counter())[int(np.max(steps, initial=0))] += 1

    def hear_of_move(self, site: Site, way: Way, size: int) -> None:
        """size: of a row, in bytes, the lanes included."""
        self.moved.setdefault(site, Counter())[way] += size


_LISTENER: ContextVar[Listener | None] = ContextVar("dynloop.listener", default=None)


def is_on() -> bool:
    """Is a program being lowered, or run, for somebody who listens?"""
    return _LISTENER.get() is not None


def tell(loop: Loop, direction: Direction, steps: Any) -> None:
    """In a loop's meaning: let its program tell that it took these steps, if somebody listens.

    steps: int32, of the loop or of each lane; a number that a later run must not decide again.
    """
    listener = _LISTENER.get()
    if listener is not None:
        site = site_of(loop)
        # A site whose program never comes to it is one that never ran.
        listener.forward.setdefault(site, Counter())
        jax.debug.callback(partial(listener.hear, site, direction), steps)


def buffers_of(loop: Loop) -> Buffers:
    """The loop's buffers; if somebody listens, its program tells of each row that goes to the host or comes back."""
    listener = _LISTENER.get()
    if listener is None or not loop.layout.host:
        return loop.buffers
    site = site_of(loop)

    def told(way: Way, size: int) -> None:
        jax.debug.callback(partial(listener.hear_of_move, site, way, size))

    return replace(loop.buffers, told=told)


def site_of(loop: Loop) -> Site:
    has_gradient = not loop.storage.is_forward_only
    kept = differentiated(loop) if has_gradient and loop.kept is None else loop
    layout: Layout | None = kept.layout if has_gradient and any(kept.is_kept) else None
    return Site(
        loop.storage.name,
        loop.storage.where,
        layout,
        has_gradient,
        is_known=loop.count is not None,
        has_tangents=loop.split is not None,
        lanes=math.prod(loop.lanes),
        state_bytes=kept.state_bytes or 0,
        buffer_bytes=sum(a.size * a.dtype.itemsize for a in kept.buffer_avals) if layout else 0,
    )


def differentiated(loop: Loop) -> Loop:
    """The loop as a gradient by everything it reads would store it: of a loop that runs without a gradient.

    What has no derivative keeps nothing, and is told as if all of it were kept.
    """
    has_tangent = tuple(map(internals.has_tangent, loop.body.inputs))
    if not has_derivative(loop.body, has_tangent):
        return loop
    masks = joint_masks(loop, has_tangent[: loop.constants], has_tangent[loop.constants :])
    return swept_loop(joint_loop(loop, masks))


def has_derivative(body: Traced, mask: Mask) -> bool:
    """Whether JAX can reverse the body. It has no other way to tell than to do so, by its rules and the user's."""

    def pulled(*args: Any) -> Any:
        moving = lambda *active: [
            y for y in with_active(body, mask, args)(*active) if internals.has_tangent(jax.typeof(y))
        ]
        out, pull = jax.vjp(moving, *pick(args, mask))
        return pull(out)

    try:
        Traced(pulled, body.inputs)
    # A primitive without a rule, a callback, a custom rule that refuses; nothing of our own planning runs in here.
    except (NotImplementedError, TypeError, ValueError, DynloopError):
        return False
    return True


def explain(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Report:
    """See `dynloop.explain`."""
    leaves, tree = jtu.tree_flatten((args, kwargs))
    traced = {i: x for i, x in enumerate(leaves) if isinstance(x, jax.Array | np.ndarray)}
    refuse_tracers(list(traced.values()))

    def run(traced: dict[int, Any]) -> list[Any]:
        args, kwargs = jtu.tree_unflatten(tree, [traced.get(i, x) for i, x in enumerate(leaves)])
        out = called(fn, args, kwargs)
        # Whoever waits for the effects of a program waits for the end of one that has any.
        jax.debug.callback(lambda: None)
        return [x for x in jtu.tree_leaves(out) if isinstance(x, jax.Array | np.ndarray)]

    listener = Listener()
    with listening(listener):
        out = jax.jit(run)(traced)
    refuse_tracers(out)
    jax.block_until_ready(out)
    jax.effects_barrier()
    return report.report_of(listener.forward, listener.reversed, listener.moved)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def called(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return fn(*args, **kwargs)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        error.add_note(
            "explain: the function is compiled as by jax.jit, so none of its own Python may look at an array's value; "
            "explain the part of it that computes, or pass what it decides on as a Python number"
        )
        raise


def refuse_tracers(values: list[Any]) -> None:
    if any(isinstance(x, internals.Tracer) for x in values):
        raise ArgumentError(
            "explain: it runs the function and counts, and inside of jax.jit, jax.grad or jax.vmap nothing runs yet; "
            "call it outside, as in dynloop.explain(jax.jit(f))(x)"
        )
