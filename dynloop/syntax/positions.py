"""Positions of nodes in the file: those of the user's statements, which generated ones take over.

What the user wrote has positions already, all the way down, so only nodes that are made here are looked
at when the missing ones are filled in.
"""

import ast
from typing import TypeVar

T = TypeVar("T", bound=ast.AST)

_MADE = "is_made_here"


def at(place: ast.AST, node: T) -> T:
    """A node made here, at the position of another one."""
    known = vars(place)
    vars(node).update(
        lineno=known["lineno"],
        col_offset=known["col_offset"],
        end_lineno=known["end_lineno"],
        end_col_offset=known["end_col_offset"],
    )
    return made(node)


def made(node: T) -> T:
    """Mark a node that has a position as one whose parts may lack theirs."""
    vars(node)[_MADE] = True
    return node


def fill(root: ast.AST) -> None:
    """Give every node without a position that of the node around it."""
    pending: list[tuple[ast.AST, int, int]] = [(root, 1, 0)]
    while pending:
        node, line, column = pending.pop()
        own = vars(node)
        if "lineno" in own:
            # What several nodes share has its position since the first visit.
            if _MADE not in own:
                continue
            line, column = own["lineno"], own["col_offset"]
        elif node._attributes:
            own["lineno"], own["col_offset"] = line, column
        for field in node._fields:
            value = own.get(field)
            if isinstance(value, list):
                pending += [(part, line, column) for part in value if isinstance(part, ast.AST)]
            elif isinstance(value, ast.AST) and value._fields:  # the others, such as `ast.Load()`, have no position
                pending.append((value, line, column))
