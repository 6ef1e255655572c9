"""What a step depends on besides its carry and what it closes over: a step that runs again finds it as it was.

That is the state of the random generators, autocast, and tensors that the step itself changes in place, such as the
statistics of a batch norm: they are part of a state, kept with it and set back with it, and after a reversal they are
what they were before it. So every real step moves them once, and a step that runs again moves nothing. The same holds
for what Python binds to the names that a step reads (`places`).
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dynloop.errors import BackendError, DerivativeError
from dynloop.on_torch import engine, generators, places
from dynloop.on_torch.searching import SMALL, Found
from dynloop.on_torch.substitution import Witness, matters, resolved


@dataclass(frozen=True)
class Moment:
    """The surroundings of one state.

    moved: copies of tensors that steps change in place, by the ids of those.   bound: what places hold that steps bind
    anew, by their numbers.
    """

    drawn: generators.State
    moved: dict[int, Tensor]
    bound: dict[int, Any]


@dataclass(frozen=True)
class Autocast:
    """The settings of autocast, of one kind of device."""

    device_type: str
    is_on: bool
    dtype: torch.dtype


class Surroundings:
    """Those of one loop."""

    def __init__(self, found: Found) -> None:
        self.tensors = found.tensors
        self.after: dict[int, tuple[str, Tensor, int]] = {}
        self.generators = [*generators.default_generators(), *found.generators]
        self.training = {id(x) for _, x in found.tensors if id(x) in found.is_moving and x.numel() <= SMALL}
        self.candidates = [(n, x) for n, x in found.tensors if not x.requires_grad and may_move(found, x)]
        self.movers = [x for _, x in self.candidates]
        device_types = ["cpu", *(["cuda"] if torch.cuda.is_initialized() else [])]
        self.autocast = [
            Autocast(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in device_types
        ]
        self.dtype = torch.get_default_dtype()
        self.versions = [x._version for x in self.movers]
        self.places = found.places
        self.binding = list(range(len(self.places)))
        self.first = self.moment()
        # What nothing has been drawn or moved since is not to be set back.
        self.is_drawing = True
        # Why steps cannot be run again, if they cannot.
        self.trouble: str | None = None
        self.is_settled = False

    def moment(self) -> Moment:
        return Moment(
            generators.states(self.generators),
            {id(x): x.detach().clone() for x in self.movers},
            {at: self.places[at].get() for at in self.binding},
        )

    def settle(self) -> None:
        """After the first step: what it has not moved is taken for fixed."""
        self.is_settled = True
        moved = {id(x) for x, v in zip(self.movers, self.versions, strict=True) if self.has_moved(x, v)}
        # Where one statistic has moved, another one may have been left where it was by chance.
        may = self.training if moved & self.training else set()
        self.movers = [x for x in self.movers if id(x) in moved | may]
        self.binding = [at for at in self.binding if self.is_bound_anew(at)]

    def is_bound_anew(self, at: int) -> bool:
        return not places.is_same(self.places[at].get(), self.first.bound[at])

    def has_moved(self, x: Tensor, version: int) -> bool:
        """By its values too: the operation of a batch norm moves its statistics without counting it as a change."""
        return x._version != version or not torch.equal(x, self.first.moved[id(x)])

    def finish(self) -> None:
        """After the last step."""
        if not self.is_settled:
            self.settle()
        self.after = {id(x): (n, x, x._version) for n, x in self.tensors if not x.is_inference()}
        for x in self.movers:
            self.after.pop(id(x), None)
        self.is_drawing = not generators.are_equal(self.first.drawn, generators.states(self.generators))
        settled, binding = {id(x) for x in self.movers}, set(self.binding)
        several = zip(self.candidates, self.versions, strict=True)
        late = [n for (n, x), v in several if id(x) not in settled and self.has_moved_late(x, v)]
        late += [place.name for at, place in enumerate(self.places) if at not in binding and self.is_bound_anew(at)]
        reached = [self.places[at].name for at in self.binding if places.is_reached(self.places[at].get())]
        if late:
            self.trouble = (
                f"body or cond changes {', '.join(late)}, though not in the first step, so its steps cannot be run "
                "again for a gradient; put that into the carry"
            )
        elif reached:
            self.trouble = (
                f"body or cond keeps a tensor that a gradient may reach in {', '.join(reached)}, from one step to "
                "another; put that into the carry, or detach() it"
            )

    def has_moved_late(self, x: Tensor, version: int) -> bool:
        if x._version != version:
            return True
        first = self.first.moved[id(x)]
        return not torch.equal(x, first) and not bool(((x == first) | ((x != x) & (first != first))).all())

    @property
    def is_moving(self) -> bool:
        """Whether a condition is to be asked again with the steps, for what it may draw or move."""
        return self.is_drawing or bool(self.movers) or bool(self.binding)

    def set(self, moment: Moment) -> None:
        if self.is_drawing:
            generators.set_states(moment.drawn)
        self.move(moment.moved)
        self.bind(moment.bound)

    def move(self, values: dict[int, Tensor]) -> None:
        with torch.no_grad():
            for x in self.movers:
                with engine.keeping_version(x):
                    x.copy_(values[id(x)])

    def bind(self, values: dict[int, Any]) -> None:
        places.fill([self.places[at] for at in self.binding], [values[at] for at in self.binding])

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Whatever happens inside leaves generators and moved tensors as they were."""
        before = self.moment()
        try:
            yield
        finally:
            generators.set_states(before.drawn)
            self.move(before.moved)
            self.bind(before.bound)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Raises where a step inside reads a tensor that was changed in place since the loop ran."""
        suspects = {key: name for key, (name, x, version) in self.after.items() if x._version != version}
        with Witness() if suspects else nullcontext() as witness:
            try:
                yield
            finally:
                # Ahead of whatever else went wrong by it.
                for key in suspects.keys() & (witness.seen.keys() if witness is not None else set()):
                    raise RuntimeError(
                        f"{suspects[key]} was changed in place after the loop ran and before its gradient was taken, "
                        "so its steps cannot be run again as they were; change it after the gradient"
                    )

    @contextmanager
    def again(self) -> Iterator[None]:
        """Steps run again inside."""
        with ExitStack() as stack:
            if self.trouble:
                raise DerivativeError(self.trouble)
            stack.enter_context(self.unchanged())
            stack.enter_context(places.holding(self.places, [*self.first.bound.values()]))
            if self.is_drawing or self.movers:
                stack.enter_context(self.untouched())
            if torch.get_default_dtype() is not self.dtype:
                stack.enter_context(default_dtype(self.dtype))
            for auto in self.autocast:
                if auto.is_on or torch.is_autocast_enabled(auto.device_type):
                    stack.enter_context(
                        torch.autocast(auto.device_type, auto.dtype, enabled=auto.is_on, cache_enabled=False)
                    )
            yield


def check_devices(name: str, xs: Iterable[Tensor]) -> None:
    """The random numbers of these devices can be drawn again."""
    other = {x.device.type for x in xs} - {"cpu", "cuda", "meta"}
    if other:
        raise BackendError(
            f"{name}: a loop that keeps states for a gradient runs on CPUs and on GPUs of CUDA, where it can repeat "
            f"random numbers; {', '.join(sorted(other))} is neither. Run it under torch.no_grad() or in dynloop.debug()"
        )


def may_move(found: Found, x: Tensor) -> bool:
    if x.layout is not torch.strided or x.is_inference() or matters(x) or resolved(x) is not x:
        return False
    return id(x) in found.is_moving or x.numel() <= SMALL


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def without_autocast_cache() -> Iterator[None]:
    """A weight that is cast once for several steps would tie their graphs together."""
    before: Any = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)
