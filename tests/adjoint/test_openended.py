"""Claims about schedules for chains whose end nobody knows: how far they reach, and which are online."""

import pytest

from adjoint import Binomial, Online, Periodic, Schedule, ScheduleError, StoreAll
from adjoint.openended import checked_online, forward_pass, longest

LARGEST = 2**31 - 1


@pytest.mark.parametrize(
    ("schedule", "steps"),
    [(Online(3), LARGEST), (StoreAll(), LARGEST), (Online(0, leaf=40), 40), (Online(0, leaf=1), 1)],
    ids=repr,
)
def test_the_longest_chain_is_found(schedule: Schedule, steps: int) -> None:
    assert longest(schedule) == steps


@pytest.mark.parametrize(
    "schedule", [Online(1), Online(8), Online(3, leaf=5), Online(0, leaf=40), Periodic(7), StoreAll()], ids=repr
)
def test_online_schedules_pass(schedule: Schedule) -> None:
    checked_online(schedule, longest(schedule))


@pytest.mark.parametrize("schedule", [Binomial(2), Binomial(8), Binomial(100), Binomial(3, joined=True)], ids=repr)
def test_offline_schedules_are_refused(schedule: Schedule) -> None:
    with pytest.raises(ScheduleError, match=r"^schedule: got Binomial.*such as Online\(slots\), or give steps"):
        checked_online(schedule, longest(schedule))


def test_the_forward_pass_ends_before_the_first_restore_or_turn() -> None:
    actions = list(Binomial(2).actions(5))
    assert list(forward_pass(actions)) == actions[:4]
