"""What `@dynloop.loop` refuses at once, because a staged loop could not mean what Python means by it.

Each refusal has file, line and column, and says what to write instead. What matters only if a loop is
staged is told then, and not here (`restrictions`).
"""

import ast
import linecache
from typing import NoReturn

from dynloop.errors import LoopSyntaxError
from dynloop.syntax.names import FUNCTIONS, HIDDEN, assigned, parameters, walk_scope

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
    for statement in function.body:
        for node in walk_scope(statement):
            _check_node(node, filename)
    _check_names(function, filename)


def _check_node(node: ast.AST, filename: str) -> None:
    if type(node) in _REFUSED:
        refuse(node, _REFUSED[type(node)], filename)
    if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
        for inside in ast.walk(node):
            if isinstance(inside, ast.NamedExpr | ast.Await) or getattr(inside, "is_async", 0):
                refuse(node, _REFUSED[ast.NamedExpr if isinstance(inside, ast.NamedExpr) else ast.Await], filename)
    for blocks, word in ((TRIES, "try"), ((ast.With,), "with")):
        if isinstance(node, blocks):
            for jump in crossing_jumps(node):
                name = type(jump).__name__.lower()
                way_out = "set a variable in the block, and jump after it"
                refuse(jump, f"{name!r} inside of {word!r} is not supported; {way_out}", filename)


def _check_names(function: ast.FunctionDef, filename: str) -> None:
    own = parameters(function.args) | assigned(*function.body)
    for node in walk_scope(*function.body):
        for inside in ast.walk(node) if isinstance(node, FUNCTIONS) else ():
            if isinstance(inside, ast.Nonlocal) and own & set(inside.names):
                name = sorted(own & set(inside.names))[0]
                refuse(inside, f"'nonlocal {name}' is not supported; return the value from the inner function", filename)
    for node in ast.walk(function):
        name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ""
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
