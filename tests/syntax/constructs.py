"""Thirty constructs of Python, each a function and arguments for it: what a decorator for loops has to understand.

The functions are plain Python. A test runs each as it is, rewritten, and staged under `jax.jit`; the
benchmark `benchmarks/decorators.py` runs them through other libraries' decorators and prints a table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SCALE = 3.0


@dataclass(frozen=True)
class Construct:
    """name: as the table calls it.   function: plain Python.   arguments: of several calls."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[tuple[Any, ...], ...]


FOUND: list[Construct] = []


def construct(name: str, *arguments: tuple[Any, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds a function to the list."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        FOUND.append(Construct(name, function, arguments))
        return function

    return add


@construct("`while`", (2.0,), (9.0,))
def root(a):
    x = a
    while abs(x * x - a) > 1e-4:
        x = 0.5 * (x + a / x)
    return x


@construct("`for` over `range`", (5, 1.0), (0, 1.0))
def factorial(n, s):
    for i in range(1, n + 1):
        s = s * i
    return s


@construct("`for` over `range`, downwards", (7,), (0,))
def downwards(n):
    s = 0
    for i in range(n, 0, -2):
        s = 10 * s + i
    return s


@construct("`for` over the rows of an array", ([1.0, 2.0, 4.0],))
def rows(xs):
    s = 0.0
    for x in xs:
        s = 2 * s + x
    return s


@construct("`enumerate` and `zip` of arrays", ([1.0, 2.0, 4.0], [3.0, 5.0, 7.0]))
def pairs(xs, ys):
    s = 0.0
    for i, x in enumerate(xs):
        s = s + i * x
    for x, y in zip(xs, ys):  # noqa: B905 (the argument is no part of the construct)
        s = s + x * y
    return s


@construct("`for` over a tuple", (2.0,), (-3.0,))
def over_tuple(x):
    for factor in (2.0, 3.0, 0.5):
        if x > 0:
            x = x * factor
    return x


@construct("`if`, `elif`, `else`", (-2.0,), (0.5,), (3.0,))
def three_ways(x):
    if x < 0:
        y = -x
    elif x < 1:
        y = x * x
    else:
        y = 2 * x
    return y


@construct("`break` out of `while True`", (6,), (1,))
def collatz(n):
    k = 0
    while True:
        if n == 1:
            break
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        k += 1
    return k


@construct("`continue`", (20,), (3,))
def odd_sum(n):
    s = 0
    for i in range(n):
        if i % 2 == 0:
            continue
        s = s + i
    return s


@construct("`return` out of a loop", (10, 50), (3, 50))
def find(n, target):
    for i in range(n):
        if i * i >= target:
            return i
    return -1


@construct("early `return`", (-3.0,), (0.5,), (9.0,))
def clip(x):
    if x < 0:
        return 0.0
    if x > 1:
        return 1.0
    return x


@construct("a jump on some paths of a branch", (9,), (4,))
def partial_jump(n):
    s = 0
    for i in range(n):
        if i > 2:
            if i > 5:
                break
            s = s + 10
        s = s + 1
    return s


@construct("`else` of `for`", (4, 2), (4, 9))
def for_else(n, t):
    for i in range(n):
        if i == t:
            r = 1
            break
    else:
        r = -1
    return r


@construct("`else` of `while`", (10,), (3,))
def while_else(n):
    k = 0
    while k < n:
        k += 1
        if k == 7:
            break
    else:
        k = 100 + k
    return k


@construct("nested loops with a `return` inside", (4,), (50,))
def nested(n):
    s = 0.0
    for i in range(n):
        j = i
        while j > 0:
            s = s + 0.5 * j
            j = j - 1
            if s > 20:
                return s
    return s


@construct("`and`, `or`, `not`", (1.0, 2.0), (1.0, 5.0), (-1.0, 0.5))
def logic(x, y):
    z = 0.0
    if (x > 0 and not y > 3) or (x < 0 and y < 1):
        z = 1.0
    return z


@construct("`a < b < c`", (0.5,), (2.0,), (-1.0,))
def chained(x):
    y = x
    while 0 < y < 5:
        y = y + 1
    return y


@construct("`a if c else b`", (2.0,), (-2.0,))
def ternary(x):
    return x * 2 if x > 0 else -x


@construct("`x += 1` and `x //= 2`", (37,), (0,))
def augmented(n):
    bits = 0
    while n > 0:
        bits += n % 2
        n //= 2
    return bits


@construct("`a, b = b, a + b`", (10,), (0,))
def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


@construct("`x[i] = v`", ([1.0, 5.0, 2.0, 7.0],))
def sieve(x):
    for i in range(len(x)):
        if x[i] > 2:
            x[i] = 0.0
    return x[0] + 10 * x[1] + 100 * x[2] + 1000 * x[3]


@construct("`x[i] += v`", ([1.0, 5.0, 2.0], 4))
def add_items(x, n):
    i = 0
    while i < n:
        x[i % 3] += i
        i += 1
    return x[0] + 10 * x[1] + 100 * x[2]


@construct("a name first assigned inside a loop", (4, 7.0), (2, 1.0))
def first_inside(n, x):
    total = 0.0
    for i in range(n):
        half = x / (i + 1)
        total = total + half
    return total


@construct("a number that becomes a float", (5,), (0,))
def promoted(n):
    s = 0
    for i in range(n):
        s = s + 0.5 * i
    return s


def _closure() -> Callable[..., Any]:
    offset = 2.0

    def add_offset(x):
        while x < 10:
            x = x * SCALE + offset
        return x

    return add_offset


construct("a closure and a global", (1.0,), (20.0,))(_closure())


@construct("defaults and keyword-only arguments", (1.0,), (99.0,))
def with_defaults(x, y=2.0, *, k=2.0):
    while x < 100:
        x = x * y + k
    return x


@construct("a nested function", (1.0,), (50.0,))
def with_inner(x):
    def step(v, factor=3.0):
        return v * factor

    while x < 30:
        x = step(x)
    return x


@construct("`assert`", (3.0,), (0.5,))
def asserting(x):
    assert x > 0, "x must be positive"
    while x < 10:
        x = x * 2
    return x


@construct("an annotation without a value", (2.0,), (20.0,))
def annotated(x: float) -> float:
    y: float
    while x < 10:
        y = x * 2
        x = y + 1
    return x


@construct("a dict as state", (3,), (0,))
def with_dict(n):
    state = {"a": 1, "b": 2}
    for _ in range(n):
        state = {"a": state["b"], "b": state["a"] + state["b"]}
    return state["a"] + 10 * state["b"]


class Solver:
    """A method that names something private."""

    __tolerance = 1e-4

    def solve(self, a):
        x = a
        while abs(x * x - a) > self.__tolerance:
            x = 0.5 * (x + a / x)
        return x
