"""`@dynloop.loop`, and `dynloop.source`, which shows what it made."""

import ast
import copy
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, overload

from dynloop.errors import ArgumentTypeError, described
from dynloop.syntax.rewriting import Rewritten, build, rewrite
from dynloop.syntax.session import checked

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE = "__dynloop__"


@overload
def loop(function: F, /) -> F: ...


@overload
def loop(function: None = None, /, **options: Any) -> Callable[[F], F]: ...


def loop(function: Any = None, /, **options: Any) -> Any:
    """Rewrite a function so that its loops and branches are compiled and differentiable where arrays decide them.

    Where a condition is a boolean, a number or any object of Python's, the function runs as it always did.
    Where it is an array, traced or not, a `while` goes to `dynloop.while_loop`, an `if` to `dynloop.cond`, a
    `for` over a range of arrays to `dynloop.fori_loop`, and one over the rows of an array to `dynloop.scan`.
    So a gradient takes the memory that those take, and nothing is unrolled unless Python decides it.
    `break`, `continue`, `return`, the `else` of a loop, `and`, `or`, `not`, `a < b < c`, `x[i] = v` and `x += 1` work
    in all of them. docs/syntax.md has the rules.

    Args:
        function: what stands below the decorator: a function or a method, made by `def`. Other decorators stand above.
        options: those of every staged loop in the function: `max_steps`, `checkpoints`, `on_max_steps`, `sync`,
            `observe` and `backend`, as in `dynloop.while_loop`; the defaults are the same.
            `with dynloop.options(...)` sets those of one loop.

    Returns:
        A function that takes and returns the same. It stands at the same lines of the same file.

    Cost:
        The rewriting, once, takes some milliseconds. A loop that stays Python's takes at most twice its time.
        Staged, each body is traced once, and once more for a number that it turns into a greater one.

    Raises:
        LoopSyntaxError: the function holds what no staged loop can mean; with file, line and column.
        ArgumentTypeError: it is no function made by `def`; or there is no such option.
        StagingError: when it is called: a name changes its type, or a statement cannot be staged.
        UnassignedError: when it is called: a name is read that has no value on some path.

    >>> import jax, dynloop
    >>> @dynloop.loop
    ... def root(a):
    ...     x = a
    ...     while abs(x * x - a) > 1e-5:
    ...         x = 0.5 * (x + a / x)
    ...     return x
    >>> root(4.0)
    2.0000000929222947
    >>> value, slope = jax.jit(jax.value_and_grad(root))(4.0)
    >>> round(float(value), 4), round(float(slope), 4)
    (2.0, 0.25)
    """
    checked("loop", options)
    if function is None:
        return lambda function: _rewritten(function, options)
    return _rewritten(function, options)


def _rewritten(function: Any, options: dict[str, Any]) -> FunctionType:
    is_wrapped = hasattr(function, "__wrapped__") or hasattr(function, _ATTRIBUTE)
    if not isinstance(function, FunctionType) or is_wrapped:
        raise ArgumentTypeError(
            f"@dynloop.loop must be closest to 'def'; it got {type(function).__name__} {function!r}. "
            "Put the other decorators above it."
        )
    rewritten = rewrite(function)
    new = build(function, rewritten, options)
    setattr(new, _ATTRIBUTE, rewritten)
    return new


def source(function: Callable[..., Any]) -> str:
    """What `@dynloop.loop` made of a function, as text.

    First the pieces of the statements that may be staged, functions of the names that they carry and read; then the
    function itself. Names that begin with `_dynloop` are made up; `_dynloop_while1(...)` runs a statement.

    Args:
        function: one under `@dynloop.loop`, or a method of it.

    Raises:
        ArgumentTypeError: it is not under the decorator.

    >>> import dynloop
    >>> @dynloop.loop
    ... def double(x):
    ...     while x < 10:
    ...         x = 2 * x
    ...     return x
    >>> print(dynloop.source(double).splitlines()[4])
        x = 2 * x
    """
    rewritten: Rewritten | None = getattr(function, _ATTRIBUTE, None)
    if rewritten is None:
        raise ArgumentTypeError(f"source: function must be under @dynloop.loop; got {described(function)}")
    tree = copy.copy(rewritten.tree)
    tree.decorator_list = []
    return "\n\n".join(ast.unparse(node) for node in (*rewritten.pieces.values(), tree))
