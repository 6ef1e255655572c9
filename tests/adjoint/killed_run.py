"""The program that tests/adjoint/test_crash.py kills: `python -m tests.adjoint.killed_run FOLDER KIND` resumes a run.

It prints the cotangent as hexadecimal digits, every bit of it, when it gets to the end.
"""

import sys
import time

from adjoint import Asynchronous, Binomial, DiskStore, MemoryStore, Online, StateStore, resume
from tests.adjoint.chains import SEED, START, State, TwoTiers, step, turn

STEPS = 24


def slow_step(i: int, state: State) -> State:
    time.sleep(0.001)
    return step(i, state)


def slow_turn(i: int, state: State, cotangent: State) -> State:
    time.sleep(0.002)
    return turn(i, state, cotangent)


def run(folder: str, kind: str) -> State:
    disk = DiskStore(folder)
    stores: list[StateStore] = [disk]
    schedule, steps, until = Binomial(4), STEPS, None
    if kind == "tiers":
        schedule, stores = TwoTiers(6), [MemoryStore(), disk]
    elif kind == "online":
        schedule, steps, until = Online(3), None, lambda i, state: i == STEPS
    elif kind == "asynchronous":
        stores = [Asynchronous(disk)]
    return resume(schedule, steps, slow_step, slow_turn, START, SEED, store=stores, until=until).cotangent


if __name__ == "__main__":
    print(*(number.hex() for number in run(*sys.argv[1:])))
