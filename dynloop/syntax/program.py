"""A function's statements as a structured program: no break, continue or return is left in it.

Where they stood there are flags (`jumps`). Each statement knows which names it may assign, which it
surely assigns, and which it reads before it assigns them (`liveness`); from that follows what a loop
carries. A `Jump` keeps the statement that it stands for, since code that is not staged simply jumps.
"""

import ast
from dataclasses import dataclass, field

from dynloop.syntax.names import NONE

Names = frozenset[str]


@dataclass(eq=False)
class Statement:
    """node: what the user wrote, or what stands where he wrote it.

    writes: names that it may assign.   kills: names that it surely assigns.   reads: names read before that.
    after: names whose value matters after it.
    """

    node: ast.stmt
    writes: Names = field(default=NONE, kw_only=True)
    kills: Names = field(default=NONE, kw_only=True)
    reads: Names = field(default=NONE, kw_only=True)
    after: Names = field(default=NONE, kw_only=True)


Block = list[Statement]


@dataclass(eq=False)
class Simple(Statement):
    """A statement without blocks, or one whose blocks are left as they are, such as a nested function."""


@dataclass(eq=False)
class Jump(Statement):
    """A break, continue or return.

    sets: the flags, and the value, that stand for it in staged code.   noted: those flags that code which is not
    staged sets too, before it jumps.
    """

    sets: list[ast.Assign]
    noted: list[ast.Assign]


@dataclass(eq=False)
class Branch(Statement):
    """An `if`."""

    number: int
    test: ast.expr
    body: Block
    orelse: Block


@dataclass(eq=False)
class Loop(Statement):
    """A `while`, which has a test, or a `for`, which has a target and what it runs through.

    flag: the name that says whether a jump has left the loop; None where no jump does.
    """

    number: int
    body: Block
    flag: str | None
    test: ast.expr | None = None
    target: ast.expr | None = None
    items: ast.expr | None = None


@dataclass(eq=False)
class Nest(Statement):
    """A `with` or a `try`.   blocks: what is in it, by the field of the node; handlers by their place."""

    blocks: dict[str, Block]
    handlers: list[Block]


def nested(statement: Statement) -> list[Block]:
    """The blocks of a statement."""
    if isinstance(statement, Branch):
        return [statement.body, statement.orelse]
    if isinstance(statement, Loop):
        return [statement.body]
    if isinstance(statement, Nest):
        return [*statement.blocks.values(), *statement.handlers]
    return []
