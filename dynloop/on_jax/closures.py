"""What a Python function reads besides its arguments, as a key for caches.

Tracing a function again at every call is slow, and keeping the first trace is wrong if a variable
that the function reads has been assigned since. So a trace is kept for a function *and* for the
objects it reads: closed-over variables, defaults, and globals, through the functions it calls by
name. Objects are compared by identity; one changed in place (an item of a list, an attribute) is
not noticed, as with `jax.jit`.
"""

from types import CodeType, FunctionType
from typing import Any


def is_plain(function: Any) -> bool:
    """Only plain functions can be compared by what they read."""
    return isinstance(function, FunctionType)


def values_read(function: FunctionType) -> tuple[Any, ...]:
    """The objects that the function, and the functions it reads, look up; in a fixed order."""
    seen: dict[int, Any] = {}
    waiting = [function]
    while waiting:
        current = waiting.pop()
        names = _names(current.__code__)
        found = [current.__globals__[n] for n in names if n in current.__globals__]
        found += [_content(cell) for cell in current.__closure__ or ()]
        found += [*(current.__defaults__ or ()), *(current.__kwdefaults__ or {}).values()]
        for value in found:
            if id(value) not in seen:
                seen[id(value)] = value
                if isinstance(value, FunctionType):
                    waiting.append(value)
    return tuple(seen.values())


def _names(code: CodeType) -> list[str]:
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names += _names(constant)
    return names


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


class Identities:
    """A tuple of objects that is equal to another if both hold the very same objects.

    It keeps them alive, so no later object can take one's identity.
    """

    def __init__(self, values: tuple[Any, ...]):
        self.values = values
        self.ids = tuple(map(id, values))

    def __hash__(self) -> int:
        return hash(self.ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identities) and self.ids == other.ids
