"""`@dynloop.loop`, and `dynloop.source`, which shows what it made."""

import ast
import copy
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from dynloop.errors import ArgumentTypeError
from dynloop.syntax.rewriting import Rewritten, build, rewrite
from dynloop.syntax.session import checked

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE = "__dynloop__"


def loop(function: Any = None, **options: Any) -> Any:
    if function is None:
        return lambda function: loop(function, **options)
    checked("loop", options)
    if not isinstance(function, FunctionType) or hasattr(function, "__wrapped__"):
        raise ArgumentTypeError(
            f"@dynloop.loop must be closest to 'def'; it got {type(function).__name__} {function!r}"
        )
    rewritten = rewrite(function)
    new = build(function, rewritten, options)
    setattr(new, _ATTRIBUTE, rewritten)
    return new


def source(function: Callable[..., Any]) -> str:
    rewritten: Rewritten = getattr(function, _ATTRIBUTE)
    tree = copy.copy(rewritten.tree)
    tree.decorator_list = []
    return "\n\n".join(ast.unparse(node) for node in (*rewritten.pieces.values(), tree))
