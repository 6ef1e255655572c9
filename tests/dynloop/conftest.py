"""The `backend` fixture: a test that takes it runs on every array library, in every way it runs functions."""

from collections.abc import Iterator

import pytest

from tests.dynloop.backends import BACKENDS, Backend


@pytest.fixture(params=BACKENDS, ids=[backend.name for backend in BACKENDS])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """With 64 bits for numbers that are floats, whatever the library's own default is."""
    with request.param.in_double_precision():
        yield request.param
