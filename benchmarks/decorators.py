"""Thirty constructs of Python through three decorators: what each makes of them where arrays decide.

    pip install -e ".[jax]" drjit==1.5.0 diastatic-malt==2.15.3
    python -m benchmarks.decorators

dynloop stages on JAX. Dr.Jit's `@drjit.syntax` runs on its LLVM backend. AutoGraph is the front end of
TensorFlow, here as the package diastatic-malt, which leaves its operators to whoever uses it: they are given JAX's
`while_loop`, `fori_loop`, `cond` and logic below, on the state that AutoGraph hands them.
"""

import logging
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dynloop

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.syntax.constructs import FOUND, Construct, Solver

# By name, as the tests' environment, in which types are checked, has neither.
dr: Any = import_module("drjit")
llvm: Any = import_module("drjit.llvm")
malt: Any = import_module("malt")
malt_operators: Any = import_module("malt.operators")
py_builtins: Any = import_module("malt.operators.py_builtins")


def is_traced(x: Any) -> bool:
    return isinstance(x, jax.Array)


def while_stmt(test: Any, body: Any, get_state: Any, set_state: Any, names: Any, options: Any) -> None:
    while not is_traced(goes_on := test()):
        if not goes_on:
            return
        body()

    def holds(state: Any) -> Any:
        set_state(state)
        return test()

    def advance(state: Any) -> Any:
        set_state(state)
        body()
        return get_state()

    set_state(jax.lax.while_loop(holds, advance, get_state()))


@dataclass(frozen=True)
class TracedRange:
    """What `range` gives for traced bounds."""

    start: Any
    stop: Any
    step: int = 1

    @property
    def shape(self) -> tuple[Any]:
        return (jnp.maximum(0, -((self.start - self.stop) // self.step)),)

    def __getitem__(self, i: Any) -> Any:
        return self.start + i * self.step


def range_(*bounds: Any) -> Any:
    if not any(map(is_traced, bounds)):
        return range(*bounds)
    return TracedRange(0, *bounds) if len(bounds) == 1 else TracedRange(*bounds)


def for_stmt(items: Any, extra: Any, body: Any, get_state: Any, set_state: Any, names: Any, options: Any) -> None:
    if not isinstance(items, jax.Array | TracedRange):
        for item in items:
            if extra is not None and not extra():
                break
            body(item)
        return

    def holds(carry: Any) -> Any:
        set_state(carry[1])
        return (carry[0] < items.shape[0]) & (True if extra is None else extra())

    def advance(carry: Any) -> Any:
        set_state(carry[1])
        body(items[carry[0]])
        return carry[0] + 1, get_state()

    set_state(jax.lax.while_loop(holds, advance, (0, get_state()))[1])


def if_stmt(cond: Any, body: Any, orelse: Any, get_state: Any, set_state: Any, names: Any, count: int) -> None:
    if not is_traced(cond):
        return body() if cond else orelse()
    start = get_state()

    def path(block: Callable[[], None]) -> Callable[[], Any]:
        def run() -> Any:
            set_state(start)
            block()
            return get_state()

        return run

    set_state(jax.lax.cond(cond, path(body), path(orelse)))


def if_exp(cond: Any, then: Any, otherwise: Any, text: str) -> Any:
    return jax.lax.cond(cond, then, otherwise) if is_traced(cond) else then() if cond else otherwise()


def and_(a: Any, b: Any) -> Any:
    left = a()
    return left & b() if is_traced(left) else left and b()


def or_(a: Any, b: Any) -> Any:
    left = a()
    return left | b() if is_traced(left) else left or b()


def not_(a: Any) -> Any:
    return ~a if is_traced(a) else not a


def set_item(target: Any, i: Any, x: Any) -> Any:
    if is_traced(target):
        return target.at[i].set(x)
    target[i] = x
    return target


for operator in (while_stmt, for_stmt, if_stmt, if_exp, and_, or_, not_, set_item):
    setattr(malt.operators, operator.__name__, operator)
py_builtins.BUILTIN_FUNCTIONS_MAP["range"] = range_


def with_dynloop(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return jax.jit(dynloop.loop(function))(*map(jnp.asarray, arguments))


def with_autograph(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return jax.jit(malt.convert(recursive=True)(function))(*map(jnp.asarray, arguments))


def with_drjit(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    kinds = {int: llvm.Int, float: llvm.Float, list: llvm.Float}
    given = [kinds[type(x)](x) for x in arguments]
    dr.make_opaque(given)
    found = dr.syntax(function)(*given)
    return np.asarray(found).reshape(-1)[0] if dr.is_array_v(found) else found


DECORATORS = {"dynloop": with_dynloop, "Dr.Jit": with_drjit, "AutoGraph": with_autograph}


def outcome(run: Callable[..., Any], one: Construct) -> str:
    """What a decorator makes of a construct: "yes", a wrong value, or its error."""
    for arguments in one.arguments:
        expected = one.function(*[list(x) if isinstance(x, list) else x for x in arguments])
        try:
            found = float(run(one.function, arguments))
        except Exception as error:  # whatever it is, the construct does not work
            return type(error).__name__
        if not np.isclose(found, float(expected), rtol=1e-4):
            return f"wrong: {found:g} for {float(expected):g}"
    return "yes"


def main() -> None:
    warnings.simplefilter("ignore")
    solver = Construct("a private name, `self.__x`", lambda a: Solver().solve(a), ((2.0,),))
    logging.disable()
    print("| construct |", " | ".join(DECORATORS), "|")
    print("|--|" + "--|" * len(DECORATORS))
    for one in FOUND:
        print(f"| {one.name} |", " | ".join(outcome(run, one) for run in DECORATORS.values()), "|", flush=True)
    method = {
        "dynloop": lambda _, arguments: dynloop.loop(Solver.solve)(Solver(), *arguments),
        "Dr.Jit": lambda _, arguments: with_drjit_method(arguments),
        "AutoGraph": lambda _, arguments: malt.convert(recursive=True)(Solver.solve)(Solver(), *arguments),
    }
    print(f"| {solver.name} |", " | ".join(outcome(method[name], solver) for name in DECORATORS), "|")


def with_drjit_method(arguments: tuple[Any, ...]) -> Any:
    return np.asarray(dr.syntax(Solver.solve)(Solver(), llvm.Float(*arguments)))[0]


if __name__ == "__main__":
    main()
