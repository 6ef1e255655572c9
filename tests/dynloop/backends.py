"""The array libraries that this suite runs on, each behind one small adapter.

A test takes the `backend` fixture and says everything through it, so that it holds for every library.
Functions given to an adapter map arrays to one array (or, for `value` and `jvp`, to a tree of arrays).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import dynloop

MOST_STEPS = 64
"""The bound that a loop of this suite gets where checkpoints="all" needs one."""


class Backend(ABC):
    """What a test may ask of an array library, in one of the ways in which it runs functions."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Library and way, as in the test's id."""

    @property
    @abstractmethod
    def library(self) -> str:
        """What `dynloop` calls the library: its `backend=`."""

    @property
    @abstractmethod
    def xp(self) -> Any:
        """The array namespace."""

    @abstractmethod
    def asarray(self, x: Any, dtype: str = "float64") -> Any:
        """An array of this dtype."""

    @abstractmethod
    def cast(self, x: Any, dtype: str) -> Any:
        """The array in another dtype."""

    @abstractmethod
    def put(self, array: Any, index: Any, value: Any) -> Any:
        """The array with one entry replaced."""

    @abstractmethod
    def dtype(self, x: Any) -> str:
        """The name of an array's dtype."""

    @abstractmethod
    def run(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """The function, run in this adapter's way."""

    @abstractmethod
    def step(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """The function by itself as the loop runs it: compiled, where the loop compiles it."""

    @abstractmethod
    def grad(self, f: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
        """The gradient by reverse mode, run in this adapter's way."""

    @abstractmethod
    def jvp(self, f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """Value and directional derivative by forward mode, run in this adapter's way."""

    def value(self, f: Callable[..., Any], *args: Any) -> Any:
        """The function's value, run in this adapter's way."""
        return self.run(f)(*args)

    def while_loop(self, cond: Any, body: Any, init: Any, **options: Any) -> Any:
        """`dynloop.while_loop` in this library, with a bound where `checkpoints="all"` needs one."""
        if options.get("checkpoints") == "all":
            options = {"max_steps": MOST_STEPS} | options
        return dynloop.while_loop(cond, body, init, backend=self.library, **options)

    def fori_loop(self, lower: Any, upper: Any, body: Any, init: Any, **options: Any) -> Any:
        """`dynloop.fori_loop` in this library, with a bound where `checkpoints="all"` needs one."""
        if options.get("checkpoints") == "all":
            options = {"max_steps": MOST_STEPS} | options
        return dynloop.fori_loop(lower, upper, body, init, backend=self.library, **options)

    def scan(self, step: Any, init: Any, xs: Any = None, **options: Any) -> Any:
        """`dynloop.scan` in this library; the number of rows is bound enough."""
        return dynloop.scan(step, init, xs, backend=self.library, **options)


@dataclass(frozen=True)
class Jax(Backend):
    """JAX: op by op (`jax-eager`), or everything inside one `jax.jit` (`jax-jit`)."""

    is_compiled: bool

    @property
    def name(self) -> str:
        return "jax-jit" if self.is_compiled else "jax-eager"

    @property
    def library(self) -> str:
        return "jax"

    @property
    def xp(self) -> Any:
        return jnp

    def asarray(self, x: Any, dtype: str = "float64") -> Any:
        return jnp.asarray(x, dtype)

    def cast(self, x: Any, dtype: str) -> Any:
        return x.astype(dtype)

    def put(self, array: Any, index: Any, value: Any) -> Any:
        return array.at[index].set(value)

    def dtype(self, x: Any) -> str:
        return str(x.dtype)

    def run(self, f: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(f) if self.is_compiled else f

    def step(self, f: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(f)

    def grad(self, f: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
        return self.run(jax.grad(f, argnums))

    def jvp(self, f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        return self.run(lambda p, t: jax.jvp(f, p, t))(tuple(primals), tuple(tangents))


JAX_EAGER, JAX_JIT = Jax(is_compiled=False), Jax(is_compiled=True)
BACKENDS: list[Backend] = [JAX_EAGER, JAX_JIT]
CHECKPOINTS: list[Any] = [1, 2, 3, "auto", "all"]


def taking_turns(names: str, cases: Sequence[Any], *, swapped: bool = False) -> pytest.MarkDecorator:
    """Runs a test for every case, the backends taking turns; `--full` runs the whole product.

    Args:
        names: the test's arguments beside `backend`, as in `pytest.mark.parametrize`.
        cases: a value for one argument; tuples of values for several.
        swapped: let the turns begin with another backend, so that together two tests run every pair.
    """
    several = "," in names
    product = []
    for backend_at, backend in enumerate(BACKENDS):
        for at, case in enumerate(cases):
            values = case if several else (case,)
            is_turn = (at + swapped) % len(BACKENDS) == backend_at
            marks = () if is_turn else pytest.mark.full
            label = "-".join(map(str, (backend.name, *values)))
            product.append(pytest.param(backend, *values, marks=marks, id=label))
    return pytest.mark.parametrize(f"backend,{names}", product, indirect=["backend"])


with_checkpoints = taking_turns("checkpoints", CHECKPOINTS)
with_checkpoints_swapped = taking_turns("checkpoints", CHECKPOINTS, swapped=True)
