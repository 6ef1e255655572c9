"""What `@dynloop.loop` refuses at once, because a staged loop could not mean what Python means by it.

Each refusal has file, line and column, and says what to write instead. What matters only if a loop is
staged is told then, and not here (`restrictions`).
"""

import ast
import linecache
from typing import NoReturn

from dynloop.errors import LoopSyntaxError
from dynloop.syntax.names import COMPREHENSIONS, FUNCTIONS, HIDDEN, assigned, parameters, walk_scope

JUMPS = (ast.Return, ast.Break, ast.Continue)
LOOPS = (ast.While, ast.For)
TRIES = (ast.Try, ast.TryStar)

_REFUSED: dict[type[ast.AST], str] = {
    ast.Yield: "generators are not supported; collect the values, and return them",
    ast.YieldFrom: "generators are not supported; collect the values, and return them",
    ast.Await: "async functions are not supported; await around the function",
    ast.AsyncFor: "async functions are not supported; await around the function",
    ast.AsyncWith: "async functions are not supported; await around the function",
    ast.Global: "'global' is not supported: a staged loop cannot write outside of the function; return the value",
    ast.Nonlocal: "'nonlocal' is not supported: a staged loop cannot write outside of the function; return the value",
    ast.Match: "'match' is not supported; write if/elif",
    ast.NamedExpr: "':=' is not supported; assign on a line of its own",
}


def check(function: ast.FunctionDef, filename: str) -> None:
    """Raises for the first thing in a function that cannot be rewritten."""
    inner: list[ast.AST] = []
    nodes = sorted(walk_scope(*function.body), key=lambda node: getattr(node, "lineno", 0))
    for node in nodes:
        _check_node(node, filename)
        if isinstance(node, FUNCTIONS):
            inner += [found for found in ast.walk(node) if isinstance(found, ast.Nonlocal)]
    for argument in parameters(function.args):
        _check_name(function, argument, filename)
    own = parameters(function.args) | (assigned(*function.body) if inner else set())
    for node in inner:
        for name in node.names if isinstance(node, ast.Nonlocal) else ():
            if name in own:
                message = f"'nonlocal {name}' is not supported; return the value from the inner function"
                refuse(node, message, filename)


def _check_node(node: ast.AST, filename: str) -> None:
    if isinstance(node, ast.Name):
        _check_name(node, node.id, filename)
    elif type(node) in _REFUSED:
        refuse(node, _REFUSED[type(node)], filename)
    elif isinstance(node, COMPREHENSIONS):
        for inside in ast.walk(node):
            if isinstance(inside, ast.NamedExpr | ast.Await) or getattr(inside, "is_async", 0):
                refuse(node, _REFUSED[ast.NamedExpr if isinstance(inside, ast.NamedExpr) else ast.Await], filename)
    elif isinstance(node, (*TRIES, ast.With)):
        for jump in crossing_jumps(node):
            name, word = type(jump).__name__.lower(), "with" if isinstance(node, ast.With) else "try"
            way_out = "set a variable in the block, and jump after it"
            refuse(jump, f"{name!r} inside of {word!r} is not supported; {way_out}", filename)


def _check_name(node: ast.AST, name: str, filename: str) -> None:
    if name.startswith(HIDDEN):
        refuse(node, f"the name {name!r} is reserved for rewritten code; give it another one", filename)


def crossing_jumps(block: ast.AST) -> list[ast.AST]:
    """Jumps that leave a block: returns, and those breaks and continues whose loop is around it."""
    found: list[ast.AST] = []
    for child in ast.iter_child_nodes(block):
        if isinstance(child, JUMPS):
            found.append(child)
        elif isinstance(child, LOOPS):
            inner = [jump for part in child.body for jump in _jumps_of(part)]
            found += [jump for jump in inner if isinstance(jump, ast.Return)]
            found += [jump for part in child.orelse for jump in _jumps_of(part)]
        elif isinstance(child, ast.stmt | ast.ExceptHandler) and not isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            found += crossing_jumps(child)
    return found


def _jumps_of(statement: ast.stmt) -> list[ast.AST]:
    return crossing_jumps(ast.Module([statement], []))


def refuse(node: ast.AST, message: str, filename: str) -> NoReturn:
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    text = linecache.getline(filename, line)
    # Columns of the tree count bytes; those of an error count characters.
    column = len(text.encode()[:column].decode(errors="ignore")) + 1
    raise LoopSyntaxError(f"@dynloop.loop: {message}", (filename, line, column, text))
