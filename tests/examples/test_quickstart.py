"""The example that README runs: its numbers, and the script as a user starts it."""

from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import adjoint
from tests.user_process import ROOT, run_python


@pytest.fixture(scope="module")
def quickstart() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "examples"))
        return import_module("quickstart")


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quickstart") / "quickstart.png"


@pytest.fixture(scope="module")
def report(quickstart: Any, picture: Path) -> Any:
    return quickstart.main(picture)


def test_fit_equals_the_fit_by_scipy(report: Any) -> None:
    np.testing.assert_allclose(report.fitted, report.independent, rtol=1e-3)


def test_fit_lies_within_its_standard_errors_of_the_literature(quickstart: Any, report: Any) -> None:
    # The literature gives posterior means: those of a likelihood alone would differ from its maximum by less than its
    # width, which the curvature at the maximum tells.
    times, pelts = quickstart.read_record()
    found, by = np.log(report.fitted), 1e-4
    slope = lambda logarithms: np.asarray(quickstart.misfit_and_gradient(logarithms, times, pelts)[1])
    curvature = np.array([(slope(found + shift) - slope(found - shift)) / (2 * by) for shift in by * np.eye(8)])
    errors = np.sqrt(np.diag(np.linalg.inv((curvature + curvature.T) / 2)))
    literature = np.log([float(mean) for _, _, mean in quickstart.PARAMETERS[:4]])
    assert np.all(np.linalg.eigvalsh((curvature + curvature.T) / 2) > 0)
    assert np.all(abs(found[:4] - literature) < errors[:4])


def test_gradient_equals_central_differences(report: Any) -> None:
    assert np.all(abs(report.gradient) > 1)
    assert report.gradient_error < 1e-7


def test_some_steps_are_rejected(report: Any) -> None:
    assert report.rejected > 0
    assert report.accepted > 20


def test_executed_evaluations_are_those_predicted(report: Any) -> None:
    assert report.optimal <= report.executed == report.predicted
    assert report.executed > 2 * report.steps, "a few states of many must have made it recompute"


def test_counted_evaluations_are_those_of_the_replay(quickstart: Any) -> None:
    times, pelts = (column[:3] for column in quickstart.read_record())
    guess = quickstart.first_guess(pelts)
    end = jax.jit(quickstart.misfit)(guess, times, pelts)[1]
    counts = adjoint.replay(adjoint.Online(quickstart.SLOTS), int(end.accepted + end.rejected))
    assert quickstart.evaluations(guess, times, pelts) == counts.advances + counts.turns


def test_bytes_are_those_of_a_state(report: Any) -> None:
    # time, step, error; value and slope; 21 saved rows, in float64; three int32 counters.
    assert report.state_bytes == 8 * (3 + 4 + 21 * 2) + 4 * 3


def test_record_has_a_pair_of_numbers_for_each_year(quickstart: Any) -> None:
    times, pelts = quickstart.read_record()
    np.testing.assert_array_equal(times, np.arange(21))
    assert pelts.shape == (21, 2)
    assert np.all(pelts > 0)


def test_picture_is_drawn(report: Any, picture: Path) -> None:
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_script_runs_for_a_user() -> None:
    printed = run_python("examples/quickstart.py")
    assert "literature" in printed
    assert "central differences" in printed
