"""Claims about loops on several devices: values and gradients, with devices that take different numbers of steps."""

import pytest

from tests.closeness import assert_close
from tests.on_jax import sharded_loops
from tests.on_jax.device_process import results, start


@pytest.fixture(scope="module")
def loops():
    return results(start("tests.on_jax.sharded_loops", 8))


@pytest.mark.parametrize("case", sharded_loops.CASES)
def test_devices_agree_with_loops_in_python(case: str, loops):
    assert isinstance(loops[case], list), loops[case]
    assert_close(*loops[case])
