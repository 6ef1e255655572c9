"""Claims about `dynloop.explain` that hold for every array library: what it takes, and what it refuses."""

import inspect
from typing import Any

import pytest

import dynloop
from tests.dynloop.backends import Backend


def doubled(x: Any) -> Any:
    return dynloop.while_loop(lambda x: x < 10, lambda x: x * 2, x)


def test_wrong_functions_are_told() -> None:
    with pytest.raises(dynloop.ArgumentTypeError, match=r"^explain: fn must be a function that calls loops; got"):
        dynloop.explain(1.5)  # pyright: ignore[reportArgumentType]


def test_arguments_without_an_array_are_told() -> None:
    with pytest.raises(dynloop.BackendError, match="explain: no array in args tells which library runs it"):
        dynloop.explain(doubled)(1.5)


def test_an_unknown_backend_is_told() -> None:
    with pytest.raises(dynloop.ArgumentError, match="explain: backend='numpy' is unknown"):
        dynloop.explain(doubled, backend="numpy")(1.5)


def test_debugging_is_told(backend: Backend) -> None:
    with (
        dynloop.debug(),
        pytest.raises(dynloop.ArgumentError, match=r"explain: under dynloop\.debug\(\) a loop is plain Python"),
    ):
        dynloop.explain(doubled)(backend.asarray(1.5))


def test_the_function_keeps_its_name_and_returns_a_report() -> None:
    explained = dynloop.explain(doubled)
    assert explained.__name__ == "doubled"
    assert inspect.get_annotations(explained)["return"] is dynloop.Report
