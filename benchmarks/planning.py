"""How long schedules take to plan: adjoint beside checkpoint_schedules, in one run.

    pip install -e . checkpoint-schedules==1.0.4
    python benchmarks/planning.py

A plan is made when the first action is known. `cost` tells what a schedule spends without running a step.
checkpoint_schedules' HRevolve has the costs of a step and of an adjoint equal here, as it mixes them up.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import checkpoint_schedules

import adjoint

LONG = 10**8
HOST = adjoint.Tier("host", 1000, write=5, read=5, buffers=2)
# Few slots in memory and many on a disk, and the other way round.
ROOMS = [(10, 10), (5, 40), (40, 5)]


def seconds(work: Callable[[], Any]) -> float:
    begun = perf_counter()
    work()
    return perf_counter() - begun


def first(schedule: adjoint.Schedule, steps: int) -> Callable[[], Any]:
    return lambda: next(schedule.actions(steps))


def tiers(memory: int, disk: int) -> tuple[adjoint.Tier, adjoint.Tier]:
    return adjoint.Tier("memory", memory), adjoint.Tier("disk", disk, write=2, read=2)


def compare(steps: int) -> None:
    print(f"\nHRevolve, {steps} steps: seconds to plan, and the time that the plan takes in steps")
    print(f"{'memory':>7} {'disk':>5} {'adjoint':>9} {'theirs':>9} {'ratio':>7} {'takes':>9}")
    for memory, disk in ROOMS:
        schedule = adjoint.HRevolve(tiers(memory, disk), joined=True)
        ours = seconds(first(schedule, steps))
        theirs = seconds(lambda m=memory, d=disk: checkpoint_schedules.HRevolve(steps, m, d, 1, 1, 2, 2))
        takes = adjoint.replay(schedule, steps, tiers=schedule.tiers).makespan
        print(f"{memory:7} {disk:5} {ours:9.3f} {theirs:9.3f} {theirs / ours:7.1f} {takes:9}", flush=True)


def main() -> None:
    cases: dict[str, Callable[[], Any]] = {
        "Binomial(64), first of 1e6 steps": first(adjoint.Binomial(64), 10**6),
        "Binomial(64).cost(1e8)": lambda: adjoint.Binomial(64).cost(LONG),
        "StoreAll().cost(1e8)": lambda: adjoint.StoreAll().cost(LONG),
        "Periodic(10000).cost(1e8)": lambda: adjoint.Periodic(10_000).cost(LONG),
        "Online(64).cost(1e8), its table made first": lambda: adjoint.Online(64).cost(LONG),
        "Online(64).cost(1e8), again": lambda: adjoint.Online(64).cost(LONG),
        "Multistage((32, 32)).cost(1e8)": lambda: adjoint.Multistage(tiers(32, 32)).cost(LONG),
        "TwoLevel(1000, slots=8).cost(1e8)": lambda: adjoint.TwoLevel(1000, slots=8).cost(LONG),
        "Overlapped(8, host).cost(1e8)": lambda: adjoint.Overlapped(8, HOST).cost(LONG),
        "Mixed(10), first of 2000 steps": first(adjoint.Mixed(10), 2000),
        "Weighted(8, 200 costs), first": first(adjoint.Weighted(8, tuple(range(200))), 200),
        "DiskRevolve(10), first of 2000 steps": first(adjoint.DiskRevolve(10, 2, 2), 2000),
        "DiskRevolve(10), first of 20000 steps": first(adjoint.DiskRevolve(10, 2, 2), 20_000),
    }
    print("seconds")
    for name, work in cases.items():
        print(f"{name:45} {seconds(work):9.6f}", flush=True)
    compare(500)
    compare(2000)


if __name__ == "__main__":
    main()
