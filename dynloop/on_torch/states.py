"""A kept state of a loop, with what was around it."""

from dataclasses import dataclass

from dynloop.on_torch.structure import Tensors
from dynloop.on_torch.surroundings import Moment, Surroundings


@dataclass(frozen=True)
class State:
    """The leaves of the carry, their versions when they were kept, and what was around them."""

    carry: Tensors
    versions: tuple[int, ...]
    moment: Moment

    @staticmethod
    def of(carry: Tensors, surroundings: Surroundings) -> "State":
        """The working state, as it is."""
        return State(carry, tuple([x._version for x in carry]), surroundings.moment())
