"""Claims about `adjoint.draw` and `adjoint.strokes`: the picture shows what the actions do, and when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoint import Binomial, Record, Schedule, ScheduleError, Store, StoreAll, draw, replay, strokes
from tests.adjoint.chains import TwoTiers
from tests.adjoint.strategies import schedules


@given(schedule=schedules, steps=st.integers(0, 100))
def test_strokes_follow_one_another_and_show_every_action(schedule: Schedule, steps: int) -> None:
    counts, now = replay(schedule, steps), 0
    drawn = list(strokes(schedule, steps))
    for stroke in drawn:
        if stroke.kind != "keep":
            assert stroke.start == now
            now = stroke.stop
    assert now == counts.evaluations
    assert [s.first for s in drawn if s.kind == "turn"] == list(reversed(range(steps)))
    assert sum(s.last - s.first for s in drawn if s.kind == "advance") == counts.advances + counts.recorded
    kept = [s for s in drawn if s.kind == "keep"]
    assert len(kept) == counts.stores == sum(isinstance(a, Record | Store) for a in schedule.actions(steps))
    # No more lines lie side by side than there are slots.
    assert all(sum(s.start <= t < s.stop for s in kept) <= counts.peak_slots for t in range(now))


@given(schedule=schedules, steps=st.integers(1, 100), width=st.integers(1, 90), height=st.integers(1, 30))
def test_a_drawing_has_the_size_that_was_asked_for(schedule: Schedule, steps: int, width: int, height: int) -> None:
    lines = draw(schedule, steps, width, height).splitlines()
    assert len(lines) == min(height, steps) + 2
    assert all(len(line) <= width + 5 for line in lines[:-1])


def test_store_all_is_two_slanted_lines() -> None:
    lines = draw(StoreAll(), 5, width=10).splitlines()[1:-1]
    assert lines == ["   0 \\--------o", "   1  \\------o", "   2   \\----o", "   3    \\--o", "   4     \\o"]


def test_tiers_are_told_apart() -> None:
    text = draw(TwoTiers(10), 50)
    assert "=" in text
    assert "-" in text
    assert {stroke.tier for stroke in strokes(TwoTiers(10), 50) if stroke.kind == "keep"} == {0, 1}


@pytest.mark.parametrize(
    ("options", "words"),
    [((0,), "^steps: got 0"), ((5, 0), "^width: got 0"), ((5, 9, 0), "^height: got 0")],
)
def test_bad_arguments_are_refused_by_name(options: tuple[int, ...], words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        draw(Binomial(3), *options)
