"""Truth values of staged code: and, or, not, comparisons in a chain, and the choice between two expressions."""

import operator
from collections.abc import Callable
from typing import Any

from dynloop.syntax.arrays import Late, is_staged, staging_of
from dynloop.syntax.staged_branches import choose

_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "is": operator.is_,
    "is not": operator.is_not,
    "in": lambda a, b: a in b,
    "not in": lambda a, b: a not in b,
}


def not_(value: Any) -> Any:
    if not is_staged(value):
        return not value
    staging = staging_of(value)
    return staging.negation(staging.truth(value))


def and_(left: Any, right: Late) -> Any:
    """`left and right()`; both are evaluated if the left one is traced."""
    return staging_of(left).junction(left, right, True) if is_staged(left) else left and right()


def or_(left: Any, right: Late) -> Any:
    """`left or right()`; both are evaluated if the left one is traced."""
    return staging_of(left).junction(left, right, False) if is_staged(left) else left or right()


def goes_on(has_left: Any, test: Late) -> Any:
    """The condition of a loop that a jump has left, perhaps."""
    return and_(not_(has_left), test)


def chain(left: Any, *links: Any) -> Any:
    """`left < a < b`, given as `left, "<", lambda: a, "<", lambda: b`."""
    holds: Any = True
    for symbol, late in zip(links[::2], links[1::2], strict=True):
        if not is_staged(holds) and not holds:
            return holds
        right = late()
        found = _COMPARED[symbol](left, right)
        holds, left = _both(holds, found), right
    return holds


def _both(holds: Any, found: Any) -> Any:
    return and_(holds, lambda: found)


def choice(test: Any, then: Late, otherwise: Late, where: str) -> Any:
    """`then() if test else otherwise()`."""
    if is_staged(test) and not staging_of(test).is_eager(test):
        return choose(staging_of(test), where, test, then, otherwise)
    return then() if test else otherwise()
