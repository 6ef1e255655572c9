"""Claims about `adjoint.tiers`: a tier is a value, and bad ones are refused by name."""

import pickle
from fractions import Fraction
from math import inf, nan
from typing import Any

import pytest

from adjoint import DiskRevolve, HRevolve, Multistage, ScheduleError, Tier
from adjoint.tiers import checked_tiers, slots_within

MEMORY, DISK = Tier("memory", 4), Tier("disk", 9, write=3, read=2)


def test_tiers_compare_hash_and_pickle_as_values():
    copy = pickle.loads(pickle.dumps(DISK))
    assert copy == DISK
    assert hash(copy) == hash(DISK)
    assert Tier("disk", 9, write=3, read=1) != DISK


@pytest.mark.parametrize("name", ["write", "read"])
@pytest.mark.parametrize("given", [-1, -0.5, nan, inf, -inf, None, "3", True, [1, 2]], ids=repr)
def test_what_is_no_cost_is_refused_by_name(name: str, given):
    with pytest.raises(ScheduleError, match=rf"^{name}: got .*, expected a finite number >= 0; give the cost"):
        Tier("disk", 9, **{name: given})


def test_whatever_is_a_number_is_a_cost():
    half: Any = Fraction(1, 2)
    assert Tier("disk", 9, write=half).write == 0.5
    assert isinstance(Tier("disk", 9, write=2).write, int)


@pytest.mark.parametrize("given", [0, -2, 1.5, True], ids=repr)
def test_a_tier_without_room_is_refused(given):
    with pytest.raises(ScheduleError, match=r"^slots: got .*, expected an integer >= 1; a tier without room"):
        Tier("disk", given)


@pytest.mark.parametrize(("name", "given"), [("name", ""), ("name", 3), ("buffers", -1), ("buffers", 0.5)])
def test_other_bad_arguments_are_refused_by_name(name: str, given):
    with pytest.raises(ScheduleError, match=rf"^{name}: got"):
        Tier(**{"name": "disk", "slots": 9, name: given})


def test_any_number_of_slots_is_none():
    assert Tier("disk", None).slots is None


@pytest.mark.parametrize(
    ("tiers", "words"),
    [
        ((), "expected 1 or more of adjoint.Tier"),
        (None, "expected 1 or more of adjoint.Tier"),
        ((MEMORY, 3), "expected 1 or more of adjoint.Tier"),
        ((MEMORY, MEMORY), "a different name for each"),
        ((DISK, MEMORY), "'memory' to write and to read no faster than 'disk'"),
        ((Tier("a", 1, write=1), Tier("b", 1, read=1)), "'b' to write and to read no faster than 'a'"),
    ],
    ids=["none", "nothing", "a number", "one name twice", "slowest first", "faster to write"],
)
def test_what_are_no_ordered_tiers_is_refused(tiers, words: str):
    with pytest.raises(ScheduleError, match=rf"^tiers: got .*{words}"):
        HRevolve(tiers)


def test_a_list_of_tiers_will_do():
    given: Any = [MEMORY, DISK]
    schedule = HRevolve(given)
    assert schedule == HRevolve((MEMORY, DISK))
    assert hash(schedule) == hash(HRevolve((MEMORY, DISK)))


def test_the_order_may_be_left_to_the_caller():
    assert checked_tiers([DISK, MEMORY], ordered=False) == (DISK, MEMORY)


@pytest.mark.parametrize("count", [1, 3])
def test_multistage_takes_two_tiers(count: int):
    tiers = tuple(Tier(str(k), 3) for k in range(count))
    with pytest.raises(ScheduleError, match=r"^tiers: got .*, expected 2 of adjoint\.Tier"):
        Multistage(tiers)


def test_multistage_needs_a_number_of_slots():
    with pytest.raises(ScheduleError, match=r"^tiers: got .*slots=None.*; give the number of slots, or use"):
        Multistage((MEMORY, Tier("disk", None)))


@pytest.mark.parametrize(("name", "given"), [("slots", 0), ("write", -1), ("read", nan), ("step_cost", inf)])
def test_disk_revolve_refuses_by_name(name: str, given):
    with pytest.raises(ScheduleError, match=rf"^{name}: got"):
        DiskRevolve(**{"slots": 3, "write": 1, "read": 1, name: given})


@pytest.mark.parametrize(("bytes", "size", "besides", "slots"), [(100, 10, 0, 10), (99, 10, 0, 9), (99, 10, 8, 1)])
def test_as_many_slots_as_fit(bytes: int, size: int, besides: int, slots: int):
    assert slots_within(bytes, size, besides) == slots


@pytest.mark.parametrize(("bytes", "besides", "least"), [(9, 0, 10), (19, 1, 20), (0, 0, 10)])
def test_memory_for_no_state_is_refused(bytes: int, besides: int, least: int):
    with pytest.raises(ScheduleError, match=rf"^bytes: got {bytes}, expected at least {least} for states of 10 bytes"):
        slots_within(bytes, 10, besides)


@pytest.mark.parametrize(("bytes", "size", "name"), [(-1, 10, "bytes"), (10.5, 10, "bytes"), (10, 0, "state_bytes")])
def test_what_is_no_size_is_refused(bytes, size, name: str):
    with pytest.raises(ScheduleError, match=rf"^{name}: got"):
        slots_within(bytes, size)
