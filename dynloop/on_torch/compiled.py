"""Loops inside `torch.compile`: refused."""

from typing import Any

from dynloop.errors import BackendError
from dynloop.on_torch.structure import Loop, Outcome, Tensors


def run(loop: Loop, carry: Tensors, xs: Tensors, count: Any) -> Outcome:
    """See `structure.Run`."""
    raise BackendError(
        f"{loop.name}: a loop of dynloop does not run inside torch.compile; call it outside, or put "
        "torch.compiler.disable around the function that calls it"
    )
