"""break, continue, return and the `else` of a loop, told by flags.

`if c: <jump>` followed by more moves the rest of the block into the other branch. A jump that a
branch makes on some of its paths only sets a flag, and the rest of the block stands under
`if not flag`. A loop has two flags: one that ends the iteration, and one that ends the loop. A
function has one, beside the value that it returns (Böhm and Jacopini 1966).
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

from dynloop.syntax.names import HAS_RETURNED, HIDDEN, RETURNED, loads
from dynloop.syntax.positions import at
from dynloop.syntax.program import Block, Branch, Jump, Loop, Nest, Simple, Statement, nested

JUMPS = (ast.Return, ast.Break, ast.Continue)
LOOPS = (ast.While, ast.For)
SKIP, BREAK = f"{HIDDEN}_skip", f"{HIDDEN}_break"
FLAGS = (SKIP, BREAK, HAS_RETURNED)

T = TypeVar("T", bound=ast.AST)


def without_jumps(statements: Sequence[ast.stmt]) -> Block:
    """The program of a function's body; in staged code every path of it that returns assigns `RETURNED`."""
    body = list(statements)
    if "return" in _jumps(body) and not _ends(body):
        body.append(at(body[-1], ast.Return(ast.Constant(None))))
    program = [*_set([HAS_RETURNED], False, body[0]), *_Remover().block(body, None)]
    read = set(_read_flags(program))
    return _without_idle_flags(program, read)


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _not(flag: str, place: ast.stmt) -> ast.expr:
    return _start(place, ast.UnaryOp(ast.Not(), _start(place, _name(flag))))


def _start(place: ast.stmt, node: T) -> T:
    """The node at the beginning of a statement."""
    node = at(place, node)
    vars(node).update(end_lineno=place.lineno, end_col_offset=place.col_offset + 1)
    return node


def _set(flags: Sequence[str], value: bool, place: ast.stmt) -> Block:
    return [Simple(_assign(flag, ast.Constant(value), place)) for flag in flags]


def _assign(name: str, value: ast.expr, place: ast.stmt) -> ast.Assign:
    return at(place, ast.Assign([ast.Name(name, ast.Store())], value))


def _jumps(statements: Sequence[ast.stmt]) -> set[str]:
    """Which jumps a block makes out of itself: "return", or "jump" for break and continue."""
    found: set[str] = set()
    for statement in statements:
        if isinstance(statement, ast.Return):
            found.add("return")
        elif isinstance(statement, ast.Break | ast.Continue):
            found.add("jump")
        elif isinstance(statement, ast.If):
            found |= _jumps([*statement.body, *statement.orelse])
        elif isinstance(statement, LOOPS):
            found |= (_jumps(statement.body) & {"return"}) | _jumps(statement.orelse)
    return found


def _breaks(statements: Sequence[ast.stmt]) -> bool:
    """Whether a break or a return leaves the loop of which these are the body."""
    for statement in statements:
        if isinstance(statement, ast.Return | ast.Break):
            return True
        if isinstance(statement, ast.If) and _breaks([*statement.body, *statement.orelse]):
            return True
        if isinstance(statement, LOOPS) and ("return" in _jumps(statement.body) or _breaks(statement.orelse)):
            return True
    return False


def _ends(statements: Sequence[ast.stmt]) -> bool:
    """Whether nothing follows a block, since all of its paths jump or raise."""
    if not statements:
        return False
    last = statements[-1]
    if isinstance(last, ast.If):
        return _ends(last.body) and _ends(last.orelse)
    if isinstance(last, LOOPS) and _ends(last.orelse) and not _has_break(last.body):
        return True
    return isinstance(last, (*JUMPS, ast.Raise)) or _is_endless(last)


def _is_endless(statement: ast.stmt) -> bool:
    """Whether this is a `while True` that a return alone can leave."""
    if not isinstance(statement, ast.While) or not isinstance(statement.test, ast.Constant):
        return False
    return bool(statement.test.value) and not _has_break(statement.body)


def _has_break(statements: Sequence[ast.stmt]) -> bool:
    """Whether a break leaves the loop of which these are the body."""
    for statement in statements:
        inside = [] if isinstance(statement, LOOPS) else getattr(statement, "body", [])
        if isinstance(statement, ast.Break) or _has_break([*inside, *getattr(statement, "orelse", [])]):
            return True
    return False


@dataclass
class _Around:
    """The loop that a block stands in: its flags, where `leave` is None if nothing leaves it."""

    skip: str
    leave: str | None
    has_else: bool


@dataclass
class _Remover:
    numbers: "count[int]" = field(default_factory=lambda: count(1))

    def block(self, statements: Sequence[ast.stmt], around: _Around | None) -> Block:
        program: Block = []
        for place, statement in enumerate(statements):
            rest = statements[place + 1 :]
            if isinstance(statement, JUMPS):
                return [*program, self.jump(statement, around)]
            if isinstance(statement, ast.If) and _jumps([statement]):
                return [*program, *self.jumping_branch(statement, rest, around)]
            if isinstance(statement, ast.If):
                program.append(self.branch(statement, statement.body, statement.orelse, around))
            elif isinstance(statement, LOOPS):
                before, after = self.loop(statement)
                program += before
                if _is_endless(statement):
                    return [*program, *self.block(after, around)]
                if after:
                    return [*program, *self.block([*after, *rest], around)]
            elif isinstance(statement, ast.With | ast.Try | ast.TryStar):
                program.append(self.nest(statement, around))
            else:
                program.append(Simple(statement))
        return program

    def branch(
        self, place: ast.If, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt], around: _Around | None
    ) -> Branch:
        number = next(self.numbers)
        return Branch(place, number, place.test, self.block(body, around), self.block(orelse, around))

    def jumping_branch(self, statement: ast.If, rest: Sequence[ast.stmt], around: _Around | None) -> Block:
        body, orelse = _ends(statement.body), _ends(statement.orelse)
        if body or orelse or not rest:
            full = [*statement.body, *([] if body else rest)], [*statement.orelse, *([] if orelse else rest)]
            return [self.branch(statement, *full, around)]
        flag = HAS_RETURNED if around is None else around.skip
        goes_on = _not(flag, rest[0])
        guard = at(rest[0], ast.If(goes_on, list(rest), []))
        return [
            self.branch(statement, statement.body, statement.orelse, around),
            self.branch(guard, guard.body, [], around),
        ]

    def jump(self, statement: ast.stmt, around: _Around | None) -> Jump:
        sets = []
        if isinstance(statement, ast.Return):
            value = statement.value or at(statement, ast.Constant(None))
            if not (isinstance(value, ast.Name) and value.id == RETURNED):
                sets.append(_assign(RETURNED, value, statement))
            sets.append(_assign(HAS_RETURNED, ast.Constant(True), statement))
        if around:
            flags = [around.skip]
            if not isinstance(statement, ast.Continue) and around.leave:
                flags.append(around.leave)
            sets += [_assign(flag, ast.Constant(True), statement) for flag in flags]
        # The `else` of a loop asks its flag.
        is_noted = isinstance(statement, ast.Break) and around and around.has_else
        return Jump(statement, sets, sets[-1:] if is_noted else [])

    def loop(self, statement: ast.While | ast.For) -> tuple[Block, list[ast.stmt]]:
        """The loop; and what follows it: a return that left it, and its `else`."""
        number = next(self.numbers)
        leaves = _breaks(statement.body)
        inside = _Around(f"{SKIP}{number}", f"{BREAK}{number}" if leaves else None, bool(statement.orelse))
        body = [*_set([inside.skip], False, statement), *self.block(statement.body, inside)]
        if isinstance(statement, ast.While):
            loop = Loop(statement, number, body, inside.leave, test=statement.test)
        else:
            loop = Loop(statement, number, body, inside.leave, target=statement.target, items=statement.iter)
        after: list[ast.stmt] = []
        again = at(statement, ast.Return(at(statement, _name(RETURNED))))
        if _is_endless(statement):
            return [*_set([inside.leave] if inside.leave else [], False, statement), loop], [again] if leaves else []
        if "return" in _jumps(statement.body):
            after.append(at(statement, ast.If(_start(statement, _name(HAS_RETURNED)), [again], [])))
        if statement.orelse and inside.leave:
            first = statement.orelse[0]
            after.append(at(first, ast.If(_not(inside.leave, first), statement.orelse, [])))
        else:
            after += statement.orelse
        return [*_set([inside.leave] if inside.leave else [], False, statement), loop], after

    def nest(self, statement: ast.With | ast.Try | ast.TryStar, around: _Around | None) -> Nest:
        fields = ["body"] if isinstance(statement, ast.With) else ["body", "orelse", "finalbody"]
        blocks = {name: self.block(getattr(statement, name), around) for name in fields}
        handlers = [] if isinstance(statement, ast.With) else statement.handlers
        return Nest(statement, blocks, [self.block(handler.body, around) for handler in handlers])


def _read_flags(program: Block) -> set[str]:
    found: set[str] = set()
    for statement in program:
        if isinstance(statement, Loop) and statement.flag:
            found.add(statement.flag)
        tests = [statement.test] if isinstance(statement, Branch) else []
        found |= {node.id for test in tests for node in loads(test) if node.id.startswith(HIDDEN)}
        for block in nested(statement):
            found |= _read_flags(block)
    return found


def _without_idle_flags(program: Block, read: set[str]) -> Block:
    """Without the flags that nothing asks for."""

    def is_idle(node: ast.stmt) -> bool:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        return isinstance(target, ast.Name) and target.id.startswith(FLAGS) and target.id not in read

    def kept(block: Block) -> Block:
        return [
            cleaned(statement) for statement in block if not (isinstance(statement, Simple) and is_idle(statement.node))
        ]

    def cleaned(statement: Statement) -> Statement:
        if isinstance(statement, Jump):
            statement.sets = [node for node in statement.sets if not is_idle(node)]
            statement.noted = [node for node in statement.noted if not is_idle(node)]
        elif isinstance(statement, Branch):
            statement.body, statement.orelse = kept(statement.body), kept(statement.orelse)
        elif isinstance(statement, Loop):
            statement.body = kept(statement.body)
        elif isinstance(statement, Nest):
            statement.blocks = {name: kept(block) for name, block in statement.blocks.items()}
            statement.handlers = [kept(block) for block in statement.handlers]
        return statement

    return kept(program)
