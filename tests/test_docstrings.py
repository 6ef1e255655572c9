"""The examples in the docstrings of public names run, in a process as a user starts it."""

import importlib
import json

import pytest

from tests.docstrings import run_examples
from tests.house import PACKAGES
from tests.user_process import run_python

PUBLIC = [(package, name) for package in PACKAGES for name in importlib.import_module(package).__all__]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, tuple[int, str]]]:
    return {package: json.loads(run_python("-m", "tests.docstrings", package)) for package in PACKAGES}


@pytest.mark.parametrize(("package", "name"), PUBLIC)
def test_examples_run(package: str, name: str, outcomes: dict[str, dict[str, tuple[int, str]]]) -> None:
    _, failures = outcomes[package][name]
    assert failures == ""


def test_examples_are_found(outcomes: dict[str, dict[str, tuple[int, str]]]) -> None:
    assert all(sum(count for count, _ in outcomes[package].values()) > 0 for package in PACKAGES)


def test_a_wrong_example_is_found() -> None:
    def wrong() -> None:
        """One sentence.

        >>> 1 + 1
        3
        """

    count, failures = run_examples(wrong, "wrong", {})
    assert count == 1
    assert "Expected:\n    3\nGot:\n    2" in failures
