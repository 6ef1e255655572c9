"""Claims about `adjoint.actions`: actions are plain values."""

import pickle
from dataclasses import FrozenInstanceError
from typing import get_args

import pytest

from adjoint import Action, Advance, Apply, Discard, Prefetch, Record, Restore, Store, Turn

EVERY = [
    Advance(0, 2),
    Store(0, 1),
    Restore(0, 1),
    Discard(0, 1),
    Turn(0),
    Record(0, 1),
    Apply(0, 1),
    Prefetch(0, 1),
]
TIERED = [Store, Restore, Discard, Record, Apply, Prefetch]


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


@pytest.mark.parametrize("kind", TIERED, ids=lambda kind: kind.__name__)
def test_the_tier_is_the_first_one_unless_told(kind):
    assert kind(0, 1) == kind(0, 1, tier=0) != kind(0, 1, tier=1)


@pytest.mark.parametrize("kind", TIERED, ids=lambda kind: kind.__name__)
def test_an_action_shows_its_tier_where_that_tells_something(kind):
    assert "tier" not in repr(kind(0, 1))
    assert repr(kind(0, 1, 2)).endswith("slot=1, tier=2)")
    names = {other.__name__: other for other in TIERED}
    assert [eval(repr(kind(0, 1, tier)), names) for tier in (0, 2)] == [kind(0, 1), kind(0, 1, 2)]


def test_an_action_is_matched_without_its_tier():
    match Store(3, 1, tier=2):
        case Store(state, slot):
            assert (state, slot) == (3, 1)
