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
from dynloop.on_torch.substitution import matters, resolved


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
        self.generators = [*generators.default_generators(), *found.generators]
        self.training = {id(x) for _, x in found.tensors if id(x) in found.is_moving and x.numel() <= SMALL}
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
        return Moment(generators.states(self.generators), {id(x): x.detach().clone() for x in self.movers})

    def settle(self) -> None:
        """After the first step: what it has not moved is taken for fixed."""
        moved = {id(x) for x, v in zip(self.movers, self.versions, strict=True) if self.has_moved(x, v)}
        # Where one statistic has moved, another one may have been left where it was by chance.
        may = self.training if moved & self.training else set()
        self.movers = [x for x in self.movers if id(x) in moved | may]

    def has_moved(self, x: Tensor, version: int) -> bool:
        """By its values too: the operation of a batch norm moves its statistics without counting it as a change."""
        return x._version != version or not torch.equal(x, self.first.moved[id(x)])

    def finish(self) -> None:
        """After the last step."""
        self.is_drawing = not generators.are_equal(self.first.drawn, generators.states(self.generators))

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
    if x.is_inference() or matters(x) or resolved(x) is not x:
        return False
    return id(x) in found.is_moving or x.numel() <= SMALL


@contextmanager
def without_autocast_cache() -> Iterator[None]:
    """A weight that is cast once for several steps would tie their graphs together."""
    before: Any = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)
