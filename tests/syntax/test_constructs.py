"""Each construct of the table in docs/syntax.md: rewritten and staged it means what it means in Python."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynloop
from tests.syntax.constructs import FOUND, Construct, Solver

CASES = [(one, arguments) for one in FOUND for arguments in one.arguments]
IDS = [f"{one.function.__name__}-{i}" for one in FOUND for i, _ in enumerate(one.arguments)]

pytestmark = pytest.mark.versions


def staged(arguments: tuple[Any, ...]) -> list[Any]:
    return [jnp.asarray(x) for x in arguments]


def test_the_table_has_thirty_rows() -> None:
    assert len({one.name for one in FOUND}) >= 30


@pytest.mark.parametrize(("one", "arguments"), CASES, ids=IDS)
def test_plain_equals_the_original(one: Construct, arguments: tuple[Any, ...]) -> None:
    expected = one.function(*copy.deepcopy(arguments))
    assert dynloop.loop(one.function)(*copy.deepcopy(arguments)) == expected


@pytest.mark.parametrize(("one", "arguments"), CASES, ids=IDS)
def test_staged_equals_the_original(one: Construct, arguments: tuple[Any, ...]) -> None:
    expected = one.function(*copy.deepcopy(arguments))
    found = jax.jit(dynloop.loop(one.function))(*staged(arguments))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_mangled_name_is_found() -> None:
    solve = dynloop.loop(Solver.solve)
    assert solve(Solver(), 2.0) == Solver().solve(2.0)
    np.testing.assert_allclose(jax.jit(lambda a: solve(Solver(), a))(2.0), Solver().solve(2.0), rtol=1e-12)


@pytest.mark.parametrize("one", [one for one in FOUND if one.function.__name__ in ("root", "chained", "rows")])
def test_gradient_equals_finite_differences(one: Construct) -> None:
    function, (x, *rest) = dynloop.loop(one.function), one.arguments[0]
    array = jnp.asarray(x)
    slope = jax.grad(lambda a: function(a, *rest))(array)
    for at in np.ndindex(array.shape):
        h = 1e-6
        ends = [float(function(array.at[at].add(sign * h), *rest)) for sign in (1, -1)]
        np.testing.assert_allclose(slope[at], (ends[0] - ends[1]) / (2 * h), rtol=1e-3)
