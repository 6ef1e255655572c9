"""The `backend` fixture: a test that takes it runs on every array library, in every way it runs functions."""

import pytest

from tests.dynloop.backends import BACKENDS, Backend


@pytest.fixture(params=BACKENDS, ids=[backend.name for backend in BACKENDS])
def backend(request: pytest.FixtureRequest) -> Backend:
    return request.param
