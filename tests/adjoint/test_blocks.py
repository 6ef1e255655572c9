"""Claims about `Blocks`: it turns blocks of steps with the least advances over whole blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoint import Binomial, Blocks, Online, ScheduleError, Store, advances, replay


@given(slots=st.integers(1, 12), leaf=st.integers(1, 20), n=st.integers(0, 300))
def test_a_chain_of_blocks_takes_the_least_advances(slots: int, leaf: int, n: int) -> None:
    earlier = max(n - leaf, 0)
    blocks = -(-earlier // leaf)
    least = n + leaf * (advances(blocks + 1, slots) - blocks) + (earlier - blocks) + n
    assert replay(Blocks(slots, leaf), n).evaluations == Blocks(slots, leaf).cost(n).evaluations == least
    assert least <= Online(slots, leaf).cost(n).evaluations


@given(slots=st.integers(1, 12), n=st.integers(1, 200))
def test_a_ring_of_one_state_spares_the_last_step_its_slot(slots: int, n: int) -> None:
    # The last step runs on the way forward and at its turn; the others are a chain of their own.
    assert Blocks(slots, 1).cost(n).evaluations == Binomial(slots).cost(n - 1).evaluations + 2


def test_few_steps_use_the_ring_alone() -> None:
    assert {a.slot for a in Blocks(3, leaf=8).actions(8) if isinstance(a, Store)} == set(range(8))
    assert Blocks(3, leaf=8).cost(8).evaluations == 16


@pytest.mark.parametrize(("slots", "leaf", "words"), [(0, 3, "slots: got 0"), (3, 0, "leaf: got 0"), (3, 1.5, "leaf:")])
def test_bad_sizes_are_told(slots: int, leaf: int, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        Blocks(slots, leaf)
