"""Small parts of the code that the rewriter writes."""

import ast
import copy
import sys
from collections.abc import Sequence

from dynloop.syntax.expressions import call, late, name
from dynloop.syntax.names import HIDDEN
from dynloop.syntax.positions import at, made

Code = list[ast.stmt]

CONDITION = f"{HIDDEN}_go"
"""The value of a test, while it is asked what it is."""


def placed(code: Sequence[ast.stmt], place: ast.stmt) -> Code:
    """Give generated statements the position of a header, and of no more: what lies in a body has its own."""
    last = getattr(place, "test", None) or getattr(place, "iter", None) or place
    if isinstance(place, ast.With | ast.Try | ast.TryStar):
        last = place
    for node in code:
        if not hasattr(node, "lineno"):
            at(place, node)
            node.end_lineno, node.end_col_offset = last.end_lineno, last.end_col_offset
    return list(code)


def assign(label: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(label, ast.Store())], value)


def assign_to(target: ast.expr, value: ast.expr) -> ast.Assign:
    return ast.Assign([target], value)


def loaded(node: ast.expr) -> ast.Name:
    assert isinstance(node, ast.Name)
    return name(node.id)


def may_be_staged(test: ast.expr) -> ast.expr:
    # Tests that end something, which are false but once, are answered soonest.
    kept = ast.NamedExpr(ast.Name(CONDITION, ast.Store()), test)
    is_false = ast.Compare(kept, [ast.IsNot()], [ast.Constant(False)])
    is_true = ast.Compare(name(CONDITION), [ast.IsNot()], [ast.Constant(True)])
    return ast.BoolOp(ast.And(), [is_false, is_true, call("is_staged", name(CONDITION))])


def maybe(label: str) -> ast.expr:
    return call("maybe", late(name(label)), ast.Constant(label))


def function(label: str, given: Sequence[str], body: Code, results: Sequence[str] | None) -> ast.FunctionDef:
    arguments = ast.arguments([], [ast.arg(n) for n in given], None, [], [], None, [])
    if results is not None:
        body = [*body, ast.Return(ast.Tuple([name(n) for n in results], ast.Load()))]
    node = ast.FunctionDef(label, arguments, body, [], None, None)
    if sys.version_info >= (3, 12):
        node.type_params = []
    return node


def unpacked(names: Sequence[str], value: ast.expr) -> ast.stmt:
    if not names:
        return ast.Expr(value)
    return assign_to(ast.Tuple([ast.Name(n, ast.Store()) for n in names], ast.Store()), value)


def item_target(node: ast.stmt) -> ast.Subscript | None:
    """The `x[i]` that a statement assigns to, where x is a name."""
    is_assigned = isinstance(node, ast.Assign | ast.AugAssign)
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return target if is_assigned and isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) else None


def deleted(target: ast.expr) -> ast.stmt:
    """A staged piece returns all of its names, so one that is deleted gets what stands for no value."""
    if isinstance(target, ast.Name):
        return assign(target.id, call("Unassigned", ast.Constant(target.id)))
    return ast.Delete([target])


def hollow(node: ast.stmt) -> ast.stmt:
    """A `with` or a `try` without its blocks."""
    new = made(copy.copy(node))
    for label in ("body", "orelse", "finalbody"):
        if hasattr(new, label):
            setattr(new, label, [])
    if isinstance(new, ast.Try | ast.TryStar):
        new.handlers = [made(copy.copy(handler)) for handler in new.handlers]
        for handler in new.handlers:
            handler.body = []
    return new
