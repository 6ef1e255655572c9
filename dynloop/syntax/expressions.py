"""and, or, not, `a < b < c` and `a if c else b`: they ask for a truth value, which a traced array does not have.

Each is written in one of two ways. In code that is not staged it stays an expression that Python
evaluates by itself as long as the values are booleans, so that a plain loop costs next to nothing more.
In staged code, where it runs while tracing only, it is a call with what is evaluated late in a lambda. There `x[i]` is
a call too, since not every library takes an array for a place.
"""

import ast
import copy
from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

from dynloop.syntax.names import FUNCTIONS, HIDDEN, SCOPES, asks_for_truth, is_looked_up, loads, looks_up
from dynloop.syntax.positions import at, made

T = TypeVar("T", bound=ast.AST)

RUNTIME = HIDDEN
"""The name by which rewritten code reaches `dynloop.syntax.runtime`."""

_OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
_SURELY_BOOLEAN = (ast.Is, ast.IsNot, ast.In, ast.NotIn)


def name(identifier: str) -> ast.Name:
    return ast.Name(identifier, ast.Load())


def call(function: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(name(RUNTIME), function, ast.Load()), list(arguments), [])


def late(expression: ast.expr) -> ast.Lambda:
    nothing = ast.arguments([], [], None, [], [], None, [])
    return ast.Lambda(nothing, expression)


def as_index(node: ast.expr) -> ast.expr:
    """What stands between brackets, as a value: slices are calls of `slice`."""
    if isinstance(node, ast.Slice):
        return call("slice", *(part or ast.Constant(None) for part in (node.lower, node.upper, node.step)))
    if isinstance(node, ast.Tuple):
        return ast.Tuple([as_index(part) for part in node.elts], ast.Load())
    return node


def is_surely_python(test: ast.expr) -> bool:
    """Whether a test can give no array: its branch is then left as it is."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return is_surely_python(test.operand)
    if isinstance(test, ast.BoolOp):
        return all(map(is_surely_python, test.values))
    if isinstance(test, ast.Compare):
        return all(isinstance(operator, _SURELY_BOOLEAN) for operator in test.ops)
    return isinstance(test, ast.Constant)


class Expressions:
    """Rewrites the expressions of one function; what it is given stays as it is."""

    def __init__(self, where: Callable[[ast.AST], str], unsure: set[int]):
        """where: the file and line of a node, as text.   unsure: identities of the names to be read with care."""
        self.where = where
        self.unsure = unsure
        self.numbers = count(1)

    def plain(self, node: ast.expr) -> ast.expr:
        """For code that is not staged."""
        return self._rewritten(node, False) if self._concerns(node, False) else node

    def staged(self, node: ast.expr) -> ast.expr:
        return self._rewritten(node, True) if self._concerns(node, True) else node

    def _concerns(self, node: ast.AST, is_staged: bool) -> bool:
        if asks_for_truth(node) or (is_staged and looks_up(node)):
            return True
        return any(id(name) in self.unsure for name in loads(node))

    def reading(self, target: ast.Name) -> ast.expr:
        """The value of a name that stands as the target of `x += ...`."""
        value = at(target, name(target.id))
        return at(target, call("assigned", value)) if id(target) in self.unsure else value

    def statement(self, node: ast.stmt, is_staged: bool) -> ast.stmt:
        """A statement with all of its expressions rewritten; a nested function or class stays as it is."""
        if isinstance(node, SCOPES) or not self._concerns(node, is_staged):
            return node
        return self._children(node, is_staged)

    def _rewritten(self, node: ast.expr, is_staged: bool) -> ast.expr:
        if isinstance(node, FUNCTIONS):
            return node
        if isinstance(node, SCOPES):
            # An assignment in an expression has no place in some parts of a comprehension.
            return self._children(node, True)
        if isinstance(node, ast.Name):
            is_unsure = id(node) in self.unsure and isinstance(node.ctx, ast.Load)
            return at(node, call("assigned", node)) if is_unsure else node
        if isinstance(node, ast.BoolOp):
            return self._junction(node, is_staged)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self._negation(node, is_staged)
        if isinstance(node, ast.IfExp):
            return self._choice(node, is_staged)
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            return self._chain(node, is_staged)
        if is_staged and isinstance(node, ast.Subscript) and is_looked_up(node):
            held, place = self._rewritten(node.value, True), self._rewritten(node.slice, True)
            return at(node, call("item", held, as_index(place)))
        return self._children(node, is_staged)

    def _children(self, node: T, is_staged: bool) -> T:
        """A copy of the node if something in it is rewritten, else the node."""
        changes: dict[str, Any] = {}
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                new: Any = [self._part(part, is_staged) for part in value]
                is_new = any(a is not b for a, b in zip(new, value, strict=True))
            else:
                new = self._part(value, is_staged)
                is_new = new is not value
            if is_new:
                changes[field] = new
        if not changes:
            return node
        new_node = made(copy.copy(node))
        for field, value in changes.items():
            setattr(new_node, field, value)
        return new_node

    def _part(self, value: Any, is_staged: bool) -> Any:
        if isinstance(value, ast.expr):
            return self._rewritten(value, is_staged)
        if isinstance(value, ast.AST) and not isinstance(value, ast.expr_context | ast.operator | ast.arguments):
            return self._children(value, is_staged)
        return value

    def _temporary(self) -> str:
        return f"{HIDDEN}_part{next(self.numbers)}"

    def _junction(self, node: ast.BoolOp, is_staged: bool) -> ast.expr:
        is_and = isinstance(node.op, ast.And)
        function = "and_" if is_and else "or_"
        left = self._rewritten(node.values[0], is_staged)
        for value in node.values[1:]:
            right = late(self._rewritten(value, True))
            if is_staged:
                left = at(node, call(function, left, right))
            else:
                kept = self._temporary()
                rest = call(function, name(kept), right)
                goes_on = _is(name(kept), is_and, self._rewritten(value, False), rest)
                left = at(node, _is(_kept(kept, left), not is_and, ast.Constant(not is_and), goes_on))
        return left

    def _negation(self, node: ast.UnaryOp, is_staged: bool) -> ast.expr:
        operand = self._rewritten(node.operand, is_staged)
        if is_staged:
            return at(node, call("not_", operand))
        if is_surely_python(node.operand):
            return at(node, ast.UnaryOp(ast.Not(), operand))
        kept = self._temporary()
        rest = _is(name(kept), False, ast.Constant(True), call("not_", name(kept)))
        return at(node, _is(_kept(kept, operand), True, ast.Constant(False), rest))

    def _choice(self, node: ast.IfExp, is_staged: bool) -> ast.expr:
        test = self._rewritten(node.test, is_staged)
        where = ast.Constant(self.where(node))
        paths = late(self._rewritten(node.body, True)), late(self._rewritten(node.orelse, True))
        if is_staged:
            return at(node, call("choice", test, *paths, where))
        body, orelse = self._rewritten(node.body, False), self._rewritten(node.orelse, False)
        if is_surely_python(node.test):
            return at(node, ast.IfExp(test, body, orelse))
        kept = self._temporary()
        rest = _is(name(kept), False, orelse, call("choice", name(kept), *paths, where))
        return at(node, _is(_kept(kept, test), True, body, rest))

    def _chain(self, node: ast.Compare, is_staged: bool) -> ast.expr:
        if not is_staged and len(node.ops) == 2:
            return self._plain_chain(node)
        links: list[ast.expr] = []
        for operator, operand in zip(node.ops, node.comparators, strict=True):
            links += [ast.Constant(_OPERATORS[type(operator)]), late(self._rewritten(operand, True))]
        return at(node, call("chain", self._rewritten(node.left, True), *links))

    def _plain_chain(self, node: ast.Compare) -> ast.expr:
        """`a < b and b < c` with b kept under a name."""
        (first, second), (middle, last) = node.ops, node.comparators
        kept, again = middle, middle
        if not isinstance(middle, ast.Constant):
            label = self._temporary()
            kept, again = at(middle, _kept(label, middle)), at(middle, name(label))
        parts: list[ast.expr] = [
            at(node, ast.Compare(node.left, [first], [kept])),
            at(node, ast.Compare(again, [second], [last])),
        ]
        return self._junction(at(node, ast.BoolOp(ast.And(), parts)), False)


def _kept(kept: str, value: ast.expr) -> ast.NamedExpr:
    return ast.NamedExpr(ast.Name(kept, ast.Store()), value)


def _is(value: ast.expr, truth: bool, then: ast.expr, otherwise: ast.expr) -> ast.IfExp:
    return ast.IfExp(ast.Compare(value, [ast.Is()], [ast.Constant(truth)]), then, otherwise)
