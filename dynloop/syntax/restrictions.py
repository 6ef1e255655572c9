"""What is fine in a Python loop and wrong in a staged one: found while rewriting, told if it comes to staging.

A staged piece is traced once and may be run any number of times, so what it changes outside of its own
names would change once: attributes, items of what is no name, a list that grows. A function made
before the loop keeps reading the names of the function, not those that the loop carries.
"""

import ast
from collections.abc import Callable, Iterator

from dynloop.syntax.names import FUNCTIONS, assigned, bound, captured, walk_scope
from dynloop.syntax.site import Limit, Limits

CHANGING = frozenset(
    "append extend insert remove pop clear sort reverse add discard update setdefault popitem appendleft".split()
)
"""Methods that change a list, a set, a dict or a deque."""


def of(node: ast.stmt, writes: frozenset[str], where: Callable[[ast.AST], str]) -> Limits:
    """What must not, or had better not, stand in this statement if it is staged."""
    if isinstance(node, ast.Assert):
        return Limits()
    blocks = [*getattr(node, "body", []), *getattr(node, "orelse", [])]
    refused = [*_outside_writes(blocks, where), *_raises(node, where)]
    return Limits((*refused, *_growing(blocks, writes, where)), tuple(_printing(blocks, where)))


def _outside_writes(blocks: list[ast.stmt], where: Callable[[ast.AST], str]) -> Iterator[Limit]:
    for node in walk_scope(*blocks):
        is_written = isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load)
        if is_written and isinstance(node.ctx, ast.Del):
            yield Limit(where(node), f"deletes '{ast.unparse(node)}'; use a local variable")
        elif is_written and not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)):
            yield Limit(where(node), f"assigns to '{ast.unparse(node)}'; use a local variable")


def _raises(node: ast.stmt, where: Callable[[ast.AST], str]) -> Iterator[Limit]:
    """The branches of an `if` are traced both, whatever the condition."""
    if isinstance(node, ast.If):
        for statement in (*node.body, *node.orelse):
            if isinstance(statement, ast.Raise):
                yield Limit(where(statement), "raises, and a compiled program cannot; use 'assert'")


def _growing(blocks: list[ast.stmt], writes: frozenset[str], where: Callable[[ast.AST], str]) -> Iterator[Limit]:
    for node in _calls(blocks):
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in CHANGING and isinstance(function.value, ast.Name):
            name = function.value.id
            if name not in writes:
                yield Limit(where(node), f"calls '{name}.{function.attr}'; use a local variable, or an array", name)


def _printing(blocks: list[ast.stmt], where: Callable[[ast.AST], str]) -> Iterator[Limit]:
    for node in _calls(blocks):
        if isinstance(node.func, ast.Name) and node.func.id == "print":
            yield Limit(where(node), "calls 'print'")


def _calls(blocks: list[ast.stmt]) -> Iterator[ast.Call]:
    return (node for node in walk_scope(*blocks) if isinstance(node, ast.Call))


def stale(function: ast.FunctionDef, where: Callable[[ast.AST], str]) -> dict[int, tuple[Limit, ...]]:
    """For each loop and `if`, by identity: the functions made before it that read names which it assigns."""
    makers = [node for node in walk_scope(*function.body) if isinstance(node, FUNCTIONS)]
    found: dict[int, tuple[Limit, ...]] = {}
    if not makers:
        return found
    reads = [(node, captured(node)) for node in makers]
    for node in walk_scope(*function.body):
        if isinstance(node, ast.If | ast.While | ast.For):
            inside = set(map(id, ast.walk(node)))
            own = assigned(*node.body, *node.orelse) | (bound(node.target) if isinstance(node, ast.For) else set())
            found[id(node)] = tuple(
                Limit(where(maker), f"reads {name!r} in a function that is made before; pass it as an argument")
                for maker, names in reads
                for name in sorted(names & own)
                if maker.lineno < node.lineno and id(maker) not in inside
            )
    return found
