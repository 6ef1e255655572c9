"""What a step depends on besides its carry and what it closes over: a step that runs again finds it as it was.

That is the state of the random generators, autocast, and tensors that the step itself changes in place, such as the
statistics of a batch norm: they are part of a state, kept with it and set back with it, and after a reversal they are
what they were before it. So every real step moves them once, and a step that runs again moves nothing.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dynloop.on_torch import engine, generators
from dynloop.on_torch.searching import SMALL, Found


@dataclass(frozen=True)
class Moment:
    """The surroundings of one state.

    moved: copies of tensors that steps change in place, by the ids of those.
    """

    drawn: generators.State
    moved: dict[int, Tensor]


@dataclass(frozen=True)
class Autocast:
    """The settings of autocast, of one kind of device."""

    device_type: str
    is_on: bool
    dtype: torch.dtype


class Surroundings:
    """Those of one loop."""

    def __init__(self, found: Found) -> None:
        self.also = found.generators
        self.movers = [x for _, x in found.tensors if not x.requires_grad and may_move(found, x)]
        device_types = ["cpu", *(["cuda"] if torch.cuda.is_initialized() else [])]
        self.autocast = [
            Autocast(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in device_types
        ]
        self.versions = [x._version for x in self.movers]
        self.first = self.moment()
        # What nothing has been drawn or moved since is not to be set back.
        self.is_drawing = True

    def moment(self) -> Moment:
        return Moment(generators.states(self.also), {id(x): x.detach().clone() for x in self.movers})

    def settle(self) -> None:
        """After the first step: what it has not moved is taken for fixed."""
        self.movers = [x for x, v in zip(self.movers, self.versions, strict=True) if x._version != v]

    def finish(self) -> None:
        """After the last step."""
        self.is_drawing = not generators.are_equal(self.first.drawn, generators.states(self.also))

    def set(self, moment: Moment) -> None:
        if self.is_drawing:
            generators.set_states(moment.drawn)
        self.move(moment.moved)

    def move(self, values: dict[int, Tensor]) -> None:
        with torch.no_grad():
            for x in self.movers:
                with engine.keeping_version(x):
                    x.copy_(values[id(x)])

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Whatever happens inside leaves generators and moved tensors as they were."""
        before = self.moment()
        try:
            yield
        finally:
            generators.set_states(before.drawn)
            self.move(before.moved)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Steps run again inside."""
        with ExitStack() as stack:
            if self.is_drawing or self.movers:
                stack.enter_context(self.untouched())
            for auto in self.autocast:
                if auto.is_on or torch.is_autocast_enabled(auto.device_type):
                    stack.enter_context(
                        torch.autocast(auto.device_type, auto.dtype, enabled=auto.is_on, cache_enabled=False)
                    )
            yield


def may_move(found: Found, x: Tensor) -> bool:
    return not x.is_inference() and (id(x) in found.is_moving or x.numel() <= SMALL)


@contextmanager
def without_autocast_cache() -> Iterator[None]:
    """A weight that is cast once for several steps would tie their graphs together."""
    before: Any = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)
