"""How `dynloop.explain` learns what loops do: while a listener listens, every loop that runs tells it."""

from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

import adjoint
from dynloop import report
from dynloop.errors import ArgumentError
from dynloop.on_torch import engine
from dynloop.on_torch.structure import Loop
from dynloop.report import Report, Site

# Tells of one run, or of one reversal, that it took so many steps.
Tell = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Listener:
    """What has been told: for each site, how many runs took how many steps."""

    forward: dict[Site, Counter[int]] = field(default_factory=dict)
    reversed: dict[Site, Counter[int]] = field(default_factory=dict)


_LISTENER: ContextVar[Listener | None] = ContextVar("dynloop.listener", default=None)


def is_listening() -> bool:
    return _LISTENER.get() is not None


def count_run(loop: Loop, schedule: adjoint.Schedule | None, state_bytes: int, steps: int) -> Tell | None:
    """Counts a run of so many steps, if somebody listens; gives what counts its reversals.

    schedule: what its gradient follows; None where it keeps no state.   state_bytes: of what it starts from.
    """
    listener = _LISTENER.get()
    if listener is None:
        return None
    layout = None if loop.storage.is_forward_only else loop.storage.layout(state_bytes)
    site = Site(
        loop.name,
        loop.storage.where,
        layout,
        has_gradient=not loop.storage.is_forward_only,
        is_known=False,
        has_tangents=False,
        lanes=1,
        state_bytes=state_bytes,
        buffer_bytes=state_bytes * (layout.slots + layout.leaf) if layout else 0,
        follows=schedule,
    )
    listener.forward.setdefault(site, Counter())[steps] += 1
    return partial(_add, listener.reversed.setdefault(site, Counter()))


def _add(runs: Counter[int], steps: int) -> None:
    runs[steps] += 1


def refuse_transformations() -> None:
    """A loop inside of a transformation of `torch.func` is run and reversed in ways that no site tells of."""
    if is_listening():
        raise ArgumentError(
            "explain: a loop runs inside of a transformation of torch.func, of which there is no report; take the "
            "gradient by torch.autograd.grad or .backward()"
        )


def explain(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Report:
    """See `dynloop.explain`."""
    if torch.compiler.is_compiling() or engine.is_transforming():
        raise ArgumentError("explain: inside of torch.compile and of torch.func nothing runs yet; call it outside")
    listener = Listener()
    token = _LISTENER.set(listener)
    try:
        fn(*args, **kwargs)
    finally:
        _LISTENER.reset(token)
    return report.report_of(listener.forward, listener.reversed)
