"""Claims about reports of loops: they follow from what a backend tells, and read well."""

from collections import Counter

import pytest

import adjoint
import dynloop
from dynloop.checkpoints import Layout
from dynloop.report import Site, report_of


def site(layout: Layout | None, *, has_gradient: bool = True, is_known: bool = False, lanes: int = 1) -> Site:
    rows = layout.rows if layout else 0
    return Site(
        "while_loop", "solve, heat.py:12", layout, has_gradient, is_known, False, lanes, 512, 512 * rows * lanes
    )


def loop(site: Site, forward: dict[int, int], reversed: dict[int, int] | None = None) -> dynloop.LoopReport:
    return report_of({site: Counter(forward)}, {site: Counter(reversed)} if reversed else {}).loops[0]


SCHEDULES = {
    "slots": (site(Layout(8, 0)), adjoint.Online(8)),
    "slots and leaf rows": (site(Layout(8, 5)), adjoint.Online(8, leaf=5)),
    "every state": (site(Layout(0, 40)), adjoint.StoreAll()),
    "known": (site(Layout(8, 0), is_known=True), adjoint.Binomial(8)),
    "known, with leaf rows": (site(Layout(8, 5), is_known=True), adjoint.Blocks(8, 5)),
    "every block": (site(Layout(8, 5, is_complete=True), is_known=True), adjoint.Online(8, leaf=5)),
    "no gradient": (site(None, has_gradient=False), None),
}


@pytest.mark.parametrize(("place", "schedule"), SCHEDULES.values(), ids=SCHEDULES)
def test_the_schedule_is_that_of_the_layout(place: Site, schedule: adjoint.Schedule | None) -> None:
    assert place.schedule == schedule
    evaluations = adjoint.replay(schedule, 37).evaluations if schedule else 37
    assert loop(place, {37: 1}).evaluations == evaluations


def test_numbers_add_up_over_runs() -> None:
    found = loop(site(Layout(3, 0)), {10: 2, 20: 1}, {20: 1})
    ten, twenty = (adjoint.replay(adjoint.Online(3), n).evaluations for n in (10, 20))
    assert (found.runs, found.reversals, found.steps, found.longest) == (3, 1, 40, 20)
    assert found.evaluations == 2 * ten + twenty
    assert found.executed == 20 + twenty
    assert found.least == 2 * (adjoint.advances(11, 3) + 10) + adjoint.advances(21, 3) + 20
    assert found.ratio == found.evaluations / found.least


def test_a_gradient_that_reads_no_state_runs_the_steps_twice() -> None:
    found = loop(site(None), {10: 1}, {10: 1})
    assert (found.schedule, found.evaluations, found.least, found.executed) == (None, 20, 20, 20)


def test_a_report_reads_as_a_table() -> None:
    found = loop(site(Layout(8, 0), lanes=3), {100: 1}, {100: 1})
    assert str(found).splitlines() == [
        "while_loop of solve, heat.py:12",
        "  ran         1 time, 100 steps",
        "  reversed    1 time, 100 steps",
        "  lanes       3, of which the longest counts",
        "  evaluated   349 times",
        "  keeps       8 slots of 512 B, 13.8 kB in all",
        "  schedule    Online(slots=8, leaf=0)",
        "  gradient    349 evaluations, 3.49 for each step",
        "    least     348, for as many states: a ratio of 1.0029",
    ]


LINES = {
    "several runs": (site(Layout(8, 0)), {3: 1, 7: 2}, "ran         3 times, 17 steps in all, 3 to 7 each"),
    "equal runs": (site(Layout(8, 0)), {7: 2}, "ran         2 times, 14 steps in all, 7 each"),
    "no run": (site(Layout(8, 0)), {}, "ran         never"),
    "no step": (site(Layout(8, 0)), {0: 1}, "ran         1 time, 0 steps"),
    "leaf rows": (site(Layout(1, 4)), {9: 1}, "keeps       1 slot and 4 leaf rows of 512 B, 3.1 kB in all"),
    "no gradient": (site(None, has_gradient=False), {9: 1}, "keeps       no state: checkpoints=0"),
    "no state": (site(None), {9: 1}, "keeps       no state: its gradient reads none"),
}


@pytest.mark.parametrize(("place", "runs", "line"), LINES.values(), ids=LINES)
def test_what_a_loop_did_is_told(place: Site, runs: dict[int, int], line: str) -> None:
    assert f"  {line}" in str(loop(place, runs)).splitlines()


def test_the_picture_is_that_of_the_longest_run() -> None:
    axes = loop(site(Layout(3, 0)), {10: 2, 20: 1}).picture().axes[0]
    assert axes.get_ylim() == (20.0, 0.0)
    assert axes.get_xlim() == (0.0, adjoint.replay(adjoint.Online(3), 20).evaluations)


NOTHING = [(site(None), {9: 1}, "no state"), (site(Layout(3, 0)), {0: 1}, "no step")]


@pytest.mark.parametrize(("place", "runs", "words"), NOTHING)
def test_nothing_to_draw_is_told(place: Site, runs: dict[int, int], words: str) -> None:
    with pytest.raises(dynloop.ArgumentError, match=f"^picture: the while_loop .*{words}"):
        loop(place, runs).picture()
