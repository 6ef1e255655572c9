"""The stories run on every array library in its usual way, and are imported as a user does who stands beside them."""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

from tests.dynloop.backends import BACKENDS, Backend
from tests.user_process import ROOT

USUAL = [backend for backend in BACKENDS if backend.name != "jax-eager"]


@pytest.fixture(params=USUAL, ids=[backend.name for backend in USUAL])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """With 64 bits for numbers that are floats."""
    with request.param.in_double_precision():
        yield request.param


@pytest.fixture(scope="session")
def story() -> Callable[[str], Any]:
    """Imports an example by the name of its file."""

    def load(name: str) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(ROOT / "examples"))
            return import_module(name)

    return load
