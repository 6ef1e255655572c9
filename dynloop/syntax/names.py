"""Names in Python code: which ones a piece of it assigns, which ones it reads, and those that the rewriter makes up.

A comprehension, a lambda and a nested function have scopes of their own: what they bind is not the
function's, and what they read of it they may read later, whenever they are called.
"""

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

HIDDEN = "_dynloop"
"""What every name begins with that the rewriter makes up; no name of the user's may."""

RETURNED = f"{HIDDEN}_value"
"""The value of a `return` that a staged piece of code has run."""
HAS_RETURNED = f"{HIDDEN}_returned"
"""Whether there was one."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SCOPES = (*FUNCTIONS, *COMPREHENSIONS, ast.ClassDef)

NONE: frozenset[str] = frozenset()


def walk_scope(*roots: ast.AST) -> Iterator[ast.AST]:
    """The nodes of one scope: scopes inside of it are among them, what is in those is not."""
    pending = list(roots)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, SCOPES):
            pending.extend(children(node))


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes right inside of a node."""
    own = vars(node)
    found: list[ast.AST] = []
    for field in node._fields:
        value = own.get(field)
        if isinstance(value, list):
            found += [part for part in value if isinstance(part, ast.AST)]
        elif isinstance(value, ast.AST) and value._fields:  # `ast.Load()` and the like say nothing by themselves
            found.append(value)
    return found


class Facts(NamedTuple):
    """What one walk over a node finds.   scopes: right inside of it.   asks: whether it asks for a truth value.

    looks_up: whether it reads an item at a place that may be an array.
    """

    bound: frozenset[str]
    items: frozenset[str]
    scopes: tuple[ast.AST, ...]
    asks: bool
    looks_up: bool


def _facts(root: ast.AST) -> Facts:
    """Remembered on the node: what the user wrote does not change."""
    known = vars(root).get(_FACTS)
    if known is None:
        known = vars(root)[_FACTS] = _found(root)
    return known


def _found(root: ast.AST) -> Facts:
    names: set[str] = set()
    items: set[str] = set()
    scopes: list[ast.AST] = []
    asks = looks_up = False
    for node in walk_scope(root):
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                names.add(node.id)
        elif isinstance(node, ast.Subscript):
            if not isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name):
                items.add(node.value.id)
            looks_up = looks_up or is_looked_up(node)
        elif isinstance(node, ast.BoolOp | ast.IfExp | ast.UnaryOp | ast.Compare):
            asks = asks or not isinstance(node, ast.Compare) or len(node.ops) > 1
        elif isinstance(node, SCOPES):
            scopes.append(node)
            asks = asks or isinstance(node, COMPREHENSIONS)
            looks_up = looks_up or isinstance(node, COMPREHENSIONS)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
    return Facts(frozenset(names), frozenset(items), tuple(scopes), asks, looks_up)


_FACTS = "facts"


def bound(*roots: ast.AST) -> frozenset[str]:
    """Names that get a new value here, or lose theirs."""
    return NONE.union(*(_facts(root).bound for root in roots))


def changed_items(*roots: ast.AST) -> frozenset[str]:
    """Names of which an item is assigned, as in `x[i] = v`: staged code gives such a name a new value."""
    return NONE.union(*(_facts(root).items for root in roots))


def asks_for_truth(root: ast.AST) -> bool:
    """Whether a node holds logic, comparisons in a chain, or scopes that may."""
    return _facts(root).asks


def looks_up(root: ast.AST) -> bool:
    """Whether a node holds an `x[i]` such as `is_looked_up` tells of, or scopes that may."""
    return _facts(root).looks_up


def is_looked_up(node: ast.Subscript) -> bool:
    """Whether this is an `x[i]` that is read, with a place that may be an array."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return isinstance(node.ctx, ast.Load) and not all(map(_is_fixed, parts))


def _is_fixed(place: ast.expr) -> bool:
    if isinstance(place, ast.UnaryOp):
        return _is_fixed(place.operand)
    return isinstance(place, ast.Constant | ast.Slice)


def assigned(*roots: ast.AST) -> frozenset[str]:
    """Names whose value is another one afterwards."""
    return bound(*roots) | changed_items(*roots)


def read(*roots: ast.AST) -> set[str]:
    """Names that are read here, at once or later."""
    return {node.id for root in roots for node in loads(root)}


def loads(root: ast.AST) -> list[ast.Name]:
    """The nodes that read a name which this scope, or one around it, binds; remembered on the node."""
    known = vars(root).get(_LOADS)
    if known is None:
        known = vars(root)[_LOADS] = []
        _add_loads(root, NONE, known)
    return known


_LOADS = "loads"


def _add_loads(node: ast.AST, own: frozenset[str], found: list[ast.Name]) -> None:
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load) and node.id not in own:
            found.append(node)
    elif isinstance(node, FUNCTIONS):
        outside = [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]
        outside += [] if isinstance(node, ast.Lambda) else node.decorator_list
        for part in outside:
            _add_loads(part, own, found)
        inner = own | _locals(node)
        for part in [node.body] if isinstance(node, ast.Lambda) else node.body:
            _add_loads(part, inner, found)
    elif isinstance(node, COMPREHENSIONS):
        inner = own | bound(*(part.target for part in node.generators))
        _add_loads(node.generators[0].iter, own, found)
        rest: list[ast.AST] = [part.iter for part in node.generators[1:]]
        rest += [test for part in node.generators for test in part.ifs]
        rest += [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        for part in rest:
            _add_loads(part, inner, found)
    else:
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id not in own:
            found.append(node.target)
        for child in children(node):
            _add_loads(child, own, found)


def _locals(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> frozenset[str]:
    names = frozenset(parameters(function.args))
    if isinstance(function, ast.Lambda):
        return names
    outer = {
        n for node in walk_scope(*function.body) if isinstance(node, ast.Nonlocal | ast.Global) for n in node.names
    }
    return (names | bound(*function.body)) - outer


def parameters(arguments: ast.arguments) -> set[str]:
    """All names of a signature."""
    several = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    several += [a for a in (arguments.vararg, arguments.kwarg) if a]
    return {a.arg for a in several}


def captured(*roots: ast.AST) -> set[str]:
    """Names of this scope that functions and lambdas in it read, whenever they are called."""
    found: set[str] = set()
    for root in roots:
        for node in _facts(root).scopes:
            if isinstance(node, FUNCTIONS):
                found |= read(node)
                continue
            # What a scope inside captures may be this one's.
            for child in children(node):
                found |= captured(child)
            if isinstance(node, ast.GeneratorExp | ast.ClassDef):
                found |= read(node)
    return found


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Names in the order in which rewritten code passes them: the user's first."""
    return tuple(sorted(names, key=lambda name: (name.startswith(HIDDEN), name)))
