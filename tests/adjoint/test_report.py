"""Claims about `adjoint.explain`: its counts are replay's, its times the sum of what was given, its words plain."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjoint import (
    AdjointError,
    Binomial,
    Online,
    Periodic,
    Schedule,
    StoreAll,
    Tier,
    advances,
    explain,
    replay,
    reverse,
)
from adjoint.report import in_bytes, in_unit
from tests.adjoint.chains import SEED, START, TwoTiers, apply, record, step, turn
from tests.adjoint.strategies import schedules


@given(schedule=schedules, steps=st.integers(0, 120))
def test_counts_equal_those_of_a_replay(schedule: Schedule, steps: int) -> None:
    report, counts = explain(schedule, steps, state_bytes=7), replay(schedule, steps)
    assert report.evaluations == counts.evaluations
    assert [use.bytes for use in report.uses] == [7 * use.slots for use in report.uses]
    found = [(use.slots, use.stores, use.restores) for use in report.uses]
    assert found[: len(counts.traffic)] == [(there.slots, there.stores, there.restores) for there in counts.traffic]
    assert not any(any(use) for use in found[len(counts.traffic) :])
    assert report.extra == max(counts.evaluations - 2 * steps, 0)


@given(schedule=schedules, steps=st.integers(0, 60))
def test_counts_equal_those_of_a_real_run(schedule: Schedule, steps: int) -> None:
    report, result = (
        explain(schedule, steps),
        reverse(schedule, steps, step, turn, START, SEED, record=record, apply=apply),
    )
    assert report.evaluations == result.evaluations
    assert sum(use.stores for use in report.uses) == result.stores
    assert sum(use.restores for use in report.uses) == result.restores


@pytest.mark.parametrize("schedule", [Binomial(5), Online(5), StoreAll(), Periodic(1000)], ids=repr)
def test_a_long_chain_is_told_from_the_schedules_own_cost(schedule: Schedule) -> None:
    report = explain(schedule, 10**8)
    cost = schedule.cost(10**8)
    assert (report.evaluations, report.uses[0].slots, report.uses[0].stores) == (
        cost.evaluations,
        cost.slots,
        cost.stores,
    )
    assert report.least == advances(10**8 + 1, cost.slots) + 10**8


def test_time_is_the_sum_of_steps_adjoints_and_transfers() -> None:
    disk = Tier("disk", None, write=7.0, read=3.0)
    report = explain(Binomial(3), 50, step_cost=2.0, adjoint_cost=5.0, tiers=[disk])
    use = report.uses[0]
    assert use.time == 7.0 * use.stores + 3.0 * use.restores
    assert report.time == 2.0 * report.evaluations + 5.0 * 50 + use.time


def test_transfers_of_a_tier_with_buffers_go_on_beside_the_steps() -> None:
    fast, disk = Tier("memory", None), Tier("disk", None, write=7.0, read=3.0, buffers=2)
    report = explain(TwoTiers(10), 50, tiers=[fast, disk])
    assert [(use.name, use.slots, use.stores, use.restores) for use in report.uses] == [
        ("memory", 9, 45, 45),
        ("disk", 5, 5, 10),
    ]
    # Writes hide behind the steps; this schedule announces no read, so that each one is waited for.
    assert report.time == report.evaluations + 50 + 10 * 3.0
    assert explain(TwoTiers(10), 50, tiers=[fast, Tier("disk", None, write=7.0, read=3.0)]).time > report.time


def test_a_report_prints_as_a_table() -> None:
    text = str(
        explain(
            TwoTiers(10), 50, state_bytes=10**6, tiers=[Tier("memory", None), Tier("disk", None, 0.5, 0.5)], unit="s"
        )
    )
    assert re.fullmatch(
        r"""schedule     TwoTiers\(period=10\)
steps        50
evaluations  145, 2\.90 for each step
  extra      45, beyond keeping every state
  least      \d+, for as many slots in all
time         3 min 22 s
memory       9 slots, 9\.0 MB; 45 stores and 45 restores
disk         5 slots, 5\.0 MB; 5 stores and 10 restores in 7\.5 s""",
        text,
    )


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (8 * 10**6, "8.0 MB"), (10**16, "10000.0 TB")]
)
def test_bytes_in_words(size: int, words: str) -> None:
    assert in_bytes(size) == words


@pytest.mark.parametrize(
    ("time", "unit", "words"),
    [
        (1234.5, "steps", "1234.5 steps"),
        (0.25, "s", "0.25 s"),
        (100, "s", "1 min 40 s"),
        (3599, "s", "59 min 59 s"),
        (3600, "s", "1 h 0 min"),
        (90_061, "s", "1 d 1 h"),
    ],
)
def test_times_in_words(time: float, unit: str, words: str) -> None:
    assert in_unit(time, unit) == words


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no size": ({"state_bytes": 0}, "^state_bytes: got 0"),
    "a negative cost": ({"step_cost": -1.0}, "^step_cost: got -1.0, expected a finite number >= 0"),
    "no number": ({"adjoint_cost": float("nan")}, "^adjoint_cost: got nan"),
    "too few tiers": (
        {"tiers": [Tier("memory", None)]},
        "tier 1 is not one of them",
    ),
}


@pytest.mark.parametrize(("options", "words"), BAD.values(), ids=BAD)
def test_bad_arguments_are_refused_by_name(options: dict[str, Any], words: str) -> None:
    with pytest.raises(AdjointError, match=words):
        explain(TwoTiers(3), 10, **options)
