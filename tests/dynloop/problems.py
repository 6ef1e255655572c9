"""Loops that the gradient tests run: each a function of (x, w, n), written once for the library and for its oracle.

`x` is a vector of 3, `w` a 3 by 3 matrix, `n` an integer; `loop(cond, body, init)` runs the loop.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.dynloop.backends import Backend

Loop = Callable[[Any, Any, Any], Any]
Problem = Callable[[Loop, Backend, Any, Any, Any], Any]

_RANDOM = np.random.default_rng(20)
X = np.array([0.3, -0.5, 0.9])
W = _RANDOM.normal(size=(3, 3)) * 0.3
X_DOT, W_DOT = _RANDOM.normal(size=3), _RANDOM.normal(size=(3, 3))


def mixed(loop: Loop, backend: Backend, x: Any, w: Any, n: Any) -> Any:
    """A counter, a flag, a state that reads them, and an accumulator that starts as a number."""
    xp = backend.xp

    def body(c: Any) -> Any:
        i, flag, h, total = c
        h = xp.tanh(w @ h + 0.1 * xp.sin(total) + 0.01 * i)
        return i + 1, flag, h, total + h[0] * h[1] * xp.sum(w[0])

    init = (backend.asarray(0, "int32"), backend.asarray(True, "bool"), x, 0.3)
    _, _, h, total = loop(lambda c: (c[0] < n) & c[1], body, init)
    return xp.sum(h * backend.asarray([1, 2, 3])) + total**2


def norm(loop: Loop, backend: Backend, x: Any, w: Any, n: Any) -> Any:
    """The state itself decides when it ends, with a tolerance that depends on n."""
    xp = backend.xp
    bound = 2.0 ** (-n)
    out = loop(lambda c: xp.sum(c**2) > bound, lambda c: 0.8 * xp.sin(w @ c) + 0.3 * c, x)
    return xp.sum(xp.cos(out))


def swapped(loop: Loop, backend: Backend, x: Any, w: Any, n: Any) -> Any:
    """Leaves that trade places, stand twice, or are only passed through."""
    xp = backend.xp

    def body(c: Any) -> Any:
        return {"i": c["i"] + 1, "a": c["b"], "b": xp.sin(w @ c["a"]) + c["kept"], "kept": c["kept"]}

    init = {"i": backend.asarray(0, "int32"), "a": x, "b": x, "kept": x}
    out = loop(lambda c: c["i"] < n, body, init)
    return xp.sum(out["a"] * out["b"]) + xp.sum(out["kept"] ** 2)


def captured(loop: Loop, backend: Backend, x: Any, w: Any, n: Any) -> Any:
    """The start of a leaf is read by the body as well, and the result meets it again after the loop."""
    xp = backend.xp
    _, out = loop(lambda c: c[0] < n, lambda c: (c[0] + 1, xp.tanh(c[1] @ w) * x + x), (backend.asarray(0, "int32"), x))
    return xp.sum(out * x)


def history(loop: Loop, backend: Backend, x: Any, w: Any, n: Any) -> Any:
    """A buffer that the loop fills while it runs, its last cell many times."""
    xp = backend.xp
    size = 5

    def body(c: Any) -> Any:
        i, h, cells = c
        h = xp.sin(w @ h) + 0.5 * h
        return i + 1, h, backend.put(cells, xp.clip(i, 0, size - 1), xp.sum(h**2))

    _, _, cells = loop(lambda c: c[0] < n, body, (backend.asarray(0, "int32"), x, backend.asarray([0.0] * size)))
    return xp.sum(cells * backend.asarray([1, 2, 3, 4, 5]))


def nested(loop: Loop, backend: Backend, x: Any, w: Any, n: Any) -> Any:
    """A loop in the body of a loop; the inner one reads the outer carry and the outer closure."""
    xp = backend.xp
    zero = backend.asarray(0, "int32")

    def body(c: Any) -> Any:
        i, h = c

        def inner(d: Any) -> Any:
            return d[0] + 1, xp.sin(w @ d[1]) + 0.1 * h

        return i + 1, loop(lambda d: d[0] < 2 + i % 3, inner, (zero, h))[1]

    return xp.sum(loop(lambda c: c[0] < n, body, (zero, x))[1] ** 2)


PROBLEMS: dict[str, Problem] = {f.__name__: f for f in (mixed, norm, swapped, captured, history, nested)}
