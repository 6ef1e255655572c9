"""Claims about the comparison that the suite's gradients rest on: it sees what it must."""

import numpy as np
import pytest

from tests.closeness import assert_close, difference

VALUES = (np.array([1.0, -2.0]), {"a": np.array(3.0)})


def test_equal_trees_do_not_differ():
    assert difference(VALUES, ([1.0, -2.0], {"a": 3.0})) == float("inf")
    assert difference(VALUES, (np.array([1.0, -2.0]), {"a": 3.0})) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        (np.array([1.0, -2.0]), {"a": np.array(3.0 + 1e-11)}),
        (np.array([1.0, np.nan]), {"a": np.array(3.0)}),
        (np.array([1.0]), {"a": np.array(3.0)}),
        (np.array([1.0, -2.0]), {"a": np.array(0.0)}),
    ],
    ids=["slightly off", "NaN", "shape", "zero"],
)
def test_a_wrong_leaf_is_caught(wrong: object):
    with pytest.raises(AssertionError, match="relative difference"):
        assert_close(wrong, VALUES)
