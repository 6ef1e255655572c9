"""The solver kit of the examples, imported as a user's script imports it, and solves that several tests share."""

from functools import cache
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.user_process import ROOT


@cache
def kit() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "examples"))
        return import_module("ode")


def solver(method: str = "Tsit5", tolerance: float = 1e-6, **options: Any) -> Any:
    options = {"rtol": tolerance, "atol": tolerance, "jacfwd": jax.jacfwd} | options
    return kit().Solver(jnp, getattr(kit(), method), **options)


def solved(problem: Any, solver: Any, parameters: Any = None, start: Any = None, end: float | None = None) -> Any:
    """One of the kit's problems from its start to its end, unless others are given."""
    field = problem.field(jnp)
    parameters = jnp.array(problem.parameters) if parameters is None else parameters
    start = jnp.array(problem.start) if start is None else start
    times = [0.0, problem.end if end is None else end]
    return kit().solve(solver, lambda t, y: field(t, y, parameters), times, start)
