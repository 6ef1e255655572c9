"""The array libraries that this suite runs on, each behind one small adapter.

A test takes the `backend` fixture and says everything through it, so that it holds for every library. Where PyTorch is
not installed the suite runs on JAX alone; tests/on_torch says that it is there.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import pytest

from tests.dynloop.adapter import MOST_STEPS, Backend
from tests.dynloop.jax_backend import JAX_EAGER, JAX_JIT

__all__ = ["BACKENDS", "CHECKPOINTS", "JAX_EAGER", "JAX_JIT", "MOST_STEPS", "Backend", "taking_turns"]


def of_torch() -> list[Backend]:
    """PyTorch's adapters, where it is installed."""
    if find_spec("torch") is None:
        return []
    from tests.dynloop.torch_backend import TORCH_EAGER

    return [TORCH_EAGER]


def of_compiled_torch() -> list[Backend]:
    """PyTorch under its compiler, which takes seconds for every loop: it takes its turns, and nothing else."""
    if find_spec("torch") is None:
        return []
    from tests.dynloop.torch_backend import TORCH_AOT

    return [TORCH_AOT]


BACKENDS: list[Backend] = [JAX_EAGER, JAX_JIT, *of_torch()]
TAKING_TURNS: list[Backend] = [*BACKENDS, *of_compiled_torch()]
CHECKPOINTS: list[Any] = [1, 2, 3, "auto", "all"]


def taking_turns(names: str, cases: Sequence[Any], *, swapped: bool = False, order: str = "") -> pytest.MarkDecorator:
    """Runs a test for every case, the backends of a library taking turns; `--full` runs the whole product.

    Args:
        names: the test's arguments beside `backend`, as in `pytest.mark.parametrize`.
        cases: a value for one argument; tuples of values for several.
        swapped: let the turns begin with another backend, so that together two tests run every pair.
        order: the second derivative that the test takes; one may be among the cases too.
    """
    several = "," in names
    product = []
    for backend in TAKING_TURNS:
        library = [other for other in TAKING_TURNS if other.library == backend.library]
        for at, case in enumerate(cases):
            values = case if several else (case,)
            orders = {order, *(value for value in values if isinstance(value, str))}
            ways = [other for other in library if not other.orders_refused & orders]
            if backend not in ways:
                continue
            is_turn = ways[(at + swapped) % len(ways)] is backend
            marks = () if is_turn else pytest.mark.full
            label = "-".join(map(str, (backend.name, *values)))
            product.append(pytest.param(backend, *values, marks=marks, id=label))
    return pytest.mark.parametrize(f"backend,{names}", product, indirect=["backend"])


with_checkpoints = taking_turns("checkpoints", CHECKPOINTS)
with_checkpoints_swapped = taking_turns("checkpoints", CHECKPOINTS, swapped=True)
