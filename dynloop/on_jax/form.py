"""Forms of loops: what `while_loop`, `fori_loop` and `scan` have in common, and what they differ in."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jax import tree_util as jtu

from dynloop.checkpoints import Storage
from dynloop.errors import ArgumentTypeError, described
from dynloop.observers import Observer


@dataclass(frozen=True)
class Form:
    """What kind of loop it is.

    name: the public function.   labels: what it calls the condition and the body.
    stops: the condition says when to stop, not when to go on.
    has_index: body takes the index first.   xs: the tree of what body takes, row by row, after the carry.
    has_count: the number of steps is given, if not the least of two.   has_ys: body returns a pair (carry, y).
    """

    name: str
    labels: tuple[str, str]
    stops: bool = False
    has_index: bool = False
    has_count: bool = False
    xs: Any = None
    has_ys: bool = False

    def call(self, body: Any, extra: Sequence[Any], carry: Any) -> Any:
        if self.has_index:
            return body(extra[0], carry)
        return body(carry, jtu.tree_unflatten(self.xs, extra)) if self.has_ys else body(carry)

    def pair(self, out: Any) -> tuple[Any, Any]:
        """What body returned, as (carry, y)."""
        if isinstance(out, tuple | list) and len(out) == 2:
            return out[0], out[1]
        raise ArgumentTypeError(
            f"{self.name}: {self.labels[1]} must return a pair, the carry and what is stacked (None for nothing); "
            f"got {described(out)}"
        )


@dataclass(frozen=True)
class Setting:
    """What a loop is run with, apart from its functions and its carry.

    length: how many rows stacked values have.   is_backward: they are read from the last to the first.
    sync: axes of the mesh whose devices go on together.   observers: who watches.
    """

    storage: Storage
    length: int = 0
    is_backward: bool = False
    sync: tuple[str, ...] = ()
    observers: tuple[Observer, ...] = ()
