"""From a function to the syntax tree of its `def`, with the line numbers of the file that it stands in.

The lines come from `linecache`, which also knows the cells of a notebook and the examples of a
docstring. Only the function's own block is parsed, since a file may be long and hold many of them.
"""

import ast
import inspect
import linecache
from itertools import pairwise
from types import FunctionType

from dynloop.errors import ArgumentTypeError, LoopSyntaxError


def definition(function: FunctionType) -> ast.FunctionDef:
    """The `def` of a function, in a tree of its own."""
    name, filename, first = function.__name__, function.__code__.co_filename, function.__code__.co_firstlineno
    if function.__code__.co_name == "<lambda>":
        raise ArgumentTypeError("@dynloop.loop cannot rewrite a lambda, which has no statements; write a 'def'")
    if function.__code__.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        message = "@dynloop.loop: async functions are not supported; await around the function"
        raise LoopSyntaxError(message, (filename, first, 1, linecache.getline(filename, first)))
    lines = linecache.getlines(filename, function.__globals__)
    if len(lines) < first:
        raise LoopSyntaxError(
            f"@dynloop.loop: the source of {name!r} is not available ({filename}); put it in a file or a notebook cell",
            (filename, first, 1, None),
        )
    found = _parsed(_block(lines, first), first) or _parsed(inspect.getblock(lines[first - 1 :]), first)
    if found is None or found.name != function.__code__.co_name:
        raise LoopSyntaxError(
            f"@dynloop.loop: no 'def {name}' at {filename}:{first}; has the file changed since it was imported?",
            (filename, first, 1, lines[first - 1]),
        )
    return found


def _block(lines: list[str], first: int) -> list[str]:
    """The lines of a `def`, by their indentation.

    A string or a parenthesis that reaches further to the left cuts it short, which makes it no Python; then the lines
    are looked at more closely, and slowly.
    """
    indentation = _indentation(lines[first - 1])
    is_inside = False
    for place, line in enumerate(lines[first - 1 :], first - 1):
        text = line.strip()
        if is_inside and text and not text.startswith("#") and _indentation(line) <= indentation:
            return lines[first - 1 : place]
        is_inside = is_inside or text.startswith("def ")
    return lines[first - 1 :]


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _parsed(block: list[str], first: int) -> ast.FunctionDef | None:
    is_indented = block[0][:1].isspace()
    # A block that is indented stands in another one, so that columns stay what they are, and lines too.
    above = "\n" * (first - 2) + "if True:\n" if is_indented else "\n" * (first - 1)
    try:
        tree = ast.parse(above + "".join(block))
    except SyntaxError:
        return None
    found = tree.body[0].body[0] if is_indented and isinstance(tree.body[0], ast.If) else tree.body[0]
    return found if isinstance(found, ast.FunctionDef) else None


def enclosing_class(function: FunctionType) -> str | None:
    """The innermost class around a function's `def`, by which Python mangles names such as `self.__x`."""
    parts = function.__qualname__.split(".")
    classes = [name for name, after in pairwise(parts) if "<locals>" not in (name, after)]
    return classes[-1] if classes else None
