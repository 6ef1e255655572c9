"""A function rewritten: its source, checked, without jumps, emitted, and compiled to code that stands where it stood.

The code is compiled inside of two dummies and taken out of them: a function whose parameters are the
names that the user's function closes over, so that they are free variables again, and a class of the
name of the enclosing one, so that Python itself mangles `self.__x` and knows `super()`.
"""

import __future__

import ast
import os
import sys
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Any

from dynloop.syntax import liveness, restrictions, runtime
from dynloop.syntax.assignment import definite, with_items_alone
from dynloop.syntax.check import check
from dynloop.syntax.emit import Emitter
from dynloop.syntax.expressions import Expressions, call, name
from dynloop.syntax.jumps import without_jumps
from dynloop.syntax.names import HIDDEN, NONE, RETURNED
from dynloop.syntax.program import Block, Jump, nested
from dynloop.syntax.site import Site
from dynloop.syntax.source import definition, enclosing_class


@dataclass(frozen=True)
class Rewritten:
    """tree: the new `def`.   sites: what it calls, by name."""

    tree: ast.FunctionDef
    sites: dict[str, Site]


def rewrite(function: FunctionType) -> Rewritten:
    """The new text of a function."""
    filename = function.__code__.co_filename
    tree = definition(function)
    check(tree, filename)
    short = os.path.basename(filename)

    def where(node: ast.AST) -> str:
        return f"{short}:{getattr(node, 'lineno', tree.lineno)}"

    body = with_items_alone(tree.body)
    tree.body = body
    assigned = definite(tree)
    program = without_jumps(body)
    is_returned_staged = _may_return_staged(program)
    liveness.annotate(program, frozenset({RETURNED}) if is_returned_staged else NONE)
    emitter = Emitter(Expressions(where, assigned.uses), assigned, where, restrictions.stale(tree, where))
    code = emitter.plain(program)
    if is_returned_staged:
        # Code that is not staged has returned by itself.
        code.append(ast.Return(call("returned", name(RETURNED))))
    tree.body = code
    # In the new function a decorator only says at which line the definition begins.
    tree.decorator_list = [ast.copy_location(ast.Constant(None), d) for d in tree.decorator_list[:1]]
    ast.fix_missing_locations(tree)
    return Rewritten(tree, emitter.sites)


def _may_return_staged(program: Block) -> bool:
    """Whether a return stands inside of something that may be staged."""
    blocks = [block for statement in program for block in nested(statement)]
    return any(isinstance(s, Jump) and bool(s.sets) and _is_return(s) for block in blocks for s in block) or any(
        map(_may_return_staged, blocks)
    )


def _is_return(jump: Jump) -> bool:
    return isinstance(jump.node, ast.Return)


def build(function: FunctionType, rewritten: Rewritten, options: dict[str, Any]) -> FunctionType:
    """The function with the new text and everything else as it was."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    hidden: dict[str, Any] = {HIDDEN: runtime}
    hidden |= {label: runtime.entry(site, options) for label, site in rewritten.sites.items()}
    code = _compiled(function, rewritten.tree, [*cells, *hidden])
    closure = tuple(cells[free] if free in cells else CellType(hidden[free]) for free in code.co_freevars)
    new = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    new.__kwdefaults__ = function.__kwdefaults__
    new.__qualname__, new.__module__ = function.__qualname__, function.__module__
    new.__doc__, new.__annotations__ = function.__doc__, function.__annotations__
    vars(new).update(vars(function))
    return new


def _compiled(function: FunctionType, tree: ast.FunctionDef, free: list[str]) -> CodeType:
    old = function.__code__
    inner: ast.stmt = tree
    around = enclosing_class(function)
    if around:
        inner = ast.ClassDef(around, [], [], [inner], [])
    arguments = ast.arguments([], [ast.arg(n) for n in free if n != "__class__"], None, [], [], None, [])
    outer = ast.FunctionDef(f"{HIDDEN}_outer", arguments, [inner], [], None, None)
    for node in (inner, outer):
        if sys.version_info >= (3, 12) and not hasattr(node, "type_params"):
            node.type_params = []
        ast.copy_location(node, tree)
    module = ast.fix_missing_locations(ast.Module([outer], []))
    futures = (getattr(__future__, feature).compiler_flag for feature in __future__.all_feature_names)
    flags = sum(flag for flag in futures if flag & old.co_flags)
    code = compile(module, old.co_filename, "exec", flags=flags, dont_inherit=True)
    path = [f"{HIDDEN}_outer", *([around] if around else []), old.co_name]
    for label in path:
        code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == label)
    return _renamed(code, old.co_name, old.co_qualname)


def _renamed(code: CodeType, label: str, qualified: str) -> CodeType:
    """The pieces carry the function's name too, by which a traceback calls them."""

    def inside(constant: Any) -> Any:
        if not isinstance(constant, CodeType):
            return constant
        if constant.co_name.startswith(HIDDEN):
            return _renamed(constant, label, qualified)
        return constant

    constants = tuple(map(inside, code.co_consts))
    return code.replace(co_consts=constants, co_name=label, co_qualname=qualified)
