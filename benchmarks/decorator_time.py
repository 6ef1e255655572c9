"""How long `@dynloop.loop` takes to rewrite forty lines, and an iteration of a loop that stays Python's.

    python -m benchmarks.decorator_time

Times are those of the quickest of several calls, by the process's own clock.
"""

import platform
import time
import timeit
from collections.abc import Callable
from typing import Any

import dynloop
from tests.syntax.programs import defined

STEPS = 20_000

FORTY_LINES = """
def f(a, b, c, v):
    s = 0
    total = 0.0
    for i in range(a):
        if i % 2 == 0:
            continue
        j = 0
        while j < i and s < 100:
            j += 1
            if j == b:
                break
            elif j > c:
                s += j
                v[j % 3] = s
            else:
                s -= 1
            total = total + 0.5 * j
        else:
            s += 1
        if s > 50:
            return s
        x = a if a > b else c
        if 0 < x < 5:
            total -= 1
    k = 0
    while True:
        k += 1
        if k > 5:
            break
        if not (k == b or k == c):
            total = total * 0.5
    n = 0
    while n < 10:
        n += 1
        if n == 3:
            s += 3
        if n == 5:
            s += 5
        if n == 7:
            s += 7
    y = total + s
    return y
"""


def fastest(function: Callable[[], Any], times: int) -> float:
    """Seconds of the quickest of several calls."""
    return min(timeit.repeat(function, timer=time.process_time, number=1, repeat=times))


def sums(n):
    s, i = 0, 0
    while i < n:
        s += i * i
        i += 1
    return s


def branches(n):
    s = 0
    for i in range(n):
        if i % 3 == 0:
            s += 2
        elif i % 3 == 1:
            s -= 1
        else:
            s = s ^ i
    return s


def jumps(n):
    s, i = 0, 0
    while True:
        i += 1
        if i > n:
            break
        if i % 2 == 0 and i % 3 != 1:
            continue
        s += i
    return s


def nested(n):
    s = 0
    for i in range(n // 50):
        for j in range(50):
            s += i ^ j
        if s < 0:
            return s
    return s


def items(n):
    v = [0] * 16
    for i in range(n):
        v[i % 16] += i
        v[(i + 1) % 16] = i
    return v


def ratio(function: Callable[[int], Any]) -> float:
    """The rewritten loop's time by the plain one's, in turns, since what else the machine does changes."""
    rewritten = dynloop.loop(function)
    assert rewritten(STEPS) == function(STEPS)
    pairs = [(fastest(lambda: rewritten(STEPS), 1), fastest(lambda: function(STEPS), 1)) for _ in range(25)]
    return min(a for a, _ in pairs) / min(b for _, b in pairs)


def main() -> None:
    print(f"Python {platform.python_version()}, {platform.processor() or platform.machine()}")
    function = defined(FORTY_LINES)
    print(
        f"rewriting {FORTY_LINES.count(chr(10)) - 1} lines: {1e3 * fastest(lambda: dynloop.loop(function), 200):.1f} ms"
    )
    for one in (sums, branches, jumps, nested, items):
        print(f"{one.__name__:10s} {ratio(one):.2f} times the plain loop's time")


if __name__ == "__main__":
    main()
