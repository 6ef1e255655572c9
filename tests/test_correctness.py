"""docs/correctness.md has every case of the matrix, below the limit; and a run that is not whole leaves it alone."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.correctness import CASES, DOCUMENT, LIMIT, PROPERTY, Case, faults, measured, read, recorded, written

WHOLE = {case: at * 1e-16 for at, case in enumerate(CASES)}
FIRST, LAST = CASES[0], CASES[-1]


def test_the_document_has_every_case_of_the_matrix_below_the_limit() -> None:
    assert faults(DOCUMENT.read_text(encoding="utf-8")) == []


def test_what_is_written_is_read_back() -> None:
    entries = read(written(WHOLE))
    assert [case for case, _ in entries] == CASES
    assert [number for _, number in entries] == pytest.approx(list(WHOLE.values()), rel=0.05)


@pytest.mark.parametrize("number", [LIMIT, 1.0, float("inf"), float("nan")])
def test_a_number_that_is_too_large_is_found(number: float) -> None:
    assert len(faults(written(WHOLE | {LAST: number}))) == 1


def test_a_missing_a_renamed_and_a_doubled_case_are_found() -> None:
    text = written(WHOLE)
    row = next(line for line in text.splitlines() if line.startswith("| grad of vmap |"))
    for wrong in (
        text.replace(row + "\n", ""),
        text.replace("## scan\n", "## fold\n"),
        text.replace(row, f"{row}\n{row}"),
    ):
        assert len(faults(wrong)) == 1


def reports(differences: dict[Case, float]) -> list[Any]:
    """As pytest has them: other properties between those of the matrix, and tuples that have become lists."""
    own = [SimpleNamespace(user_properties=[("other", 1), (PROPERTY, [*c, d])]) for c, d in differences.items()]
    return [SimpleNamespace(), SimpleNamespace(user_properties=[]), *own]


def test_cases_are_taken_from_the_properties_of_reports() -> None:
    assert measured(reports({FIRST: 0.5, LAST: 0.25})) == {FIRST: 0.5, LAST: 0.25}


def test_a_run_of_a_part_leaves_the_document_alone(tmp_path: Path) -> None:
    document = tmp_path / "correctness.md"
    said = recorded({"passed": reports({FIRST: 0.0})}, document)
    assert said == f"correctness.md: left as it is, since 1 of {len(CASES)} cases ran"
    assert recorded({"passed": reports({})}, document) is None
    assert not document.exists()


def test_a_whole_run_writes_what_it_saw_and_what_failed_too(tmp_path: Path) -> None:
    document = tmp_path / "correctness.md"
    outcomes = {"passed": reports({c: d for c, d in WHOLE.items() if c != LAST}), "failed": reports({LAST: 0.5})}
    assert recorded(outcomes, document) == f"correctness.md: written, from {len(CASES)} cases"
    assert faults(document.read_text(encoding="utf-8")) == [f"{LAST}: 0.5 is not below {LIMIT}"]
