"""Claims about `adjoint.errors`: errors name the argument, the value, the expectation and the way out."""

import pickle

import numpy as np
import pytest

from adjoint import AdjointError, InvariantError, ScheduleError, Turn
from adjoint.errors import checked_integer


@pytest.mark.parametrize("given", [-1, 1.0, "3", None, True, np.array([1, 2])], ids=repr)
def test_what_is_no_count_is_refused_by_name(given: object):
    with pytest.raises(ScheduleError, match=r"^slots: got .*, expected an integer >= 0; give a count\.$"):
        checked_integer("slots", given, 0, "give a count")


@pytest.mark.parametrize("given", [3, np.int32(3), np.array(3)], ids=repr)
def test_integers_of_array_libraries_become_exact(given: object):
    assert type(checked_integer("slots", given, 0, "give a count")) is int


@pytest.mark.parametrize(
    "error",
    [ScheduleError("a", 1, "b", "c"), InvariantError(3, Turn(2), "why"), InvariantError(3, None, "why")],
    ids=repr,
)
def test_errors_survive_pickling(error: AdjointError):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)


def test_a_bad_argument_is_a_value_error():
    assert issubclass(ScheduleError, ValueError)
