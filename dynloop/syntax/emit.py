"""From a program back to Python: a plain text of it, and for each statement that may be staged its pieces as functions.

The plain text is the user's code with a question at each condition: is this a boolean? As long as it
is, Python runs as ever, and jumps jump. Where it is an array, the statement is handed to the runtime with the present
values of what it carries and of what it reads. The runtime has its pieces: functions of those values
that return the carried ones anew. They stand beside the function and not in it, so that each statement
is written twice, however deep it is nested: in the plain text, and in a piece, where all statements are
handed over, since pieces run while tracing only. (Johnsson 1985 calls it lambda lifting.)

Generated statements have the position of the header that they stand for: tracebacks and debuggers
show the user's lines.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from dynloop.syntax import liveness
from dynloop.syntax.assignment import Assigned
from dynloop.syntax.expressions import Expressions, as_index, call, is_surely_python, late, name
from dynloop.syntax.fragments import (
    CONDITION,
    Code,
    assign,
    assign_to,
    deleted,
    function,
    hollow,
    item_target,
    loaded,
    may_be_staged,
    maybe,
    placed,
    unpacked,
)
from dynloop.syntax.names import HIDDEN, NONE, RETURNED, in_order, read
from dynloop.syntax.positions import at
from dynloop.syntax.program import Block, Branch, Jump, Loop, Names, Nest, Statement
from dynloop.syntax.restrictions import Restrictions
from dynloop.syntax.site import Site

_ITERATED = ("range", "enumerate", "zip", "reversed")
_ITEM = f"{HIDDEN}_index", f"{HIDDEN}_new"


class Emitted(Protocol):
    def __call__(self, block: Block) -> Code: ...


class Where(Protocol):
    def __call__(self, node: ast.AST) -> str: ...


@dataclass
class Emitter:
    """sites, pieces: filled while statements are emitted, by the names under which the code calls them.

    late: names that may have no value where a statement is handed over.
    """

    expressions: Expressions
    definite: Assigned
    where: "Where"
    limits: Restrictions
    sites: dict[str, Site] = field(default_factory=dict)
    pieces: dict[str, ast.FunctionDef] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    numbers: "count[int]" = field(default_factory=lambda: count(1))

    # ---- code that is not staged

    def plain(self, block: Block) -> Code:
        return [node for statement in block for node in self._plain(statement)] or [ast.Pass()]

    def _plain(self, statement: Statement) -> Code:
        if isinstance(statement, Jump):
            return [*statement.noted, self.expressions.statement(statement.node, False)]
        if isinstance(statement, Branch):
            return self._plain_branch(statement)
        if isinstance(statement, Loop):
            return self._plain_while(statement) if statement.test else self._plain_for(statement)
        if isinstance(statement, Nest):
            return [self._nest(statement, self.plain, False)]
        return self._plain_simple(statement)

    def _plain_simple(self, statement: Statement) -> Code:
        node = statement.node
        if isinstance(node, ast.Assert):
            return self._assert(statement, node, False)
        target = item_target(node)
        if target is None:
            return [self.expressions.statement(node, False)]
        # Most things have items that can be assigned; an array of JAX has none.
        index, new = (name(part) for part in _ITEM)
        held = ast.Subscript(target.value, index, ast.Store())
        code: Code = [assign(_ITEM[0], as_index(self.expressions.plain(target.slice)))]
        assert isinstance(node, ast.Assign | ast.AugAssign)
        if isinstance(node, ast.AugAssign):
            code.append(assign(_ITEM[1], ast.Subscript(loaded(target.value), index, ast.Load())))
            code.append(ast.AugAssign(ast.Name(_ITEM[1], ast.Store()), node.op, self.expressions.plain(node.value)))
        else:
            code.insert(0, assign(_ITEM[1], self.expressions.plain(node.value)))
        put = assign(loaded(target.value).id, call("put", loaded(target.value), index, new))
        handler = ast.ExceptHandler(name("TypeError"), None, [put])
        handler.type = ast.Attribute(name(HIDDEN), "TypeError", ast.Load())
        code.append(ast.Try([ast.Assign([held], new)], [handler], [], []))
        return placed(code, node)

    def _plain_branch(self, branch: Branch) -> Code:
        test = self.expressions.plain(branch.test)
        body, orelse = self.plain(branch.body), self.plain(branch.orelse) if branch.orelse else []
        if is_surely_python(branch.test):
            return placed([ast.If(test, body, orelse)], branch.node)
        site = self._branch_site(branch)
        handed = self._handed(site, branch, [name(CONDITION)], is_staged=False)
        plain = ast.If(name(CONDITION), body, orelse)
        return placed([ast.If(may_be_staged(test), [handed], [plain])], branch.node)

    def _plain_while(self, loop: Loop) -> Code:
        assert loop.test
        handed = self._handed(self._while_site(loop), loop, [], is_staged=False)
        is_not = ast.Compare(name(CONDITION), [ast.IsNot()], [ast.Constant(False)])
        asks: Code = [
            ast.If(ast.BoolOp(ast.And(), [is_not, call("is_staged", name(CONDITION))]), [handed, ast.Break()], []),
            ast.If(ast.UnaryOp(ast.Not(), name(CONDITION)), [ast.Break()], []),
        ]
        head = self._plain_test(loop, loop.test, placed(asks, loop.node))
        return placed(
            [ast.While(ast.Constant(True), [*placed(head, loop.node), *self.plain(loop.body)], [])], loop.node
        )

    def _plain_test(self, loop: Loop, test: ast.expr, asks: Code) -> Code:
        """Where an iteration begins: if the test is not simply true, it asks what it is."""
        new = self.expressions.plain(test)
        if loop.flag:
            # The flag is an array if a staged piece of the body has jumped, perhaps.
            flag = name(loop.flag)
            goes_on = call("goes_on", flag, late(self.expressions.staged(test)))
            has_jumped = ast.Compare(flag, [ast.IsNot()], [ast.Constant(False)])
            if isinstance(test, ast.Constant) and test.value is True:
                return [ast.If(has_jumped, placed([assign(CONDITION, goes_on), *asks], loop.node), [])]
            new = ast.IfExp(has_jumped, goes_on, new)
        kept = ast.NamedExpr(ast.Name(CONDITION, ast.Store()), new)
        return [ast.If(ast.Compare(kept, [ast.IsNot()], [ast.Constant(True)]), asks, [])]

    def _plain_for(self, loop: Loop) -> Code:
        assert loop.target
        items, rest, item = (f"{HIDDEN}_{word}{loop.number}" for word in ("items", "rest", "next"))
        body = self.plain(loop.body)
        is_staged: ast.expr = ast.Compare(
            ast.Attribute(name(items), "__class__", ast.Load()),
            [ast.Is()],
            [ast.Attribute(name(HIDDEN), "Staged", ast.Load())],
        )
        code: Code = [assign(items, self._items(loop, False))]
        given: list[ast.expr] = [name(items), ast.Constant(None), ast.Constant(None)]
        if loop.flag:
            flag = name(loop.flag)
            left = ast.Compare(flag, [ast.IsNot()], [ast.Constant(False)])
            body = [*placed([assign_to(loop.target, name(item))], loop.node), *body]
            body += placed([ast.If(left, [ast.Break()], [])], loop.node)
            code += [assign(rest, call("iterator", name(items))), assign(item, ast.Constant(None))]
            code.append(ast.For(ast.Name(item, ast.Store()), name(rest), body, []))
            unknown = ast.Compare(flag, [ast.IsNot()], [ast.Constant(True)])
            is_staged = ast.BoolOp(ast.Or(), [is_staged, ast.BoolOp(ast.And(), [left, unknown])])
            given[1:] = [name(rest), name(item)]
        else:
            code.append(ast.For(loop.target, name(items), body, []))
        handed = self._handed(self._for_site(loop), loop, given, is_staged=False)
        return placed([*code, ast.If(is_staged, [handed], [])], loop.node)

    def _handed(self, site: str, statement: Statement, given: list[ast.expr], is_staged: bool) -> ast.stmt:
        """Call a statement by its name, with what it carries and reads, and take what it returns."""
        known = self.sites[site]
        sure = self.definite.before.get((statement.node.lineno, statement.node.col_offset), NONE)
        values: list[ast.expr] = []
        for n in (*known.given, *known.reads):
            is_sure = is_staged or n in sure or (n.startswith(HIDDEN) and n != RETURNED)
            values.append(name(n) if is_sure else maybe(n))
            if not is_sure:
                self.late.add(n)
        return unpacked(known.names, ast.Call(name(site), [*given, *values], []))

    # ---- staged code

    def staged(self, block: Block) -> Code:
        return [node for statement in block for node in self._staged(statement)]

    def _staged(self, statement: Statement) -> Code:
        if isinstance(statement, Jump):
            return [self.expressions.statement(node, True) for node in statement.sets]
        if isinstance(statement, Branch):
            given = [self.expressions.staged(statement.test)]
            return placed([self._handed(self._branch_site(statement), statement, given, True)], statement.node)
        if isinstance(statement, Loop) and statement.test:
            return placed([self._handed(self._while_site(statement), statement, [], True)], statement.node)
        if isinstance(statement, Loop):
            nothing = ast.Constant(None)
            given = [self._items(statement, True), nothing, nothing]
            return placed([self._handed(self._for_site(statement), statement, given, True)], statement.node)
        if isinstance(statement, Nest):
            return [self._nest(statement, lambda block: self.staged(block) or [ast.Pass()], True)]
        return self._staged_simple(statement)

    def _staged_simple(self, statement: Statement) -> Code:
        node = statement.node
        if isinstance(node, ast.Assert):
            return self._assert(statement, node, True)
        if isinstance(node, ast.Delete):
            return placed([deleted(target) for target in node.targets], node)
        target = item_target(node)
        if target is not None:
            assert isinstance(node, ast.Assign | ast.AugAssign)
            index = as_index(self.expressions.staged(target.slice))
            value = self.expressions.staged(node.value)
            if isinstance(node, ast.AugAssign):
                value = ast.BinOp(call("item", loaded(target.value), index), node.op, value)
            return placed([assign(loaded(target.value).id, call("replaced", loaded(target.value), index, value))], node)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            # In place would change what the caller holds; a carry gets a new value.
            held = self.expressions.reading(node.target)
            return placed([assign(node.target.id, ast.BinOp(held, node.op, self.expressions.staged(node.value)))], node)
        return [self.expressions.statement(node, True)]

    # ---- pieces

    def _branch_site(self, branch: Branch) -> str:
        label = f"{HIDDEN}_if{branch.number}"
        if label not in self.sites:
            exposed = [liveness.live_before(block, branch.after) for block in (branch.body, branch.orelse)]
            results = in_order(branch.writes & branch.after)
            given = in_order(branch.writes & (exposed[0] | exposed[1]))
            reads = self._reads(branch.writes, *(liveness.live_before(b, NONE) for b in (branch.body, branch.orelse)))
            pieces = [
                self._piece(f"{word}{branch.number}", (*given, *reads), self.staged(block), results, branch.node)
                for word, block in (("true", branch.body), ("false", branch.orelse))
                if block
            ]
            self._add(label, "if", branch, results, given, reads, pieces)
        return label

    def _while_site(self, loop: Loop) -> str:
        assert loop.test
        label = f"{HIDDEN}_while{loop.number}"
        if label not in self.sites:
            state = in_order(liveness.carried(loop))
            asked: Names = frozenset([*read(loop.test), *([loop.flag] if loop.flag else [])])
            reads = self._reads(loop.writes, asked, liveness.live_before(loop.body, NONE))
            test = self.expressions.staged(loop.test)
            if loop.flag:
                test = call("goes_on", name(loop.flag), late(test))
            answer = at(loop.test, ast.Return(test))
            pieces = [
                self._piece(f"test{loop.number}", (*state, *reads), [answer], None, loop.node),
                self._piece(f"body{loop.number}", (*state, *reads), self.staged(loop.body), state, loop.node),
            ]
            self._add(label, "while", loop, state, state, reads, pieces)
        return label

    def _for_site(self, loop: Loop) -> str:
        assert loop.target
        label = f"{HIDDEN}_for{loop.number}"
        if label not in self.sites:
            state, item = in_order(liveness.carried(loop)), f"{HIDDEN}_next{loop.number}"
            # A target such as `x[i]` or `self.x` reads names too.
            reads = self._reads(loop.writes, liveness.live_before(loop.body, NONE), frozenset(read(loop.target)))
            code = [*placed([assign_to(loop.target, name(item))], loop.node), *self.staged(loop.body)]
            pieces = [self._piece(f"body{loop.number}", (item, *state, *reads), code, state, loop.node)]
            self._add(label, "for", loop, state, state, reads, pieces)
        return label

    def _reads(self, writes: Names, *exposed: Names) -> tuple[str, ...]:
        """Names of the function that pieces read and do not assign."""
        names = NONE.union(*exposed) - writes
        return in_order(n for n in names if n in self.definite.locals or n.startswith(HIDDEN))

    def _piece(
        self, label: str, given: Sequence[str], body: Code, results: Sequence[str] | None, place: ast.stmt
    ) -> str:
        label = f"{HIDDEN}_{label}"
        self.pieces[label] = piece = function(label, given, body, results)
        placed([piece, piece.body[-1]], place)
        return label

    def _add(
        self,
        label: str,
        kind: str,
        statement: Statement,
        names: tuple[str, ...],
        given: tuple[str, ...],
        reads: tuple[str, ...],
        pieces: Sequence[str] = (),
    ) -> None:
        flag = names.index(statement.flag) if isinstance(statement, Loop) and statement.flag in names else -1
        unsure = tuple(n in self.definite.unsure for n in names)
        limits = self.limits.within(statement.node, statement.writes)
        where = self.where(statement.node)
        self.sites[label] = Site(kind, where, names, unsure, flag, given, reads, tuple(pieces), limits)

    def _items(self, loop: Loop, is_staged: bool) -> ast.expr:
        """What a `for` runs through, or its bounds or arrays, if it may be staged."""
        node = loop.items
        assert node
        rewritten = self.expressions.staged(node) if is_staged else self.expressions.plain(node)
        function = node.func if isinstance(node, ast.Call) and not node.keywords else None
        if isinstance(rewritten, ast.Call) and isinstance(function, ast.Name) and function.id in _ITERATED:
            return call("items_of", rewritten.func, *rewritten.args)
        return call("items", rewritten)

    def _assert(self, statement: Statement, node: ast.Assert, is_staged: bool) -> Code:
        label = f"{HIDDEN}_assert{node.lineno}_{node.col_offset}"
        if label not in self.sites:
            results = in_order(statement.after & self.definite.locals)
            self._add(label, "assert", statement, results, results, ())
        test = self.expressions.staged(node.test) if is_staged else self.expressions.plain(node.test)
        message = late(self.expressions.staged(node.msg) if node.msg else ast.Constant(None))
        handed = self._handed(label, statement, [name(CONDITION), message], is_staged)
        again = ast.Assert(name(CONDITION), self.expressions.plain(node.msg) if node.msg else None)
        return placed([ast.If(may_be_staged(test), [handed], [again])], node)

    def _nest(self, statement: Nest, emitted: "Emitted", is_staged: bool) -> ast.stmt:
        node = self.expressions.statement(hollow(statement.node), is_staged)
        for label, block in statement.blocks.items():
            setattr(node, label, emitted(block) if block else [])
        for handler, block in zip(getattr(node, "handlers", []), statement.handlers, strict=True):
            handler.body = emitted(block)
        return node
