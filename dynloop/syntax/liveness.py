"""Which names matter where: a loop carries those that it assigns and that are live where it begins an iteration.

In a structured program each statement maps the names that are live after it to
`reads | (after - kills)` (Aho, Lam, Sethi and Ullman 2006, section 9.2.5). Both sets are computed once
for each statement, from the inside outwards, and those after each statement in one pass back; a loop
needs no iteration, since one round of it kills nothing for sure.
"""

import ast
from collections.abc import Sequence

from dynloop.syntax.names import NONE, assigned, bound, captured, read
from dynloop.syntax.program import Block, Branch, Jump, Loop, Names, Nest, Simple, Statement, nested


def annotate(program: Block, after: Names) -> None:
    """Fill in what every statement writes, kills and reads, and what is live after it."""
    late = NONE.union(*(_captured(statement) for statement in program))
    for statement in program:
        _summarise(statement)
    _pass_back(program, after | late, late)


def live_before(block: Block, after: Names) -> Names:
    for statement in reversed(block):
        after = statement.reads | (after - statement.kills)
    return after


def live_at_head(loop: Loop) -> Names:
    """What is live where an iteration begins, or the loop ends."""
    own = read(loop.test) if loop.test else set()
    flag = {loop.flag} if loop.flag else set()
    target = bound(loop.target) if loop.target else set()
    return loop.after | own | flag | (live_before(loop.body, NONE) - target)


def written(*blocks: Block) -> Names:
    return NONE.union(*(statement.writes for block in blocks for statement in block))


def carried(loop: Loop) -> Names:
    """The names that go from one iteration to the next, or out of the loop."""
    return loop.writes & live_at_head(loop)


def _captured(statement: Statement) -> set[str]:
    """What functions inside read whenever they are called: it is always live."""
    if isinstance(statement, Simple):
        return captured(statement.node)
    found: set[str] = set()
    if isinstance(statement, Jump):
        found |= captured(*statement.sets)
    elif isinstance(statement, Branch):
        found |= captured(statement.test)
    elif isinstance(statement, Loop):
        found |= captured(*(e for e in (statement.test, statement.items) if e))
    elif isinstance(statement, Nest) and isinstance(statement.node, ast.With):
        found |= captured(*statement.node.items)
    return found.union(*(_captured(inner) for block in nested(statement) for inner in block))


def _summarise(statement: Statement) -> None:
    for block in nested(statement):
        for inner in block:
            _summarise(inner)
    if isinstance(statement, Simple):
        statement.writes, statement.kills, statement.reads = _simple(statement.node)
    elif isinstance(statement, Jump):
        statement.writes, statement.kills, statement.reads = _sequence([_simple(node) for node in statement.sets])
    elif isinstance(statement, Branch):
        both = [_block(block) for block in (statement.body, statement.orelse)]
        statement.writes = both[0][0] | both[1][0]
        statement.kills = both[0][1] & both[1][1]
        statement.reads = frozenset(read(statement.test)) | both[0][2] | both[1][2]
    elif isinstance(statement, Loop):
        target = frozenset(bound(statement.target)) if statement.target else NONE
        statement.writes = written(statement.body) | target
        first = read(*(e for e in (statement.test, statement.items) if e))
        flag = {statement.flag} if statement.flag else set()
        statement.reads = _block(statement.body)[2] - target | first | flag
    elif isinstance(statement, Nest):
        _summarise_nest(statement)


def _summarise_nest(statement: Nest) -> None:
    node = statement.node
    statement.writes = written(*nested(statement))
    if isinstance(node, ast.With):
        names, inside = frozenset(bound(*node.items)), _block(statement.blocks["body"])
        statement.writes |= names
        statement.kills = names | inside[1]
        statement.reads = frozenset(read(*node.items)) | (inside[2] - names)
    else:
        # An exception may leave the block anywhere: nothing is surely assigned.
        names = {handler.name for handler in getattr(node, "handlers", []) if handler.name}
        statement.writes |= names
        statement.reads = frozenset(read(node))


Summary = tuple[Names, Names, Names]


def _simple(node: ast.stmt) -> Summary:
    """What one statement writes, surely assigns, and reads before."""
    reads = read(node) | (assigned(node) - bound(node))
    return frozenset(assigned(node)), frozenset(bound(node)), frozenset(reads)


def _block(block: Block) -> Summary:
    return _sequence([(s.writes, s.kills, s.reads) for s in block])


def _sequence(parts: Sequence[Summary]) -> Summary:
    writes, kills, reads = NONE, NONE, NONE
    for part in parts:
        reads |= part[2] - kills
        writes |= part[0]
        kills |= part[1]
    return writes, kills, reads


def _pass_back(block: Block, after: Names, late: Names) -> None:
    for statement in reversed(block):
        statement.after = after
        if isinstance(statement, Branch):
            _pass_back(statement.body, after, late)
            _pass_back(statement.orelse, after, late)
        elif isinstance(statement, Loop):
            _pass_back(statement.body, live_at_head(statement) | late, late)
        elif isinstance(statement, Nest):
            # A handler may run after any statement of the block.
            inside = after if isinstance(statement.node, ast.With) else after | statement.reads
            for inner in nested(statement):
                _pass_back(inner, inside, late)
        after = statement.reads | (after - statement.kills) | late
