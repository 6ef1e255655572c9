"""Is this an array, of which library, and what does that library offer to staged code?

A library that has not been imported cannot have made an array, so only imported ones are asked.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from dynloop import backend, debugging

Late = Callable[[], Any]


class Kind(NamedTuple):
    """What an array, or a number, is like.   is_number: its dtype gives way to that of an array."""

    shape: tuple[int, ...]
    dtype: Any
    is_number: bool

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}[{','.join(map(str, self.shape))}]"


class Traced(Protocol):
    """A function of leaves, run once on values of the kinds that it will get.

    It returns leaves, and something aside that is no array.
    """

    @property
    def aside(self) -> Any:
        """What it returned aside when it was run."""
        ...

    @property
    def kinds(self) -> list[Kind]:
        """Of what it returned."""
        ...

    @property
    def has_effects(self) -> bool: ...

    def is_constant(self, place: int) -> bool:
        """Whether a result was a number of Python."""
        ...

    def __call__(self, leaves: Sequence[Any]) -> list[Any]:
        """The leaves that the function returns for these."""
        ...


class Staging(Protocol):
    """What a backend offers to `dynloop.syntax`, beside its loops."""

    NAME: str
    """Of the library, as `backend=` calls it."""

    def is_leaf(self, value: Any) -> bool:
        """Whether a part of a pytree is an array or a number."""
        ...

    def flatten(self, value: Any) -> tuple[list[Any], list[str], Any]:
        """Parts, their paths, and the tree."""
        ...

    def unflatten(self, tree: Any, parts: Sequence[Any]) -> Any: ...

    def is_same_tree(self, one: Any, other: Any) -> bool: ...

    def kind(self, leaf: Any) -> Kind: ...

    def joined(self, number: Kind, other: Kind) -> Kind:
        """The kind of a number that meets another number, or an array."""
        ...

    def of_kind(self, leaf: Any, kind: Kind, like: Any = None) -> Any:
        """The leaf, converted; a number goes to where the array `like` is."""
        ...

    def is_eager(self, array: Any) -> bool:
        """Whether Python may ask for the values of this array while a loop runs, so that nothing is traced."""
        ...

    def random_state(self) -> Any: ...

    def restore(self, state: Any) -> None: ...

    def zeros(self, kind: Kind) -> Any: ...

    def trace(self, function: Callable[[list[Any]], tuple[list[Any], Any]], leaves: Sequence[Any]) -> Traced: ...

    def is_trying(self) -> bool:
        """Whether this code runs only to see what it gives, so that one run of a piece tells enough."""
        ...

    def cond(self, holds: Any, true: Late, false: Late, kinds: Sequence[Kind]) -> list[Any]:
        """`dynloop.cond` of two branches that return leaves of these kinds."""
        ...

    def truth(self, array: Any) -> Any:
        """Whether a scalar is not zero, as a boolean array."""
        ...

    def negation(self, truth: Any) -> Any: ...

    def junction(self, left: Any, right: Late, is_and: bool) -> Any:
        """`left and right()`, or `left or right()`, where the left one is an array."""
        ...

    def item(self, array: Any, index: Any) -> Any: ...

    def with_item(self, array: Any, index: Any, value: Any) -> Any: ...

    def index(self, start: Any, stop: Any) -> tuple[Any, Any]:
        """Both bounds as integer scalars of one dtype."""
        ...

    def numbers(self, start: int, rows: Any) -> Any:
        """start, start + 1, ...: one for each row of an array."""
        ...

    def row(self, rows: Any) -> Any:
        """Something like one row of an array."""
        ...

    def require(self, holds: Any, message: str, leaves: Sequence[Any]) -> list[Any]:
        """The leaves; an error while the program runs if `holds` is false."""
        ...


# Asked for first, since a loop of Python's asks at every turn.
_PLAIN = frozenset([bool, int, float, complex, str, type(None), list, tuple, dict, range])


def library(value: Any) -> str | None:
    """The name of the library that an array belongs to; None if it is none."""
    if type(value) in _PLAIN:
        return None
    for name, attribute in (("jax", "Array"), ("torch", "Tensor")):
        module = sys.modules.get(name)
        if module is not None and isinstance(value, getattr(module, attribute, ())):
            return name
    return None


def is_array(value: Any) -> bool:
    return library(value) is not None


def is_compiling() -> bool:
    """Whether `torch.compile` is tracing, which follows Python into this very code, and not into context variables."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()


def is_staged(value: Any) -> bool:
    """Whether what depends on this value is staged: it is an array, concrete or not, and nobody debugs."""
    return library(value) is not None and (is_compiling() or not debugging.is_on())


def staging_of(array: Any) -> Staging:
    found = library(array)
    assert found
    return backend.staging(found)
