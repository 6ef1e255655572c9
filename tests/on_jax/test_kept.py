"""Claims about what is stored: those leaves of the carry that the transposed step reads, and nothing else.

A leaf that never changes is a constant; a sum, a counter, a buffer that is only written have gradients that do not
depend on their values. So they cost no checkpoint, and a body that writes into a large array copies none of it.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import adjoint
import dynloop
from dynloop import ArgumentError
from dynloop.on_jax import internals
from tests.closeness import assert_close
from tests.on_jax.programs import copies_inside_loops, temporary_bytes
from tests.oracles import indexed

X, SCALE = jnp.asarray([0.3, -0.5, 0.9]), jnp.asarray([1.1, 0.7, -0.4])
STEPS, SLOTS = 6, 2
Body = Callable[[Any, Any], Any]


def state_only(i: Any, c: Any) -> Any:
    return {"y": jnp.sin(c["y"]) * 1.5}


def accumulator(i: Any, c: Any) -> Any:
    y = jnp.sin(c["y"]) * 1.5
    return {"y": y, "total": c["total"] + jnp.sum(y**2) * i}


def sum_of_sums(i: Any, c: Any) -> Any:
    y = jnp.sin(c["y"]) * 1.5
    return {"y": y, "total": c["total"] + y[0] * y[1], "second": 0.5 * c["second"] + c["total"]}


def written(i: Any, c: Any) -> Any:
    y = jnp.sin(c["y"]) * 1.5
    return {"y": y, "cells": c["cells"].at[i].set(y)}


def unchanged(i: Any, c: Any) -> Any:
    return {"y": jnp.sin(c["y"] * c["scale"]) * 1.5, "scale": c["scale"]}


def counters(i: Any, c: Any) -> Any:
    return {"y": jnp.sin(c["y"]) * 1.5, "n": c["n"] + 1, "flag": ~c["flag"]}


def everything(i: Any, c: Any) -> Any:
    y = jnp.sin(c["y"] * c["scale"]) * 1.5
    cells = c["cells"].at[i].set(y * c["scale"])
    return {"y": y, "scale": c["scale"], "total": c["total"] + jnp.sum(y**2), "cells": cells, "n": c["n"] + 2}


def linear(i: Any, c: Any) -> Any:
    return {"y": c["y"] * 2 + c["total"], "total": c["total"] - i}


def read_and_written(i: Any, c: Any) -> Any:
    y = jnp.sin(c["y"] + c["cells"][i - 1]) * 1.5
    return {"y": y, "cells": c["cells"].at[i].set(y)}


# What each body needs beside y, and the shapes of what a gradient stores of a state; the index is one where it is read.
BODIES: dict[str, tuple[Body, dict[str, Any], list[tuple[int, ...]]]] = {
    "state only": (state_only, {}, [(3,)]),
    "accumulator": (accumulator, {"total": jnp.asarray(0.5)}, [(3,), ()]),
    "sum of sums": (sum_of_sums, {"total": jnp.asarray(0.5), "second": jnp.asarray(0.2)}, [(3,)]),
    "written": (written, {"cells": jnp.zeros((STEPS, 3))}, [(3,), ()]),
    "unchanged": (unchanged, {"scale": SCALE}, [(3,)]),
    "counters": (counters, {"n": jnp.int32(0), "flag": jnp.asarray(True)}, [(3,)]),
    "everything": (
        everything,
        {"scale": SCALE, "total": jnp.asarray(0.5), "cells": jnp.zeros((STEPS, 3)), "n": jnp.int32(0)},
        [(3,), ()],
    ),
    "linear": (linear, {"total": jnp.asarray(0.5)}, []),
    "read and written": (read_and_written, {"cells": jnp.zeros((STEPS, 3))}, [(STEPS, 3), (3,), ()]),
}


def by_fori(body: Body, init: Any) -> Any:
    return dynloop.fori_loop(0, STEPS, body, init, checkpoints=SLOTS)


def by_while(body: Body, init: Any) -> Any:
    def step(c: Any) -> Any:
        return {"i": c["i"] + 1, "c": body(c["i"], c["c"])}

    return dynloop.while_loop(lambda c: c["i"] < STEPS, step, {"i": jnp.int32(0), "c": init}, checkpoints=SLOTS)["c"]


def loss(run: Callable[[Body, Any], Any], name: str) -> Callable[[Any, Any], Any]:
    """A function of the first y and of the largest of the other leaves; it reads every floating leaf of the result."""
    body, others, _ = BODIES[name]
    varied = max((k for k in others if others[k].dtype == X.dtype), key=lambda k: others[k].size, default=None)

    def f(y: Any, other: Any) -> Any:
        out = run(body, {"y": y, **others, **({varied: others[varied] + other} if varied else {})})
        return sum(jnp.sum(jnp.cos(v) * v) for k, v in sorted(out.items()) if v.dtype == X.dtype)

    return f


def stored(f: Callable[..., Any], *args: Any) -> list[list[tuple[int, ...]]]:
    """For each forward pass in the gradient's program, the shapes of its buffers of states."""

    def equations(value: Any) -> Iterator[Any]:
        for eqn in internals.equations(value):
            yield eqn
            for inner in eqn.params.values():
                yield from equations(inner)

    forward = [e for e in equations(jax.make_jaxpr(f)(*args)) if e.primitive.name == "dynloop_forward"]
    results = [len(e.params["loop"].outputs) + 1 for e in forward]
    return [[v.aval.shape for v in e.outvars[n:]] for e, n in zip(forward, results, strict=True)]


@pytest.mark.parametrize("name", BODIES)
def test_a_gradient_stores_what_it_reads(name: str):
    found = stored(jax.grad(loss(by_fori, name), (0, 1)), X, 0.1)
    assert found == [[(SLOTS + 1, *shape) for shape in BODIES[name][2]]]


def test_a_counter_that_only_the_condition_reads_is_not_stored():
    assert stored(jax.grad(loss(by_while, "written")), X, 0.1) == [[(SLOTS + 1, 3), (SLOTS + 1,)]]
    assert stored(jax.grad(loss(by_while, "state only")), X, 0.1) == [[(SLOTS + 1, 3)]]


@pytest.mark.parametrize("name", BODIES)
def test_gradient_equals_unrolled(name: str):
    found = jax.jit(jax.value_and_grad(loss(by_fori, name), (0, 1)))(X, 0.1)
    assert_close(found, jax.value_and_grad(loss(lambda b, c: indexed(0, STEPS, b, c), name), (0, 1))(X, 0.1))


@pytest.mark.parametrize("name", ["sum of sums", "everything", "linear"])
def test_second_derivative_equals_unrolled(name: str):
    found = jax.jit(jax.jacrev(jax.grad(loss(by_fori, name), (0, 1)), (0, 1)))(X, 0.1)
    oracle = loss(lambda b, c: indexed(0, STEPS, b, c), name)
    assert_close(found, jax.jit(jax.hessian(oracle, (0, 1)))(X, 0.1))


def test_lanes_store_what_one_lane_does():
    """An accumulator in a batch whose lanes stop by themselves."""

    def f(x: Any, limit: Any) -> Any:
        step = lambda c: (c[0] * 1.5, c[1] + jnp.sin(c[0]))
        return dynloop.while_loop(lambda c: c[0] < limit, step, (x, jnp.zeros(())), checkpoints=SLOTS)[1]

    def alone(x: Any, limit: float) -> Any:
        total = jnp.zeros(())
        while x < limit:
            x, total = x * 1.5, total + jnp.sin(x)
        return total

    xs, limits = jnp.asarray([0.3, 1.0, 9.0]), jnp.asarray([3.0, 2.0, 4.0])
    slopes = jax.vmap(jax.grad(f))
    assert stored(slopes, xs, limits) == [[(SLOTS + 1, 3)]]
    assert_close(slopes(xs, limits), jnp.stack([jax.grad(alone)(x, float(n)) for x, n in zip(xs, limits, strict=True)]))


# ---- memory

LARGE = {"total": jnp.zeros(2**17), "y": X}


def summing(memory: Any) -> Callable[[Any], Any]:
    def body(i: Any, c: Any) -> Any:
        y = jnp.sin(c["y"])
        return {"y": y, "total": c["total"] + y[0]}

    return lambda y: jnp.sum(dynloop.fori_loop(0, 40, body, {**LARGE, "y": y}, checkpoints=memory)["total"])


def test_memory_counts_what_is_stored():
    f = summing(dynloop.Memory(5 * X.nbytes))
    assert stored(jax.grad(f), X) == [[(5 + 1, 3)]]
    assert_close(jax.jit(jax.grad(f))(X), jax.jit(jax.grad(summing("auto")))(X))


def test_a_large_sum_takes_no_memory_for_its_states():
    # The sum itself, its cotangent, and one of each in the making.
    assert temporary_bytes(jax.grad(summing(16)), X) <= 4 * LARGE["total"].nbytes


def test_auto_counts_what_is_stored():
    # Of the whole carry, 1 MiB, it would keep no more than 8 states.
    assert stored(jax.grad(summing("auto")), X) == [[(40, 3)]]


def test_a_memory_too_small_for_what_is_stored_fails_at_the_call():
    with pytest.raises(ArgumentError, match=f"one state of the carry takes {X.nbytes} bytes"):
        jax.make_jaxpr(summing(dynloop.Memory(X.nbytes - 1)))(X)


# ---- copies

SIZE = 2**17
# Without it XLA's CPU compiler copies an array that one step both reads and writes, in `lax.fori_loop` as well.
REGION_ANALYSIS = {"xla_cpu_copy_insertion_use_region_analysis": True}


def cells_written(i: Any, c: Any) -> Any:
    y = jnp.sin(c[1]) * 1.1
    return c[0].at[i].set(y), y


def cells_read(i: Any, c: Any) -> Any:
    y = jnp.sin(c[0][i - 1] + c[1]) * 1.1
    return c[0].at[i].set(y), y


def filling(loop: Any, body: Body, **options: Any) -> Callable[..., Any]:
    def f(cells: Any, y: Any, n: Any) -> Any:
        cells, y = loop(0, n, body, (cells, y), **options)
        return jnp.sum(cells**2) + y

    return f


def copies(f: Callable[..., Any], **options: Any) -> list[str]:
    """Copies of something as large as the cells, inside of loops."""
    lowered = jax.jit(f).lower(jnp.zeros(SIZE), jnp.asarray(0.5), jnp.asarray(5))
    shapes = copies_inside_loops(str(lowered.compile(compiler_options=options).as_text()))
    return [shape for shape in shapes if str(SIZE) in shape]


def test_cells_that_are_written_are_not_copied_on_the_way_forward():
    f = filling(dynloop.fori_loop, cells_written, checkpoints=2)
    assert copies(f) == []
    assert copies(lambda cells, y, n: jax.vjp(lambda cells, y: f(cells, y, n), cells, y)) == []


@pytest.mark.parametrize("checkpoints", [2, adjoint.Online(2, 3), "all"], ids=str)
def test_cells_that_are_written_are_not_copied_in_a_gradient(checkpoints: Any):
    f = filling(dynloop.fori_loop, cells_written, checkpoints=checkpoints, max_steps=8)
    assert copies(jax.grad(f, (0, 1)), **REGION_ANALYSIS) == []


@pytest.mark.parametrize("checkpoints", [adjoint.Online(2, 3), "all"], ids=str)
def test_cells_that_are_read_are_stored_and_not_copied_besides(checkpoints: Any):
    f = filling(dynloop.fori_loop, cells_read, checkpoints=checkpoints, max_steps=8)
    assert copies(jax.grad(f, (0, 1)), **REGION_ANALYSIS) == []


def test_a_step_copies_no_more_than_that_of_lax():
    """As compiled by default: the copies are those that XLA makes of the same body in its own loop."""
    of_lax = copies(filling(lax.fori_loop, cells_read))
    assert copies(filling(dynloop.fori_loop, cells_read)) == of_lax


def test_a_step_of_the_gradient_copies_no_more_than_that_of_lax():
    def scanned(lower: Any, n: Any, body: Body, c: Any) -> Any:
        return lax.scan(lambda c, i: (body(i, c), None), c, np.arange(5))[0]

    of_lax = copies(jax.grad(filling(scanned, cells_written), (0, 1)))
    ours = copies(jax.grad(filling(dynloop.fori_loop, cells_written, checkpoints=2), (0, 1)))
    assert len(ours) <= len(of_lax)


def test_a_copy_of_the_cells_is_seen():
    def swaps(i: Any, c: Any) -> Any:
        # The old cells outlive the write, so XLA must copy them.
        return c[0].at[i].set(c[1][i]), c[0]

    f = lambda cells, y, n: lax.fori_loop(0, n, swaps, (cells, cells + y))
    assert copies(f, **REGION_ANALYSIS) != []


def two_parameters(run: Callable[..., Any], w: Any, x: Any) -> Any:
    """A value and its slope in x, which reads nothing that depends on w, though the value does."""

    def value(x: Any) -> Any:
        start = {"y": jnp.asarray(1.3), "power": jnp.asarray(1.0), "total": jnp.asarray(0.0)}

        def body(i: Any, c: Any) -> Any:
            return {"y": jnp.sin(w * c["y"]), "power": c["power"] * x, "total": c["total"] + c["power"]}

        return sum(jnp.sum(v**2) for v in run(body, start).values())

    y, slope = jax.value_and_grad(value)(x)
    return y * slope


@pytest.mark.parametrize("run", [by_fori, by_while])
@pytest.mark.parametrize("mode", [jax.grad, jax.jacfwd])
def test_a_gradient_differentiated_by_another_parameter_equals_unrolled(run: Any, mode: Any):
    """The forward pass of the inner gradient does not store what the outer one has to be reversed through."""

    def unrolled(body: Body, init: Any) -> Any:
        for i in range(STEPS):
            init = body(i, init)
        return init

    f, g = (partial(two_parameters, run) for run in (run, unrolled))
    assert_close(jax.jit(mode(f, (0, 1)))(1.5, 0.7), jax.grad(g, (0, 1))(1.5, 0.7))
    ws = jnp.asarray([1.5, 1.1])
    found = jax.jit(jax.vmap(mode(f), (0, None)))(ws, 0.7)
    assert_close(found, jnp.stack([jax.grad(g)(w, 0.7) for w in ws]))
