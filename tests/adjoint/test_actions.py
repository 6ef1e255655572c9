"""Claims about `adjoint.actions`: actions are plain values."""

import pickle
from dataclasses import FrozenInstanceError
from typing import get_args

import pytest

from adjoint import Action, Advance, Discard, Restore, Store, Turn

EVERY = [Advance(0, 2), Store(0, 1), Restore(0, 1), Discard(0, 1), Turn(0)]


@pytest.mark.parametrize("action", EVERY, ids=repr)
def test_actions_compare_hash_and_pickle_as_values(action: Action):
    copy = pickle.loads(pickle.dumps(action))
    assert copy == action
    assert hash(copy) == hash(action)


@pytest.mark.parametrize("action", EVERY, ids=repr)
def test_actions_are_frozen(action: Action):
    field = "step" if isinstance(action, Turn) else "start" if isinstance(action, Advance) else "slot"
    with pytest.raises(FrozenInstanceError):
        setattr(action, field, 7)


def test_actions_of_different_kinds_differ():
    assert len(set(EVERY)) == len(EVERY)
    assert Store(0, 1) != Restore(0, 1)


def test_the_union_names_every_action():
    assert {type(action) for action in EVERY} == set(get_args(Action))


@pytest.mark.parametrize("action", EVERY, ids=repr)
def test_each_docstring_reads_its_action_aloud(action: Action):
    assert "This action is read as: " in (type(action).__doc__ or "")
