"""The full matrix: every mode of derivative of every loop form, by dynloop and by the same loop in Python.

A form is a function of a start x, of closed-over values w, and of a limit that says how long the loop runs and that
nothing differentiates. Past its limit a step gives NaN, so a lane that goes too far is seen; only a scan without
`until` knows no limit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import dynloop
from tests import oracles
from tests.correctness import Case

STEPS = 18
"""More than any fixed number of checkpoints in the matrix, so that each of them evaluates steps again."""
MOST_STEPS = 24
"""The bound that checkpoints="all" needs."""

# An array of a number has a weak type without this, and then each operation of the oracle compiles twice.
array = partial(jnp.asarray, dtype=float)
ZERO = array(0.0)

Both = tuple[jax.Array, jax.Array]
Pair = Callable[[jax.Array, jax.Array, Any], Both]
Along = Callable[[jax.Array, jax.Array], Any]
Vmap = Callable[..., Callable[..., Any]]


# ---- the loops, and the same in Python


@dataclass(frozen=True)
class Loops:
    """The loops that a form is written with."""

    while_loop: Callable[..., Any]
    fori_loop: Callable[..., Any]
    scan: Callable[..., Any]


def by_dynloop(checkpoints: Any) -> Loops:
    def keeping(loop: Callable[..., Any], **bound: int) -> Callable[..., Any]:
        return lambda *args, **options: loop(*args, checkpoints=checkpoints, **bound, **options)

    bound = {"max_steps": MOST_STEPS} if checkpoints == "all" else {}
    return Loops(keeping(dynloop.while_loop, **bound), keeping(dynloop.fori_loop, **bound), keeping(dynloop.scan))


def _scanned(step: Any, init: Any, rows: Any, until: Any = None) -> Any:
    # A place that is an array: each place that is a number would be compiled by itself.
    each = [lax.dynamic_index_in_dim(rows, jnp.asarray(i), keepdims=False) for i in range(len(rows))]
    carry, ys = oracles.scanned(step, init, each, until)
    return carry, jnp.stack([ZERO if y is None else y for y in ys])


IN_PYTHON = Loops(oracles.unrolled, lambda a, b, *rest: oracles.indexed(a, int(b), *rest), _scanned)


# ---- the forms

ROWS = jnp.asarray(np.random.default_rng(5).normal(size=STEPS))


def by_while_loop(loops: Loops, x: jax.Array, w: jax.Array, limit: Any) -> Both:
    """The length depends on the data; a counter is carried and read."""

    def body(c: Any) -> Any:
        h, t, k = c
        h = jnp.sin(w * h + jnp.sqrt(limit - t + 0.01) + 0.1 * k)
        return h, t + 0.05 + 0.01 * h, k + 1

    return loops.while_loop(lambda c: c[1] < limit, body, (x, ZERO, jnp.zeros((), int)))[:2]


def by_fori_loop(loops: Loops, x: jax.Array, w: jax.Array, limit: Any) -> Both:
    """The limit is the upper bound; the step reads the index."""

    def body(i: Any, c: Any) -> Any:
        h, total = c
        h = jnp.sin(w * h + 0.2 * jnp.sqrt(limit - i))
        return h, total + h * h

    return loops.fori_loop(0, limit, body, (x, ZERO))


def by_scan(loops: Loops, x: jax.Array, w: jax.Array, limit: Any) -> Both:
    """All rows are used, whatever the limit; rows and ys have derivatives."""

    def step(h: Any, row: Any) -> Any:
        h = jnp.sin(w * h + row)
        return h, h * row

    h, ys = loops.scan(step, x, x * ROWS)
    return h, jnp.vdot(ys, ys)


def by_scan_until(loops: Loops, x: jax.Array, w: jax.Array, limit: Any) -> Both:
    """How many rows are used depends on the data; rows and ys have derivatives."""

    def step(c: Any, row: Any) -> Any:
        h, t = c
        h = jnp.sin(w * h + row + jnp.sqrt(limit - t + 0.01))
        return (h, t + 0.06 + 0.01 * h), h * row

    (h, t), ys = loops.scan(step, (x, ZERO), x * ROWS, until=lambda c: c[1] >= limit)
    return h + t, jnp.vdot(ys, ys)


@dataclass(frozen=True)
class Form:
    """A loop form, the limit of its one run, and those of its lanes, of which one takes no step."""

    run: Callable[..., Both]
    limit: Any
    limits: Any


FORMS: dict[str, Form] = {
    "while_loop": Form(by_while_loop, array(1.04), array([0.21, -1.0, 1.04])),
    "fori_loop": Form(by_fori_loop, jnp.asarray(STEPS, int), jnp.asarray([4, 0, STEPS])),
    "scan": Form(by_scan, jnp.asarray(STEPS, int), jnp.asarray([STEPS] * 3)),
    "scan with until": Form(by_scan_until, array(1.2), array([0.21, -1.0, 1.2])),
}
CHECKPOINTS: dict[str, int | str] = {"1": 1, "2": 2, "3": 3, "16": 16, '"all"': "all", '"auto"': "auto"}


# ---- the modes

X, W = array(0.3), array(0.8)
DIRECTION: Both = (array(1.0), array(-0.7))
XS = array([0.3, 0.6, -0.5])
BOTH, LANES = (0, 1), (0, None, 0)


def scalar(f: Pair) -> Callable[..., jax.Array]:
    """One number of a form's two."""

    def product(*args: Any) -> jax.Array:
        y, z = f(*args)
        return y * (z + 2.0)

    return product


def gradient(f: Along) -> Along:
    return jax.grad(f, BOTH)


def slope(f: Along) -> Along:
    """The derivative in the direction, by reverse mode."""
    return lambda *at: sum(g * v for g, v in zip(gradient(f)(*at), DIRECTION, strict=True))


def pushed(f: Along) -> Along:
    """The same by forward mode."""
    return lambda *at: jax.jvp(f, at, DIRECTION)[1]


def of_one(mode: Callable[[Along], Along], make: Callable[[Pair], Callable[..., Any]] = lambda f: f) -> Any:
    """The mode at one point."""

    def run(f: Pair, vmap: Vmap, x: Any, w: Any, limit: Any, xs: Any, limits: Any) -> Any:
        return mode(lambda x, w: make(f)(x, w, limit))(x, w)

    return run


def vmapped(derivative: Callable[..., Any]) -> Any:
    """The derivative of each lane, the closed-over values being shared."""

    def run(f: Pair, vmap: Vmap, x: Any, w: Any, limit: Any, xs: Any, limits: Any) -> Any:
        return vmap(derivative(scalar(f), BOTH), LANES)(xs, w, limits)

    return run


def gradient_of_vmap(f: Pair, vmap: Vmap, x: Any, w: Any, limit: Any, xs: Any, limits: Any) -> Any:
    return gradient(lambda xs, w: jnp.sum(vmap(scalar(f), LANES)(xs, w, limits)))(xs, w)


MODES: dict[str, Callable[..., Any]] = {
    "value": of_one(lambda f: f),
    "jvp": of_one(lambda f: lambda *at: jax.jvp(f, at, DIRECTION)),
    "grad": of_one(gradient, scalar),
    "jacfwd": of_one(lambda f: jax.jacfwd(f, BOTH)),
    "jacrev": of_one(lambda f: jax.jacrev(f, BOTH)),
    "linearize": of_one(lambda f: lambda *at: jax.linearize(f, *at)[1](*DIRECTION)),
    "forward over reverse": of_one(lambda f: pushed(gradient(f)), scalar),
    "reverse over reverse": of_one(lambda f: gradient(slope(f)), scalar),
    "reverse over forward": of_one(lambda f: gradient(pushed(f)), scalar),
    "forward over forward": of_one(lambda f: pushed(pushed(f))),
    "reverse over forward over reverse": of_one(lambda f: gradient(pushed(slope(f))), scalar),
    "vmap of grad": vmapped(jax.grad),
    "grad of vmap": gradient_of_vmap,
    "vmap of hessian": vmapped(jax.hessian),
}


def one_by_one(f: Callable[..., Any], axes: tuple[int | None, ...]) -> Callable[..., Any]:
    """`jax.vmap` by a Python loop over the lanes."""

    def run(*args: Any) -> Any:
        lanes = range(len(args[0]))
        alone = [f(*[a if axis is None else a[i] for a, axis in zip(args, axes, strict=True)]) for i in lanes]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *alone)

    return run


def found(case: Case) -> Any:
    """What dynloop gives, in one compiled program."""
    form, loops = FORMS[case.form], by_dynloop(CHECKPOINTS[case.checkpoints])

    def run(*given: Any) -> Any:
        return MODES[case.mode](lambda *args: form.run(loops, *args), jax.vmap, *given)

    return jax.jit(run)(X, W, form.limit, XS, form.limits)


@cache
def expected(mode: str, form: str) -> Any:
    """What the Python loop gives, operation by operation and lane by lane."""
    given = FORMS[form]
    return MODES[mode](lambda *args: given.run(IN_PYTHON, *args), one_by_one, X, W, given.limit, XS, given.limits)


def steps(form: str, x: jax.Array, limit: jax.Array) -> int:
    """How many steps the Python loop takes."""
    taken: list[None] = []

    def counting(loop: Callable[..., Any], at: int) -> Callable[..., Any]:
        """The loop, with the function at this place among its arguments counted."""

        def run(*args: Any, **options: Any) -> Any:
            def step(*given: Any) -> Any:
                taken.append(None)
                return args[at](*given)

            return loop(*args[:at], step, *args[at + 1 :], **options)

        return run

    loops = Loops(counting(IN_PYTHON.while_loop, 1), counting(IN_PYTHON.fori_loop, 2), counting(IN_PYTHON.scan, 0))
    FORMS[form].run(loops, x, W, limit)
    return len(taken)
