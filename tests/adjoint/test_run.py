"""Claims about a run: what could not end well is refused before the first step, and its stores are closed again."""

from collections.abc import Callable
from typing import Any

import pytest

from adjoint import (
    Binomial,
    DiskRevolve,
    Identity,
    MemoryStore,
    Mixed,
    Online,
    Sample,
    ScheduleError,
    StepError,
    StoreAll,
    StoreError,
    advances,
)
from adjoint.chain import Chain
from adjoint.run import Run, delivers, in_memory
from tests.adjoint.chains import SEED, START, State, step, turn, unrolled


def never(i: int, state: State) -> State:
    raise AssertionError("no step may run")


def run(schedule: Any, steps: int | None, advance: Any = step, store: Any = None, **options: Any) -> Run:
    return Run(schedule, steps, Chain(advance, turn, options.get("until")), START, options.get("seed", SEED), store)


REFUSED: dict[str, tuple[Callable[[], Run], str]] = {
    "steps": (lambda: run(Binomial(3), -1, never), "steps: got -1"),
    "both ends": (lambda: run(Binomial(3), 5, never, until=lambda i, x: False), "until: got .* nothing beside steps=5"),
    "offline": (lambda: run(Binomial(3), None, never), "one whose forward pass does not depend on steps"),
    "joined": (
        lambda: run(Binomial(3, joined=True), 5, never, seed=lambda last: SEED),
        "one that delivers the last state before a turn",
    ),
    "no store": (lambda: run(Binomial(3), 5, never, []), r"store: got \[\], expected a store, or a list of stores"),
    "a path": (lambda: run(Binomial(3), 5, never, "folder"), "store: got 'folder', expected a store"),
}


@pytest.mark.parametrize(("made", "words"), REFUSED.values(), ids=REFUSED)
def test_what_could_not_end_well_is_refused_before_the_first_step(made: Callable[[], Run], words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        made()


@pytest.mark.parametrize("schedule", [Binomial(3), Binomial(3, joined=True), Online(3), StoreAll()], ids=repr)
def test_a_run_counts_what_it_ran(schedule: Any) -> None:
    result = run(schedule, 20).carry_out(is_new=True)
    last, cotangent = unrolled(20)
    cost = schedule.cost(20)
    assert result.cotangent == cotangent
    assert result.state == (last if delivers(schedule, 20) else None)
    assert (result.advances, result.turns, result.evaluations) == (cost.advances, 20, cost.evaluations)


def test_an_unknown_end_costs_what_a_known_one_does() -> None:
    result = run(Online(3), None, until=lambda i, x: i == 20).carry_out(is_new=True)
    assert (result.steps, result.cotangent, result.evaluations) == (20, unrolled(20)[1], Online(3).cost(20).evaluations)


def test_a_schedule_that_turns_out_not_to_be_online_is_told() -> None:
    class Late:
        """Online as long as one looks at its first actions; then it depends on the number of steps."""

        def actions(self, steps: int) -> Any:
            return (Online(40) if steps > 300 else Binomial(40)).actions(steps)

    with pytest.raises(ScheduleError, match="one whose forward pass does not depend on steps"):
        run(Late(), None, until=lambda i, x: i == 290).carry_out(is_new=True)


def test_stores_open_all_or_none_and_close_after_a_failure() -> None:
    seen: list[str] = []

    class Noted(MemoryStore):
        def __init__(self, name: str, *, is_broken: bool = False) -> None:
            super().__init__()
            self.name, self.is_broken = name, is_broken

        def begin(self, identity: Identity, sample: Sample, is_new: bool) -> None:
            if self.is_broken:
                raise StoreError(self.name, "is broken", "mend it")
            super().begin(identity, sample, is_new)
            seen.append(f"{self.name} opened")

        def end(self) -> None:
            super().end()
            seen.append(f"{self.name} closed")

    def failing(i: int, state: State) -> State:
        raise ValueError("no convergence")

    with pytest.raises(StoreError, match="second: is broken"):
        run(DiskRevolve(3, 1, 1), 5, never, [Noted("first"), Noted("second", is_broken=True)]).carry_out(is_new=True)
    assert seen == ["first opened", "first closed"]
    seen.clear()
    with pytest.raises(StepError, match="advance failed at step 0"):
        run(DiskRevolve(3, 1, 1), 5, failing, [Noted("first"), Noted("second")]).carry_out(is_new=True)
    assert seen == ["first opened", "second opened", "first closed", "second closed"]


def test_each_tier_gets_a_store_in_memory() -> None:
    assert [len(in_memory(s, 20)) for s in (Binomial(3), DiskRevolve(3, 1, 1), Mixed(3))] == [1, 2, 1]


@pytest.mark.parametrize("n", [1, 2, 20])
def test_delivery_is_what_makes_a_schedule_split(n: int) -> None:
    split, joined = Binomial(3), Binomial(3, joined=True)
    assert (delivers(split, n), delivers(joined, n)) == (True, False)
    assert split.cost(n).advances - joined.cost(n).advances == advances(n + 1, 3) - advances(n, 3)
