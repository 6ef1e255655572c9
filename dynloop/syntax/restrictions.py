"""What is fine in a Python loop and wrong in a staged one: found while rewriting, told if it comes to staging.

A staged piece is traced once and may be run any number of times, so what it changes outside of its own
names would change once: attributes, items of what is no name, a list that grows. A function made
before the loop keeps reading the names of the function, not those that the loop carries.
"""

import ast
from collections.abc import Callable
from dataclasses import dataclass

from dynloop.syntax.names import FUNCTIONS, captured, walk_scope
from dynloop.syntax.site import Limit, Limits

CHANGING = {"append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "add", "discard", "update"}
CHANGING |= {"setdefault", "popitem", "appendleft", "extendleft", "popleft"}
"""Methods that change a list, a set, a dict or a deque."""


@dataclass(frozen=True)
class Restrictions:
    """What a function has of it, each with the node that it is found at, and a word for its kind."""

    found: list[tuple[ast.AST, str, Limit]]

    def within(self, statement: ast.stmt, writes: frozenset[str]) -> Limits:
        """What is wrong with staging this statement, which may assign these names."""
        refused: list[Limit] = []
        once: list[Limit] = []
        for node, kind, limit in self.found if not isinstance(statement, ast.Assert) else ():
            is_inside = _contains(statement, node)
            if kind == "print" and is_inside:
                once.append(limit)
            elif kind == "write" and is_inside:
                refused.append(limit)
            elif kind == "raise" and isinstance(statement, ast.If) and node in (*statement.body, *statement.orelse):
                # The branches of an `if` are traced both, whatever the condition.
                refused.append(limit)
            elif kind == "change" and is_inside and limit.name not in writes:
                refused.append(limit)
            elif kind == "capture" and not is_inside and limit.name in writes and _is_before(node, statement):
                refused.append(limit._replace(name=""))
        return Limits(tuple(refused), tuple(once))


def _contains(statement: ast.stmt, node: ast.AST) -> bool:
    first, last = (statement.lineno, statement.col_offset), (statement.end_lineno, statement.end_col_offset)
    at = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
    # The rest of a block that stands under a flag begins where its first statement does.
    last = (last[0] or 0, last[1] or 0)
    rest = statement.body[-1] if isinstance(statement, ast.If) else statement
    return first <= at <= max(last, (rest.end_lineno or 0, rest.end_col_offset or 0))


def _is_before(node: ast.AST, statement: ast.stmt) -> bool:
    return getattr(node, "lineno", 0) < statement.lineno


def restrictions(function: ast.FunctionDef, where: Callable[[ast.AST], str]) -> Restrictions:
    found: list[tuple[ast.AST, str, Limit]] = []
    for node in walk_scope(*function.body):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            if isinstance(node.ctx, ast.Del):
                limit = Limit(where(node), f"deletes '{ast.unparse(node)}'; use a local variable")
                found.append((node, "write", limit))
            elif not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)):
                limit = Limit(where(node), f"assigns to '{ast.unparse(node)}'; use a local variable")
                found.append((node, "write", limit))
        elif isinstance(node, ast.Raise):
            found.append((node, "raise", Limit(where(node), "raises, and a compiled program cannot; use 'assert'")))
        elif isinstance(node, ast.Call):
            found += _call(node, where)
        elif isinstance(node, FUNCTIONS):
            for name in sorted(captured(node)):
                what = f"reads {name!r} in a function that is made before; pass it as an argument"
                found.append((node, "capture", Limit(where(node), what, name)))
    return Restrictions(found)


def _call(node: ast.Call, where: Callable[[ast.AST], str]) -> list[tuple[ast.AST, str, Limit]]:
    function = node.func
    if isinstance(function, ast.Name) and function.id == "print":
        return [(node, "print", Limit(where(node), "calls 'print'"))]
    if isinstance(function, ast.Name) and function.id == "super" and not node.args:
        return [(node, "write", Limit(where(node), "calls 'super()'; call it before, or write super(Class, self)"))]
    if isinstance(function, ast.Attribute) and function.attr in CHANGING and isinstance(function.value, ast.Name):
        name = function.value.id
        what = f"calls '{name}.{function.attr}'; use a local variable, or an array"
        return [(node, "change", Limit(where(node), what, name))]
    return []
