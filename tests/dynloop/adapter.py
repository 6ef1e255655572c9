"""What a test of this suite may ask of an array library, in one of the ways in which it runs functions.

Functions given to an adapter map arrays to one array (or, for `value` and `jvp`, to a tree of arrays).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

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

    @property
    @abstractmethod
    def eager(self) -> "Backend":
        """The library without a compiler: the way of what stands inside of a function that is run."""

    @property
    @abstractmethod
    def forward_mode(self) -> str:
        """What the library calls its forward mode."""

    @property
    def orders_refused(self) -> frozenset[str]:
        """The second derivatives that are an error in this way, as in "forward over reverse"."""
        return frozenset()

    @property
    @abstractmethod
    def traces_branches(self) -> bool:
        """Whether both branches of a `cond` are looked at, whichever runs."""

    @abstractmethod
    def in_double_precision(self) -> AbstractContextManager[None]:
        """A context in which a Python float becomes an array of 64 bits."""

    @abstractmethod
    def asarray(self, x: Any, dtype: str = "float64") -> Any:
        """An array of this dtype."""

    @abstractmethod
    def cast(self, x: Any, dtype: str) -> Any:
        """The array in another dtype."""

    @abstractmethod
    def casting(self, dtype: str) -> str:
        """How the library says that an array is cast."""

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
