"""Definite assignment: which uses of a name are surely preceded by an assignment, and which may not be.

Java's rule (Gosling et al. 2015, chapter 16) on the user's own statements. Staged code may fill a name that has
no value on some path with zeros only if each of its uses is proven safe; for the others there is an
error that names the name. Also the other half of assigning: statements brought into the form in which an
item is assigned by itself, since staged code gives the whole name a new value.
"""

import ast
import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from dynloop.syntax.names import HIDDEN, NONE, assigned, bound, changed_items, loads, parameters, walk_scope
from dynloop.syntax.positions import at, made

Sure = frozenset[str] | None
"""Names that surely have a value; None where nothing arrives."""


@dataclass
class Assigned:
    """unsure: names with a use that no assignment surely precedes.   uses: those uses, by the identity of their nodes.

    before: the names that surely have a value where a statement begins, by its line and column.
    """

    locals: frozenset[str]
    unsure: set[str] = field(default_factory=set)
    uses: set[int] = field(default_factory=set)
    before: dict[tuple[int, int], frozenset[str]] = field(default_factory=dict)

    deleted: frozenset[str] = NONE

    def use(self, sure: Sure, *nodes: ast.AST | None) -> None:
        if sure is None:
            return
        for name in (name for node in nodes if node is not None for name in loads(node)):
            if name.id in self.locals and name.id not in sure:
                self.unsure.add(name.id)
                self.uses.add(id(name))


def definite(function: ast.FunctionDef) -> Assigned:
    names = parameters(function.args)
    deleted = {
        node.id for node in walk_scope(*function.body) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del)
    }
    found = Assigned(frozenset(assigned(*function.body) | names), deleted=frozenset(deleted))
    _block(found, function.body, frozenset(names), [])
    return found


def _deleted(nodes: Iterable[ast.AST]) -> frozenset[str]:
    return frozenset(n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Del))


def _meet(a: Sure, b: Sure) -> Sure:
    return b if a is None else a if b is None else a & b


def _and(sure: Sure, names: Iterable[str]) -> Sure:
    return None if sure is None else sure | set(names)


def _without(found: Assigned, sure: Sure, nodes: Sequence[ast.AST]) -> Sure:
    if not found.deleted:
        return sure
    return None if sure is None else sure - _deleted(walk_scope(*nodes))


def _block(found: Assigned, statements: Sequence[ast.stmt], sure: Sure, breaks: list[Sure]) -> Sure:
    for statement in statements:
        sure = _statement(found, statement, sure, breaks)
    return sure


def _statement(found: Assigned, node: ast.stmt, sure: Sure, breaks: list[Sure]) -> Sure:
    found.before[node.lineno, node.col_offset] = (sure or NONE) - found.deleted
    if isinstance(node, ast.If):
        found.use(sure, node.test)
        return _meet(_block(found, node.body, sure, breaks), _block(found, node.orelse, sure, breaks))
    if isinstance(node, ast.While | ast.For):
        return _loop(found, node, sure, breaks)
    if isinstance(node, ast.Break):
        breaks.append(sure)
        return None
    if isinstance(node, ast.Return | ast.Raise | ast.Continue):
        found.use(sure, node)
        return None
    if isinstance(node, ast.With):
        found.use(sure, *(item.context_expr for item in node.items))
        return _block(found, node.body, _and(sure, bound(*node.items)), breaks)
    if isinstance(node, ast.Try | ast.TryStar):
        _block(found, [*node.body, *node.orelse], sure, breaks)
        start = _without(found, sure, node.body)
        for handler in node.handlers:
            found.use(start, handler.type)
            _block(found, handler.body, _and(start, [handler.name] if handler.name else []), breaks)
        return _block(found, node.finalbody, start, breaks)
    found.use(sure, node)
    for name in changed_items(node):
        if sure is not None and name not in sure and name in found.locals:
            found.unsure.add(name)
    return _without(found, _and(sure, bound(node)), [node])


def _loop(found: Assigned, node: ast.While | ast.For, sure: Sure, breaks: list[Sure]) -> Sure:
    own: list[Sure] = []
    # What an iteration deletes may be gone when the next one begins.
    head = _without(found, sure, node.body)
    if isinstance(node, ast.While):
        found.use(head, node.test)
        _block(found, node.body, head, own)
        ends = None if isinstance(node.test, ast.Constant) and node.test.value else head
    else:
        found.use(sure, node.iter)
        _block(found, node.body, _and(head, bound(node.target)), own)
        ends = head
    ends = _block(found, node.orelse, ends, breaks)
    for at_break in own:
        ends = _meet(ends, at_break)
    return ends


# ---- items


def with_items_alone(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements, where `x[i]` is a target by itself: one among several gets its value by way of a name."""
    numbers = count(1)

    def block(these: Sequence[ast.stmt]) -> list[ast.stmt]:
        return [new for statement in these for new in one(statement)]

    def one(node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.Assign):
            several = len(node.targets) > 1 or not isinstance(node.targets[0], ast.Subscript)
            if several and any(map(_has_item, node.targets)):
                return list(_apart(node, node.targets, node.value, numbers))
        elif isinstance(node, ast.AnnAssign) and node.value is None:
            return [at(node, ast.Pass())]  # `x: int` assigns nothing
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Subscript) and node.value:
            return [_new(node, node.target, node.value)]
        elif isinstance(node, ast.For) and _has_item(node.target):
            name = f"{HIDDEN}_item{next(numbers)}"
            new = made(copy.copy(node))
            new.target = at(node.target, ast.Name(name, ast.Store()))
            first = at(node.target, ast.Assign([node.target], ast.Name(name, ast.Load())))
            new.body, new.orelse = block([first, *node.body]), block(node.orelse)
            return [new]
        fields = {name: block(getattr(node, name)) for name in _BLOCKS if getattr(node, name, None)}
        if isinstance(node, ast.If | ast.While | ast.For | ast.With | ast.Try | ast.TryStar) and fields:
            node = made(copy.copy(node))
            for name, value in fields.items():
                setattr(node, name, value)
            if isinstance(node, ast.Try | ast.TryStar):
                node.handlers = [made(copy.copy(handler)) for handler in node.handlers]
                for handler in node.handlers:
                    handler.body = block(handler.body)
        return [node]

    return block(statements)


_BLOCKS = ("body", "orelse", "finalbody")


def _has_item(target: ast.expr) -> bool:
    return bool(changed_items(target))


def _apart(place: ast.stmt, targets: Sequence[ast.expr], value: ast.expr, numbers: "count[int]") -> Iterable[ast.stmt]:
    """Assign a value to several targets, from the left to the right."""
    whole = f"{HIDDEN}_item{next(numbers)}"

    def put(target: ast.expr, name: str) -> Iterable[ast.stmt]:
        if isinstance(target, ast.Tuple | ast.List) and _has_item(target):
            names = [f"{HIDDEN}_item{next(numbers)}" for _ in target.elts]
            parts = [_alike(t, ast.Name(n, ast.Store())) for n, t in zip(names, target.elts, strict=True)]
            yield _new(place, ast.Tuple(parts, ast.Store()), ast.Name(name, ast.Load()))
            for n, part in zip(names, target.elts, strict=True):
                yield from put(part.value if isinstance(part, ast.Starred) else part, n)
        else:
            yield _new(place, target, ast.Name(name, ast.Load()))

    yield _new(place, ast.Name(whole, ast.Store()), value)
    for target in targets:
        yield from put(target, whole)


def _alike(target: ast.expr, name: ast.expr) -> ast.expr:
    return ast.Starred(name, ast.Store()) if isinstance(target, ast.Starred) else name


def _new(place: ast.stmt, target: ast.expr, value: ast.expr) -> ast.stmt:
    return at(place, ast.Assign([target], value))
