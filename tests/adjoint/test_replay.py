"""Claims about `adjoint.replay`: each invariant has a broken schedule that it catches, and says so in words."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoint import (
    Advance,
    Apply,
    Binomial,
    Counts,
    Discard,
    InvariantError,
    Prefetch,
    Record,
    Restore,
    Schedule,
    ScheduleError,
    Store,
    Tier,
    Traffic,
    Turn,
    replay,
)
from tests.adjoint.strategies import schedules


@dataclass
class Script:
    """Whatever actions a test makes up, for two steps."""

    made_up: list[Any]

    def actions(self, steps: int) -> Iterator[Any]:
        return iter(self.made_up)


GOOD = [Store(0, 0), Advance(0, 1), Turn(1), Restore(0, 0), Turn(0)]

BROKEN: dict[str, tuple[list[Any], int, str]] = {
    "advance from elsewhere": ([Advance(1, 2)], 0, "it starts at state 1, but the working state is 0"),
    "advance from nothing": ([*GOOD[:3], Advance(0, 1)], 3, "it starts at state 0, but there is no working state"),
    "advance of no step": ([Advance(0, 0)], 0, "it runs no step: stop must be greater than start"),
    "advance backwards": ([Advance(0, 1), Advance(1, 0)], 1, "it runs no step"),
    "advance past the end": ([Advance(0, 3)], 0, "it runs past the end: the chain's last state is 2"),
    "store of another state": ([Store(1, 0)], 0, "it stores state 1, but the working state is 0"),
    "store of nothing": ([*GOOD[:3], Store(0, 0)], 3, "it stores state 0, but there is no working state"),
    "store below the slots": ([Store(0, -1)], 0, "there is no slot with a negative number"),
    "store beyond the slots": ([Store(0, 1)], 0, "there are 1 slots, numbered from 0: slot 1 is not one of them"),
    "restore from an empty slot": ([Restore(0, 0)], 0, "it restores state 0, but slot 0 holds nothing"),
    "restore of another state": ([Store(0, 0), Restore(1, 0)], 1, "it restores state 1, but slot 0 holds state 0"),
    "restore after a discard": ([Store(0, 0), Discard(0, 0), Restore(0, 0)], 2, "slot 0 holds nothing"),
    "restore of what was overwritten": (
        [Store(0, 0), Advance(0, 1), Store(1, 0), Restore(0, 0)],
        3,
        "it restores state 0, but slot 0 holds state 1",
    ),
    "discard from an empty slot": ([Discard(0, 0)], 0, "it discards state 0, but slot 0 holds nothing"),
    "discard of another state": ([Store(0, 0), Discard(1, 0)], 1, "it discards state 1, but slot 0 holds state 0"),
    "turn too early": ([Turn(0)], 0, "the next one is step 1"),
    "turn from another state": ([Turn(1)], 0, "step 1 starts from state 1, but the working state is 0"),
    "turn twice": ([*GOOD[:3], Turn(1)], 3, "the next one is step 0"),
    "turn from nothing": ([*GOOD[:3], Turn(0)], 3, "step 0 starts from state 0, but there is no working state"),
    "record from elsewhere": ([Record(1, 0)], 0, "step 1 starts from state 1, but the working state is 0"),
    "record of a turned step": (
        [*GOOD[:4], Advance(0, 1), Record(1, 0)],
        5,
        "step 1 is turned already: a tape of it has no use",
    ),
    "apply too early": ([Record(0, 0), Apply(0, 0)], 1, "the next one is step 1"),
    "apply of a state": ([Store(0, 0), Advance(0, 1), Store(1, 0), Apply(1, 0)], 3, "but slot 0 holds state 1"),
    "apply of nothing": ([Apply(1, 0)], 0, "it applies the tape of step 1, but slot 0 holds nothing"),
    "apply after the end": ([*GOOD, Apply(0, 0)], 5, "every step is turned already"),
    "restore of a tape": ([Record(0, 0), Restore(0, 0)], 1, "restores state 0, but slot 0 holds the tape of step 0"),
    "prefetch of nothing": ([Prefetch(0, 0)], 0, "it announces state 0, but slot 0 holds nothing"),
    "prefetch twice": ([Store(0, 0), Prefetch(0, 0), Prefetch(0, 0)], 2, "is announced already, by action 1"),
    "discard of what is announced": ([Store(0, 0), Prefetch(0, 0), Discard(0, 0)], 2, "is not restored yet"),
    "store over what is announced": ([Store(0, 0), Prefetch(0, 0), Store(0, 0)], 2, "it would be lost"),
    "store in no tier": ([Store(0, 0, tier=1)], 0, "there are 1 tiers, numbered from 0: tier 1 is not one of them"),
    "store below the tiers": ([Store(0, 0, tier=-1)], 0, "there is no tier with a negative number"),
    "turn after the end": ([*GOOD, Turn(0)], 5, "every step is turned already"),
    "something else": (["Turn"], 0, "it is no action of this package"),
}


def test_the_unbroken_script_passes():
    assert replay(Script(GOOD), 2, slots=1) == Counts(
        advances=1,
        turns=2,
        stores=1,
        restores=1,
        discards=0,
        peak_slots=1,
        delivered=False,
        traffic=(Traffic(slots=1, stores=1, restores=1),),
    )


@pytest.mark.parametrize(("actions", "position", "words"), BROKEN.values(), ids=BROKEN)
def test_the_first_broken_invariant_is_told_in_words(actions: list[Any], position: int, words: str):
    with pytest.raises(InvariantError) as caught:
        replay(Script(actions), 2, slots=1)
    assert words in str(caught.value)
    assert caught.value.position == position
    assert caught.value.action == actions[position]


@pytest.mark.parametrize("length", range(len(GOOD)))
def test_a_schedule_that_ends_early_is_caught(length: int):
    with pytest.raises(InvariantError, match=rf"^after {length} actions the schedule ended: steps 0\.\.[01] are not"):
        replay(Script(GOOD[:length]), 2)


@given(schedule=schedules, steps=st.integers(1, 60), data=st.data())
def test_a_schedule_without_one_of_its_actions_is_caught(schedule: Schedule, steps: int, data: st.DataObject):
    actions = list(schedule.actions(steps))
    needed = [i for i, action in enumerate(actions) if isinstance(action, Turn | Apply)]
    missing = data.draw(st.sampled_from(needed))
    with pytest.raises(InvariantError):
        replay(Script(actions[:missing] + actions[missing + 1 :]), steps)


@given(steps=st.integers(2, 80), slots=st.integers(2, 10))
def test_one_slot_too_few_is_caught(steps: int, slots: int):
    used = Binomial(slots).cost(steps).slots
    with pytest.raises(InvariantError, match=rf"there are {used - 1} slots"):
        replay(Binomial(slots), steps, slots=used - 1)


def test_an_overwritten_slot_counts_once_at_its_peak():
    counts = replay(Script([Store(0, 0), Store(0, 0), Advance(0, 1), Turn(1), Restore(0, 0), Turn(0)]), 2, slots=1)
    assert (counts.stores, counts.peak_slots) == (2, 1)


@pytest.mark.parametrize(
    ("actions", "delivered"),
    [
        ([Store(0, 0), Advance(0, 2), Restore(0, 0), Advance(0, 1), Turn(1), Restore(0, 0), Turn(0)], True),
        ([Store(0, 0), Advance(0, 1), Turn(1), Restore(0, 0), Advance(0, 2), Restore(0, 0), Turn(0)], False),
    ],
    ids=["before the first turn", "after it"],
)
def test_delivery_means_before_the_first_turn(actions: list[Any], delivered: bool):
    assert replay(Script(actions), 2).delivered is delivered


def test_no_steps_are_delivered_as_they_are():
    assert replay(Script([]), 0) == Counts(0, 0, 0, 0, 0, 0, delivered=True)


@pytest.mark.parametrize(("steps", "slots", "name"), [(-1, None, "steps"), (2, -1, "slots")])
def test_bad_arguments_are_refused_by_name(steps: int, slots: int | None, name: str):
    with pytest.raises(ScheduleError, match=rf"^{name}: got"):
        replay(Script(GOOD), steps, slots)


TIERS = (Tier("memory", 1), Tier("disk", 2, write=5, read=3, buffers=1))
BROKEN_IN_TIERS: dict[str, tuple[list[Any], str]] = {
    "beyond a tier": ([Store(0, 2, tier=1)], "there are 2 slots in tier 1, numbered from 0: slot 2 is not one of them"),
    "beyond the tiers": ([Store(0, 0, tier=2)], "there are 2 tiers, numbered from 0: tier 2 is not one of them"),
    "in another tier": ([Store(0, 0, tier=1), Restore(0, 0)], "it restores state 0, but slot 0 holds nothing"),
    "of another state there": (
        [Store(0, 0, tier=1), Restore(1, 0, tier=1)],
        "it restores state 1, but slot 0 of tier 1 holds state 0",
    ),
    "more announced than buffers": (
        [*(Store(0, slot, tier=1) for slot in (0, 1)), *(Prefetch(0, slot, tier=1) for slot in (0, 1))],
        "tier 1 has 1 buffers, and 1 announced states wait in them",
    ),
    "announced in vain": (
        [Store(0, 0, tier=1), Prefetch(0, 0, tier=1), Record(0, 0), Turn(1), Apply(0, 0)],
        "slot 0 of tier 1 holds state 0, which action 1 announced, and which was never restored",
    ),
}


@pytest.mark.parametrize(("actions", "words"), BROKEN_IN_TIERS.values(), ids=BROKEN_IN_TIERS)
def test_the_first_broken_invariant_in_a_tier_is_told(actions: list[Any], words: str):
    with pytest.raises(InvariantError) as caught:
        replay(Script(actions), 2, tiers=TIERS)
    assert words in str(caught.value)


def test_traffic_is_counted_by_tier():
    script = [Store(0, 1, tier=1), Record(0, 0), Turn(1), Restore(0, 1, tier=1), Apply(0, 0)]
    counts = replay(Script(script), 2, tiers=TIERS)
    assert counts.traffic == (Traffic(slots=1, stores=1, restores=1), Traffic(slots=1, stores=1, restores=1))
    assert (counts.stores, counts.restores, counts.recorded, counts.peak_slots) == (2, 2, 1, 2)


def test_a_tape_that_is_not_applied_is_an_evaluation_in_vain():
    counts = replay(Script([Store(0, 0), Record(0, 1), Turn(1), Restore(0, 0), Turn(0)]), 2)
    assert (counts.advances, counts.unused, counts.evaluations) == (0, 1, 3)


def test_slots_and_tiers_together_are_refused():
    with pytest.raises(ScheduleError, match=r"^slots: got 3, expected None beside tiers"):
        replay(Script(GOOD), 2, slots=3, tiers=TIERS)
