"""Names in Python code: which ones a piece of it assigns, which ones it reads, and those that the rewriter makes up.

A comprehension, a lambda and a nested function have scopes of their own: what they bind is not the
function's, and what they read of it they may read later, whenever they are called.
"""

import ast
from collections.abc import Iterable, Iterator

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
    found: list[ast.AST] = []
    for value in vars(node).values():
        if isinstance(value, ast.AST):
            found.append(value)
        elif isinstance(value, list):
            found += [part for part in value if isinstance(part, ast.AST)]
    return found


def bound(*roots: ast.AST) -> set[str]:
    """Names that get a new value here, or lose theirs."""
    found: set[str] = set()
    for node in walk_scope(*roots):
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
    return found


def changed_items(*roots: ast.AST) -> set[str]:
    """Names of which an item is assigned, as in `x[i] = v`: staged code gives such a name a new value."""
    return {
        node.value.id
        for node in walk_scope(*roots)
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name)
    }


def assigned(*roots: ast.AST) -> set[str]:
    """Names whose value is another one afterwards."""
    return bound(*roots) | changed_items(*roots)


def read(*roots: ast.AST) -> set[str]:
    """Names that are read here, at once or later."""
    return {node.id for node in loads(*roots)}


def loads(*roots: ast.AST) -> Iterator[ast.Name]:
    """The nodes that read a name which this scope, or one around it, binds."""
    for root in roots:
        yield from _loads(root, NONE)


def _loads(node: ast.AST, own: frozenset[str]) -> Iterator[ast.Name]:
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load) and node.id not in own:
            yield node
    elif isinstance(node, FUNCTIONS):
        inner = own | _locals(node)
        outside = [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]
        outside += [] if isinstance(node, ast.Lambda) else node.decorator_list
        for part in outside:
            yield from _loads(part, own)
        for part in [node.body] if isinstance(node, ast.Lambda) else node.body:
            yield from _loads(part, inner)
    elif isinstance(node, COMPREHENSIONS):
        inner = own | bound(*(part.target for part in node.generators))
        yield from _loads(node.generators[0].iter, own)
        rest: list[ast.AST] = [part.iter for part in node.generators[1:]]
        rest += [test for part in node.generators for test in part.ifs]
        rest += [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        for part in rest:
            yield from _loads(part, inner)
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        if node.target.id not in own:
            yield node.target
        yield from _loads(node.value, own)
    else:
        for child in children(node):
            yield from _loads(child, own)


def _locals(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    names = parameters(function.args)
    if isinstance(function, ast.Lambda):
        return names
    outer = {n for node in walk_scope(*function.body) if isinstance(node, ast.Nonlocal | ast.Global) for n in node.names}
    return (names | bound(*function.body)) - outer


def parameters(arguments: ast.arguments) -> set[str]:
    """All names of a signature."""
    several = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    several += [a for a in (arguments.vararg, arguments.kwarg) if a]
    return {a.arg for a in several}


def captured(*roots: ast.AST) -> set[str]:
    """Names of this scope that functions and lambdas in it read, whenever they are called."""
    found: set[str] = set()
    for node in walk_scope(*roots):
        if isinstance(node, FUNCTIONS):
            found |= read(node)
        elif isinstance(node, (*COMPREHENSIONS, ast.ClassDef)):
            # What a scope inside captures may be this one's.
            for child in children(node):
                found |= captured(child)
            if isinstance(node, ast.GeneratorExp | ast.ClassDef):
                found |= read(node)
    return found


def displayed(name: str) -> str:
    """A name as a message calls it."""
    if name == RETURNED:
        return "the returned value"
    if name.startswith(HIDDEN):
        return "whether the loop goes on"
    return repr(name)


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Names in the order in which rewritten code passes them: the user's first."""
    return tuple(sorted(names, key=lambda name: (name.startswith(HIDDEN), name)))
