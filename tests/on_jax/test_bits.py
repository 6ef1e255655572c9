"""Claims about the last bit: no `checkpoints` changes one, where the processor rounds every operation."""

import json

import pytest

from tests.on_jax.bits import CHECKPOINTS, LOOPS
from tests.user_process import run_python

Bits = dict[str, dict[str, tuple[str, float]]]


@pytest.fixture(scope="module")
def bits() -> Bits:
    return json.loads(run_python("-m", "tests.on_jax.bits", timeout=120))


@pytest.mark.parametrize("loop", LOOPS)
def test_gradients_are_bit_identical_for_every_checkpoints(bits: Bits, loop: str):
    assert len({gradient for gradient, _ in bits[loop].values()}) == 1
    assert len(bits[loop]) == len(CHECKPOINTS)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("checkpoints", CHECKPOINTS)
def test_gradients_at_full_optimisation_equal_unrolled(bits: Bits, loop: str, checkpoints: object):
    assert bits[loop][str(checkpoints)][1] <= 1e-12


def test_one_loop_has_other_bits_than_another(bits: Bits):
    assert len({gradient for found in bits.values() for gradient, _ in found.values()}) == len(LOOPS)
