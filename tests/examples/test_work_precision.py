"""The solver kit's story, at one tolerance: its table beside scipy's, its gradients in both modes, its picture."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.user_process import ROOT


@pytest.fixture(scope="module")
def story() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "examples"))
        return import_module("work_precision")


def test_table_has_the_evaluations_of_scipy_and_the_picture_is_drawn(story: Any, tmp_path: Path, capsys: Any) -> None:
    rows = story.main(tmp_path / "picture.png", tolerances=(1e-7,))
    scipy, ours, others = rows[0], rows[1], rows[2:]
    assert abs(ours.evaluations - scipy.evaluations) <= 0.1 * scipy.evaluations
    assert ours.error < 2 * scipy.error
    assert all(row.error < 1e-2 for row in others)
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")

    numbers = {line.split("  ")[-1].strip(): line for line in capsys.readouterr().out.splitlines() if "mode" in line}
    assert set(numbers) == {"forward mode", "reverse mode"}
    printed = [np.array([float(word) for word in line.split()[:4]]) for line in numbers.values()]
    known = story.by_variational_equations(story.ARENSTORF.end / 4)
    for found in printed:
        np.testing.assert_allclose(found, known, rtol=1e-6)
