"""Claims about compiled programs: what they are, how large, what they copy, and the memory they need."""

import gc
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, monitoring

import adjoint
import dynloop
from tests.on_jax.programs import compiled, copies_inside_loops, equations, operations, stablehlo, temporary_bytes

# ---- no gradient


def vector_loop(loop: Any) -> Callable[..., Any]:
    def f(x: Any, w: Any, n: Any) -> Any:
        def body(c: Any) -> Any:
            return {"i": c["i"] + 1, "x": jnp.sin(c["x"]) * w, "flag": ~c["flag"]}

        return loop(lambda c: c["i"] < n, body, {"i": jnp.asarray(0), "x": x, "flag": jnp.asarray(True)})

    return f


def nested_loop(loop: Any) -> Callable[..., Any]:
    def f(x: Any, w: Any, n: Any) -> Any:
        def body(c: Any) -> Any:
            inner = loop(lambda d: d[0] < c[0], lambda d: (d[0] + 1, d[1] * w), (jnp.asarray(0), c[1]))
            return c[0] + 1, inner[1]

        return loop(lambda c: c[0] < n, body, (jnp.asarray(0), x))

    return f


def number_loop(loop: Any) -> Callable[..., Any]:
    # A traced argument and a number that takes the body's dtype.
    return lambda x, w, n: loop(lambda c: jnp.sum(c[0]) < n, lambda c: (c[0] + w, c[1] * jnp.float32(2)), (x, 1.0))


ARGUMENTS = (jnp.ones(5), jnp.full(5, 2.0), jnp.asarray(3))


@pytest.mark.parametrize("make", [vector_loop, nested_loop, number_loop])
def test_without_a_gradient_the_program_is_that_of_lax(make: Any):
    assert stablehlo(make(dynloop.while_loop), *ARGUMENTS) == stablehlo(make(lax.while_loop), *ARGUMENTS)


# ---- size


def gradient(**options: Any) -> Callable[..., Any]:
    """The gradient of an elementwise loop, by x and by the closed-over w, with a traced number of steps."""

    def f(x: Any, w: Any, n: Any) -> Any:
        start = (jnp.asarray(0, jnp.int32), x)
        return jnp.sum(
            dynloop.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.sin(c[1]) * w), start, **options)[1]
        )

    return jax.grad(f, (0, 1))


@pytest.mark.parametrize("checkpoints", [2, 16, "auto", dynloop.Memory("4kB")], ids=str)
def test_the_program_does_not_grow_with_the_bound(checkpoints: Any):
    # All of them past what "auto" can keep whole.
    bounds = (10**7, 10**9, 2**31 - 1)
    programs = [gradient(checkpoints=checkpoints, max_steps=bound) for bound in bounds]
    assert len({equations(jax.make_jaxpr(f)(*ARGUMENTS)) for f in programs}) == 1
    assert len({tuple(operations(stablehlo(f, *ARGUMENTS))) for f in programs}) == 1


@pytest.mark.parametrize("checkpoints", [2, "auto", adjoint.Online(4, 8)], ids=str)
def test_the_program_of_a_known_number_of_steps_does_not_grow_with_the_bound(checkpoints: Any):
    def known(bound: int) -> Callable[..., Any]:
        def f(x: Any, w: Any, n: Any) -> Any:
            body = lambda i, y: jnp.sin(y) * w
            return jnp.sum(dynloop.fori_loop(0, n, body, x, checkpoints=checkpoints, max_steps=bound))

        return jax.grad(f, (0, 1))

    programs = [known(bound) for bound in (10**7, 2**31 - 1)]
    assert len({equations(jax.make_jaxpr(f)(*ARGUMENTS)) for f in programs}) == 1
    assert len({tuple(operations(stablehlo(f, *ARGUMENTS))) for f in programs}) == 1


def test_the_program_of_every_state_does_not_grow_with_the_bound():
    programs = [gradient(checkpoints="all", max_steps=bound) for bound in (10, 1000)]
    assert len({equations(jax.make_jaxpr(f)(*ARGUMENTS)) for f in programs}) == 1
    assert len({tuple(operations(stablehlo(f, *ARGUMENTS))) for f in programs}) == 1


def test_the_size_of_a_program_is_seen():
    once, twice = (lambda x: jnp.sin(x)), (lambda x: jnp.sin(jnp.cos(x)))
    assert equations(jax.make_jaxpr(once)(1.0)) < equations(jax.make_jaxpr(twice)(1.0))
    assert operations(stablehlo(once, 1.0)) != operations(stablehlo(twice, 1.0))


# ---- copies and memory

SIZE = 2**17
MEBIBYTE = 8 * SIZE
SLACK = 2**16
"""Bytes for counters, tables of the schedule and alignment, which don't grow with the carry."""
LAYOUTS: list[dict[str, Any]] = [
    {"checkpoints": 1},
    {"checkpoints": 4},
    {"checkpoints": 16},
    {"checkpoints": 4, "max_steps": 10**6},
    {"checkpoints": 16, "max_steps": 10**6, "on_max_steps": "stop"},
    {"checkpoints": "auto"},
    {"checkpoints": "all", "max_steps": 20},
    {"checkpoints": dynloop.Memory("150MiB")},
]


def large_arguments() -> tuple[Any, Any, Any]:
    return jnp.ones(SIZE), jnp.full(SIZE, 0.5), jnp.asarray(5)


@pytest.fixture(scope="module", params=LAYOUTS, ids=str)
def large(request: pytest.FixtureRequest) -> tuple[dict[str, Any], Any]:
    """Options of the loop, and the compiled gradient with a carry and a closed-over array of 1 MiB each."""
    return request.param, compiled(gradient(**request.param), *large_arguments())


def rows(options: dict[str, Any]) -> int:
    """The states that these options may hold."""
    match options["checkpoints"]:
        case int() as slots:
            return slots
        case "auto":
            return 8
        case "all":
            return options["max_steps"]
        case memory:
            return memory.bytes // MEBIBYTE


def test_no_loop_copies_a_buffer_of_checkpoints(large: tuple[dict[str, Any], Any]):
    _, program = large
    assert [shape for shape in copies_inside_loops(program.as_text()) if f",{SIZE}]" in shape] == []


def test_peak_memory_is_slots_and_four_carries_and_a_tape(large: tuple[dict[str, Any], Any]):
    options, program = large
    x, w, _ = large_arguments()

    def step(x: Any, w: Any, cotangent: Any) -> Any:
        return jax.vjp(lambda x, w: jnp.sin(x) * w, x, w)[1](cotangent)

    tape = temporary_bytes(step, x, w, x)
    allowed = (rows(options) + 4) * MEBIBYTE + tape + 2 * w.nbytes + SLACK
    assert program.memory_analysis().temp_size_in_bytes <= allowed


def test_memory_of_a_matrix_closed_over_is_twice_its_size():
    """A body whose closed-over matrix is larger than everything else."""
    n = 512

    def f(h: Any, w: Any, steps: Any) -> Any:
        start = (jnp.asarray(0, jnp.int32), h)
        options: dict[str, Any] = {"checkpoints": 4}
        return jnp.sum(
            dynloop.while_loop(lambda c: c[0] < steps, lambda c: (c[0] + 1, jnp.tanh(w @ c[1])), start, **options)[1]
        )

    h, w = jnp.ones(n), jnp.full((n, n), 0.5 / n)
    tape = temporary_bytes(lambda h, w, ct: jax.vjp(lambda h, w: jnp.tanh(w @ h), h, w)[1](ct), h, w, h)
    allowed = (4 + 4) * h.nbytes + tape + 2 * w.nbytes + SLACK
    assert temporary_bytes(jax.grad(f, (0, 1)), h, w, jnp.asarray(5)) <= allowed


def test_a_copy_inside_a_loop_is_seen():
    def swaps(n: Any) -> Any:
        # The old buffer outlives the write, so XLA must copy it.
        def body(c: Any) -> Any:
            i, new, _ = c
            return i + 1, new.at[i].set(1.0), new

        return lax.while_loop(lambda c: c[0] < n, body, (0, jnp.zeros((4, SIZE)), jnp.ones((4, SIZE))))

    assert f"f64[4,{SIZE}]" in copies_inside_loops(compiled(swaps, 3).as_text())


# ---- traces


def test_nothing_is_traced_again_when_values_change():
    traces = []

    def f(x: Any, w: Any, tolerance: Any) -> Any:
        def body(y: Any) -> Any:
            traces.append(y)
            return y * w

        return dynloop.while_loop(lambda y: y > tolerance, body, x)

    value, slope = jax.jit(f), jax.jit(jax.grad(f, (0, 1)))
    cases = [(1.0, 0.5, 0.1), (3.0, 0.25, 1e-3), (1e-6, 0.5, 0.1)]
    arguments = [tuple(jnp.asarray(x) for x in case) for case in cases]
    values, slopes = [value(*a) for a in arguments], [slope(*a) for a in arguments]
    # Once for the value, once for the gradient; no derivative runs the user's code again.
    assert len(traces) == 2
    assert [float(v) for v in values] == [0.0625, 3 / 4**6, 1e-6]
    np.testing.assert_allclose([s[0] for s in slopes], [0.0625, 1 / 4**6, 1], rtol=1e-15)


def scale(y: Any) -> Any:
    return y * 2.0


def is_small(y: Any) -> Any:
    return y < 10


def test_a_plain_function_is_traced_once_for_value_gradient_and_tangent():
    def f(x: Any) -> Any:
        return dynloop.while_loop(is_small, scale, x, checkpoints=2)

    x, calls = jnp.asarray(1.5), []

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code is scale.__code__:
            calls.append(event)

    sys.setprofile(profile)
    try:
        for _ in range(3):
            f(x)
            jax.grad(f)(x)
            jax.jvp(f, (x,), (x,))
            jax.jit(f)(x)
    finally:
        sys.setprofile(None)
    assert len(calls) == 1


@pytest.fixture
def compilations() -> Iterator[list[str]]:
    """Events of the compiler, as they come."""
    events: list[str] = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if "backend_compile" in event:
            events.append(event)

    monitoring.register_event_duration_secs_listener(listen)
    yield events
    monitoring.unregister_event_duration_listener(listen)


def test_another_number_of_steps_compiles_nothing(compilations: list[str]):
    slope = jax.jit(gradient(checkpoints=2))
    first, *others = [(jnp.ones(5), jnp.full(5, 2.0), jnp.asarray(n)) for n in (0, 3, 50)]
    slope(*first)
    assert compilations
    compilations.clear()
    assert [slope(*other)[0].shape for other in others] == [(5,), (5,)]
    assert compilations == []


def test_a_second_call_op_by_op_compiles_nothing(compilations: list[str]):
    f = jax.grad(lambda x: dynloop.while_loop(is_small, scale, x, checkpoints=3))
    first, second = jnp.asarray(1.5), jnp.asarray(2.5)
    f(first)
    assert compilations
    compilations.clear()
    assert float(f(second)) == 4
    assert compilations == []


# ---- a bound that raises


def test_a_bound_raises_in_a_compiled_function_that_has_run_before():
    f = jax.jit(lambda x: dynloop.while_loop(lambda y: y < 9, lambda y: y + 1, x, max_steps=3))
    assert float(f(7.0)) == 9
    # From the second call on JAX goes another way, on which its error is a ValueError.
    with pytest.raises((RuntimeError, ValueError), match="max_steps=3 was reached"):
        jax.block_until_ready(f(0.0))


def test_gradients_that_are_taken_again_hold_no_more_memory():
    """Outside of `jax.jit` every call is a new trace of its own closure."""

    def gradient(w: float) -> float:
        scale = jnp.full(100, w)
        f = lambda x: jnp.sum(dynloop.fori_loop(0, 5, lambda i, y: jnp.sin(y) * scale, x, checkpoints=2))
        return float(jax.grad(f)(jnp.ones(100))[0])

    def held() -> int:
        gc.collect()
        return sum(x.nbytes for x in jax.live_arrays())

    gradient(1.0)
    before = held()
    assert len({gradient(1.0 + 0.1 * i) for i in range(2)}) == 2
    assert held() <= before
