"""What steps leave behind: tensors in lists and dicts that the user's functions close over.

A step starts from a state that is cut off from the steps before it. So a tensor that it leaves outside of the loop, in
a log for instance, has the graph of this one step, and a gradient through it would lack what comes through the others.
Looking at such a tensor is fine; a gradient through it is refused.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from torch import Tensor

from dynloop.errors import DerivativeError


class Container(NamedTuple):
    """A list or a dict, what the user calls it, and how many entries it had when the loop began."""

    name: str
    held: list[Any] | dict[Any, Any]
    size: int

    def entries_since(self) -> Iterator[Any]:
        """Those that have been appended to a list, or added to a dict, which keeps their order."""
        entries = self.held.values() if isinstance(self.held, dict) else self.held
        return islice(entries, self.size, None)


def refuse_gradients(loop: str, containers: Iterable[Container]) -> None:
    """A gradient through what the steps have left there is an error."""
    for container in containers:
        for x in tensors_in(container.entries_since()):
            if x.grad_fn is not None:
                x.register_hook(refusal(loop, container.name))


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from tensors_in(value)
        elif isinstance(value, dict):
            yield from tensors_in(value.values())


def refusal(loop: str, name: str) -> Any:
    def hook(_: Tensor) -> None:
        raise DerivativeError(
            f"{loop}: a gradient goes through a tensor that body has left in {name}, which knows the step that made it "
            "and none before it; put it into the carry, or stack it as a y of dynloop.scan"
        )

    return hook
