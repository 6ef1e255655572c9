"""Generators of random numbers: their states, read and set, so that a step that runs again draws what it drew.

The generators are those that random operations take by default, one for the CPU and one for each GPU that has been
used, and those that the user's functions close over.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

State = list[tuple[torch.Generator, Tensor]]


def default_generators() -> list[torch.Generator]:
    gpus = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    return [torch.default_generator, *gpus]


def states(of: Sequence[torch.Generator]) -> State:
    return [(generator, generator.get_state()) for generator in of]


def set_states(given: State) -> None:
    for generator, state in given:
        generator.set_state(state)


def are_equal(one: State, other: State) -> bool:
    """Whether nothing was drawn in between."""
    return len(one) == len(other) and all(torch.equal(a, b) for (_, a), (_, b) in zip(one, other, strict=True))
