"""JAX as a backend of this suite."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from tests.dynloop.adapter import Backend


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

    @property
    def eager(self) -> Backend:
        return JAX_EAGER

    @property
    def forward_mode(self) -> str:
        return "jax.jvp"

    @property
    def traces_branches(self) -> bool:
        return True

    def in_double_precision(self) -> AbstractContextManager[None]:
        # tests/conftest.py has said so to JAX before it was loaded.
        return nullcontext()

    def asarray(self, x: Any, dtype: str = "float64") -> Any:
        return jnp.asarray(x, dtype)

    def cast(self, x: Any, dtype: str) -> Any:
        return x.astype(dtype)

    def casting(self, dtype: str) -> str:
        return f".astype({dtype})"

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
