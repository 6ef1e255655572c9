"""Claims about every mode of derivative, loop form and number of checkpoints: each equals the unrolled Python loop's.

By default every pair of mode, form and checkpoints runs in some case; `--full` runs the product, and at its end
docs/correctness.md is written (tests/correctness.py).
"""

from collections.abc import Callable
from itertools import combinations, product

import jax.numpy as jnp
import pytest

from tests import correctness, oracles
from tests.closeness import difference, leaves
from tests.correctness import LIMIT, PROPERTY, Case
from tests.on_jax import matrix

PARTS = (correctness.FORMS, correctness.MODES, correctness.CHECKPOINTS)


def is_by_default(case: Case) -> bool:
    """A square that turns by one form from mode to mode, and from one number of checkpoints to the next."""
    form, mode, checkpoints = (names.index(name) for names, name in zip(PARTS, case, strict=True))
    return (mode + checkpoints) % len(correctness.FORMS) == form


BY_DEFAULT = [case for case in correctness.CASES if is_by_default(case)]


EVERY = [
    pytest.param(case, marks=() if is_by_default(case) else pytest.mark.full, id="-".join(case).replace('"', ""))
    for case in correctness.CASES
]


@pytest.mark.parametrize("case", EVERY)
def test_derivative_equals_unrolled(case: Case, record_property: Callable[[str, object], None]) -> None:
    found, expected = matrix.found(case), matrix.expected(case.mode, case.form)
    # Of zeros everywhere nothing could be learnt.
    assert all(leaf.any() for leaf in leaves(expected))
    error = difference(found, expected)
    record_property(PROPERTY, [*case, error])
    assert error < LIMIT, f"relative difference {error:.3g}\n got      {found}\n expected {expected}"


def test_every_pair_of_mode_form_and_checkpoints_runs_by_default() -> None:
    for one, other in combinations(range(len(PARTS)), 2):
        assert {(case[one], case[other]) for case in BY_DEFAULT} == set(product(PARTS[one], PARTS[other]))


def test_no_smaller_number_of_cases_has_every_pair() -> None:
    assert len(BY_DEFAULT) == len(correctness.MODES) * len(correctness.CHECKPOINTS)


def test_the_document_names_what_the_matrix_has() -> None:
    assert tuple(tuple(names) for names in (matrix.FORMS, matrix.MODES, matrix.CHECKPOINTS)) == PARTS


@pytest.mark.parametrize("form", matrix.FORMS)
def test_loops_take_more_steps_than_they_have_slots(form: str) -> None:
    assert matrix.steps(form, matrix.X, matrix.FORMS[form].limit) == matrix.STEPS
    assert max(keep for keep in matrix.CHECKPOINTS.values() if isinstance(keep, int)) < matrix.STEPS


@pytest.mark.parametrize("form", [form for form in matrix.FORMS if form != "scan"])
def test_lanes_take_different_numbers_of_steps(form: str) -> None:
    lanes = [matrix.steps(form, x, limit) for x, limit in zip(matrix.XS, matrix.FORMS[form].limits, strict=True)]
    assert len(set(lanes)) == len(lanes)
    assert min(lanes) == 0


def test_a_wrong_derivative_is_found() -> None:
    value = matrix.expected("value", "fori_loop")
    assert difference([v * (1 + 2 * LIMIT) for v in value], value) > LIMIT
    assert difference([v + jnp.nan for v in value], value) > LIMIT


def two_further() -> matrix.Loops:
    """The Python loops, running two steps past their end."""
    on = [True, False, False]
    return matrix.Loops(
        lambda cond, body, init: body(body(oracles.unrolled(cond, body, init))),
        lambda lower, upper, body, init: oracles.indexed(lower, int(upper) + 2, body, init),
        lambda step, init, rows, until: matrix.IN_PYTHON.scan(step, init, rows, lambda c: until(c) and on.pop()),
    )


@pytest.mark.parametrize("form", [form for form in matrix.FORMS if form != "scan"])
def test_a_lane_that_goes_too_far_has_no_number(form: str) -> None:
    run, limit = matrix.FORMS[form].run, matrix.FORMS[form].limits[0]
    assert all(jnp.isfinite(y) for y in run(matrix.IN_PYTHON, matrix.XS[0], matrix.W, limit))
    assert any(jnp.isnan(y) for y in run(two_further(), matrix.XS[0], matrix.W, limit))
