"""Claims about `dynloop.debug()`: the loops as plain Python give what the compiled ones give, and more can be seen."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynloop
from tests.closeness import assert_close
from tests.dynloop.backends import JAX_EAGER as EAGER
from tests.dynloop.backends import JAX_JIT
from tests.dynloop.problems import PROBLEMS, W, X

ROWS = jnp.asarray([1.0, 2.0, 3.0, 4.0])


def running_sum(total: Any, x: Any) -> Any:
    return total + x, {"sum": total + x, "none": None}


LOOPS: dict[str, Any] = {
    "while_loop": lambda x, **k: dynloop.while_loop(lambda y: y < 10, lambda y: 2 * y, x, **k),
    "fori_loop": lambda x, **k: dynloop.fori_loop(-1, 4, lambda i, y: y * (i + 2), x, **k),
    "scan": lambda x, **k: dynloop.scan(running_sum, x, ROWS, **k),
    "scan of rows in reverse": lambda x, **k: dynloop.scan(running_sum, x, ROWS, reverse=True, **k),
    "scan until": lambda x, **k: dynloop.scan(running_sum, x, ROWS, until=lambda t: t > 3, **k),
    "scan that never starts": lambda x, **k: dynloop.scan(running_sum, x, ROWS, until=lambda t: t > 0, **k),
    "scan of nothing": lambda x, **k: dynloop.scan(running_sum, x, ROWS[:0], **k),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a result": {"full_output": True},
    "a bound": {"max_steps": 2, "on_max_steps": "stop", "full_output": True},
    "a bound that makes NaN": {"max_steps": 2, "on_max_steps": "nan"},
    "a bound that is not reached": {"max_steps": 20},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("loop", LOOPS)
def test_plain_loops_give_what_compiled_ones_give(loop: str, options: str):
    compiled = LOOPS[loop](EAGER.asarray(1.0), **OPTIONS[options])
    with dynloop.debug():
        plain = LOOPS[loop](EAGER.asarray(1.0), **OPTIONS[options])
    assert jax.tree.structure(plain) == jax.tree.structure(compiled)
    for x, y in zip(jax.tree.leaves(plain), jax.tree.leaves(compiled), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_allclose(x, y, rtol=1e-14)


@pytest.mark.parametrize("name", PROBLEMS)
def test_gradients_of_plain_loops_are_those_of_compiled_ones(name: str):
    def f(x: Any, w: Any) -> Any:
        return PROBLEMS[name](dynloop.while_loop, EAGER, x, w, 5)

    args = EAGER.asarray(X), EAGER.asarray(W)
    compiled = EAGER.grad(f, (0, 1))(*args)
    with dynloop.debug():
        plain = EAGER.grad(f, (0, 1))(*args)
    assert_close(plain, compiled)


def test_values_can_be_seen_and_observers_are_told():
    seen: list[float] = []
    told: list[Any] = []

    def body(y: Any) -> Any:
        seen.append(float(y))
        return 2 * y

    with dynloop.debug():
        show = dynloop.on_step(lambda i, y: told.append((i, float(y))))
        dynloop.while_loop(lambda y: y < 10, body, EAGER.asarray(3.0), observe=[show, dynloop.verify()])
    assert seen == [3.0, 6.0]
    assert told == [(0, 6.0), (1, 12.0)]


def test_a_bound_raises_its_message():
    with dynloop.debug(), pytest.raises(RuntimeError, match="max_steps=2 was reached and the condition still held"):
        LOOPS["while_loop"](EAGER.asarray(1.0), max_steps=2)


def test_a_leaf_that_changes_is_told():
    with dynloop.debug(), pytest.raises(dynloop.CarryError, match=r"carry\['y'\] is .*\[\] before a step and .*\[2\]"):
        dynloop.while_loop(lambda c: c["y"] < 1, lambda c: {"y": jnp.ones(2)}, {"y": EAGER.asarray(0.0)})


def test_a_compiled_surrounding_is_told():
    with dynloop.debug(), pytest.raises(TypeError, match="traced array") as raised:
        JAX_JIT.value(LOOPS["while_loop"], EAGER.asarray(1.0))
    assert "leave jax.jit and jax.vmap out" in "".join(raised.value.__notes__)


@pytest.mark.parametrize("reads", ["y", "z"])
def test_the_status_asks_what_the_condition_reads(reads: str):
    def run() -> Any:
        body = lambda c: {"i": c["i"] + 1, "y": c["y"] * jnp.nan, "z": c["z"] * 2}
        start = {"i": 0, "y": EAGER.asarray(1.0), "z": EAGER.asarray(1.0)}
        return dynloop.while_loop(lambda c: (c["i"] < 2) & (c[reads] < 100), body, start, full_output=True)

    compiled = run()
    with dynloop.debug():
        plain = run()
    assert plain.stopped_because is compiled.stopped_because


def test_debugging_ends_with_its_block():
    with dynloop.debug():
        pass
    traced: list[Any] = []
    dynloop.while_loop(lambda y: y < 10, lambda y: traced.append(y) or 2 * y, EAGER.asarray(1.0))
    assert len(traced) == 1
