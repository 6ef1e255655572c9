"""Claims about where a function stands: its name, its file and its first line."""

from functools import partial, wraps
from typing import Any

import numpy as np

from dynloop.location import location


def body(x: Any) -> Any:
    return x


class Solver:
    def step(self, x: Any) -> Any:
        return x

    def __call__(self, x: Any) -> Any:
        return x


def line(function: Any) -> int:
    return function.__code__.co_firstlineno


def test_functions_are_named_with_their_file_and_line() -> None:
    assert location(body) == f"body, test_location.py:{line(body)}"
    assert location(Solver().step) == f"Solver.step, test_location.py:{line(Solver.step)}"


def around() -> Any:
    return lambda x: x


def test_a_lambda_is_named_after_the_function_around_it() -> None:
    assert location(around()) == f"around, test_location.py:{line(around())}"


def test_what_is_wrapped_is_found() -> None:
    @wraps(body)
    def wrapped(x: Any) -> Any:
        return body(x)

    assert location(wrapped) == location(partial(body)) == location(partial(partial(body))) == location(body)


def test_what_has_no_source_is_named_by_its_type() -> None:
    assert location(Solver()) == "a Solver"
    assert location(np.sin) == "a ufunc"
