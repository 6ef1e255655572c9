"""A function rewritten: its source, checked, without jumps, emitted, and compiled to code that stands where it stood.

The code is compiled inside of two dummies and taken out of them: a function whose parameters are the
names that the user's function closes over, so that they are free variables again, and a class of the
name of the enclosing one, so that Python itself mangles `self.__x` and knows `super()`.
"""

import __future__

import ast
import copy
import os
import sys
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Any

from dynloop.syntax import liveness, runtime
from dynloop.syntax.assignment import definite, with_items_alone
from dynloop.syntax.check import check
from dynloop.syntax.emit import Emitter
from dynloop.syntax.expressions import Expressions, call, name
from dynloop.syntax.fragments import assign, placed
from dynloop.syntax.jumps import without_jumps
from dynloop.syntax.names import HIDDEN, NONE, RETURNED, in_order, parameters
from dynloop.syntax.positions import at, fill, made
from dynloop.syntax.program import Block, Jump, nested
from dynloop.syntax.restrictions import restrictions
from dynloop.syntax.site import Site
from dynloop.syntax.source import definition, enclosing_class

_FUNCTION = f"{HIDDEN}_function"


@dataclass(frozen=True)
class Rewritten:
    """tree: the new `def`.   pieces, sites: of its statements, by the names by which the code calls them."""

    tree: ast.FunctionDef
    pieces: dict[str, ast.FunctionDef]
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
    emitter = Emitter(Expressions(where, assigned.uses), assigned, where, restrictions(tree, where))
    code = emitter.plain(program)
    if is_returned_staged:
        # Code that is not staged has returned by itself.
        code.append(ast.Return(call("returned", name(RETURNED))))
    # A name that is assigned only where nothing arrives is the function's all the same.
    lost = in_order(assigned.locals - parameters(tree.args) - liveness.written(program))
    if lost:
        nothing = ast.Assign([ast.Name(n, ast.Store()) for n in lost], ast.Constant(None))
        code.insert(0, at(tree, ast.If(ast.Constant(False), [nothing], [])))
    late = in_order(emitter.late - parameters(tree.args))
    if late:
        # Dynamo can read no name that has no value, not even to be told so.
        nothing = [assign(n, call("Unassigned", ast.Constant(n))) for n in late]
        code.insert(0, at(tree, ast.If(call("is_compiling"), placed(nothing, tree), [])))
    made(tree).body = code
    # In the new function a decorator only says at which line the definition begins.
    tree.decorator_list = [at(d, ast.Constant(None)) for d in tree.decorator_list[:1]]
    return Rewritten(tree, emitter.pieces, emitter.sites)


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
    cells[HIDDEN] = CellType(runtime)
    cells |= {label: CellType() for label in rewritten.sites}
    codes = _compiled(function, rewritten, list(cells))

    def with_closure(label: str) -> FunctionType:
        closure = tuple(cells[free] for free in codes[label].co_freevars)
        return FunctionType(codes[label], function.__globals__, function.__name__, None, closure)

    for label, site in rewritten.sites.items():
        cells[label].cell_contents = runtime.entry(site, tuple(map(with_closure, site.pieces)), options)
    new = with_closure(_FUNCTION)
    new.__defaults__, new.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    new.__qualname__, new.__module__ = function.__qualname__, function.__module__
    new.__doc__, new.__annotations__ = function.__doc__, function.__annotations__
    vars(new).update(vars(function))
    return new


def _compiled(function: FunctionType, rewritten: Rewritten, free: list[str]) -> dict[str, CodeType]:
    """The code of the function and of the pieces, by name."""
    # Inside of the dummy its own name must still mean what it means outside, as in a recursive call.
    old, tree = function.__code__, made(copy.copy(rewritten.tree))
    tree.name = _FUNCTION
    inside: list[ast.stmt] = [*rewritten.pieces.values(), tree]
    around = enclosing_class(function)
    if around:
        inside = [ast.ClassDef(around, [], [], inside, [])]
    arguments = ast.arguments([], [ast.arg(n) for n in free if n != "__class__"], None, [], [], None, [])
    outer = ast.FunctionDef(f"{HIDDEN}_outer", arguments, inside, [], None, None)
    for node in {outer, inside[-1]}:
        if sys.version_info >= (3, 12) and not hasattr(node, "type_params"):
            node.type_params = []
        at(tree, node)
    module = ast.Module([outer], [])
    fill(module)
    futures = (getattr(__future__, feature).compiler_flag for feature in __future__.all_feature_names)
    flags = sum(flag for flag in futures if flag & old.co_flags)
    code = compile(module, old.co_filename, "exec", flags=flags, dont_inherit=True)
    for label in [f"{HIDDEN}_outer", *([around] if around else [])]:
        code = _inner(code)[label]
    codes = _inner(code)
    return {label: _renamed(codes[label], old) for label in (*rewritten.pieces, _FUNCTION)}


def _inner(code: CodeType) -> dict[str, CodeType]:
    return {constant.co_name: constant for constant in code.co_consts if isinstance(constant, CodeType)}


def _renamed(code: CodeType, old: CodeType) -> CodeType:
    """The pieces carry the function's name too, by which a traceback calls them."""
    return code.replace(co_name=old.co_name, co_qualname=old.co_qualname)
