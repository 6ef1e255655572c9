"""Claims about loops on several devices, which may take different numbers of steps."""

import socket
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import dynloop
from tests.closeness import assert_close
from tests.on_jax import sharded_loops, sharded_programs, two_processes
from tests.on_jax.device_process import results, start

Found = dict[str, Any]


@pytest.fixture(scope="module")
def cases() -> Found:
    """Of both modules, whose processes run at the same time."""
    started = [start(f"tests.on_jax.{name}", 8) for name in ("sharded_loops", "sharded_programs")]
    try:
        first, second = map(results, started)
    finally:
        for process in started:
            process.kill()
    return first | second


@pytest.fixture(scope="module")
def both_processes() -> list[Found]:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = str(probe.getsockname()[1])
    started = [start("tests.on_jax.two_processes", 2, port, index) for index in ("0", "1")]
    try:
        return [results(process, 120) for process in started]
    finally:
        for process in started:
            process.kill()


def assert_as_expected(result: Any) -> None:
    assert isinstance(result, list), result
    assert_close(*result)


@pytest.mark.parametrize("case", sharded_loops.CASES)
def test_devices_agree_with_loops_in_python(case: str, cases: Found):
    assert_as_expected(cases[case])


@pytest.mark.parametrize("case", sharded_programs.CASES)
def test_programs_divide_and_communicate(case: str, cases: Found):
    assert_as_expected(cases[case])


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("case", two_processes.CASES)
def test_processes_that_take_different_numbers_of_steps_sum_one_gradient(
    case: str, index: int, both_processes: list[Found]
):
    assert_as_expected(both_processes[index][case])


# ---- what is refused, and why


def on_one_device(f: Any) -> Any:
    """Inside shard_map with check_vma, over one device: f(w, x), w being the same on all."""
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    g = jax.shard_map(f, mesh=mesh, in_specs=(jax.P(), jax.P("i")), out_specs=jax.P("i"))
    return jax.grad(lambda w: jnp.sum(g(w, jnp.ones(1))))(jnp.asarray(2.0))


@jax.custom_jvp
def product(a: Any, b: Any) -> Any:
    return a * b


product.defjvp(lambda p, t: (p[0] * p[1], p[0] * t[1] + t[0] * p[1]))

OPAQUE: dict[str, Any] = {
    "inner scan": lambda w, y: jax.lax.scan(lambda c, _: (c * w, None), y, None, length=2)[0],
    "jax.checkpoint": lambda w, y: jax.checkpoint(lambda y: w * y)(y),
    "custom rule": product,
}


@pytest.mark.parametrize("name", OPAQUE)
def test_a_shared_value_out_of_reach_is_refused_with_the_cast_to_write(name: str):
    def loop(w: Any, x: Any) -> Any:
        return dynloop.while_loop(lambda y: y[0] < 10, lambda y: OPAQUE[name](w, y), x, checkpoints=2)

    with pytest.raises(dynloop.DerivativeError, match=r"w = jax\.lax\.pcast\(w, \('i',\), to=\"varying\"\)"):
        on_one_device(loop)
    advised = on_one_device(lambda w, x: loop(jax.lax.pcast(w, ("i",), to="varying"), x))
    assert float(advised) == 32  # of 2^4, which two steps of w^2 or four of w make


def test_sync_outside_of_shard_map_is_refused():
    with pytest.raises(dynloop.ArgumentError, match=r"sync='any' is for loops inside jax\.shard_map"):
        dynloop.while_loop(lambda y: y < 10, lambda y: 2 * y, jnp.asarray(1.0), sync="any")


@pytest.mark.parametrize("loop", [dynloop.while_loop, dynloop.fori_loop, dynloop.scan])
def test_an_unknown_sync_is_refused(loop: Any):
    arguments = {
        dynloop.while_loop: (lambda y: y < 10, lambda y: 2 * y, jnp.asarray(1.0)),
        dynloop.fori_loop: (0, 3, lambda i, y: 2 * y, jnp.asarray(1.0)),
        dynloop.scan: (lambda c, x: (c, x), jnp.asarray(1.0), jnp.ones(3)),
    }
    with pytest.raises(dynloop.ArgumentError, match="sync='all' is unknown; give \"any\""):
        loop(*arguments[loop], sync="all")


# ---- the tests themselves


def child(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("ending", "told"), [("time.sleep(60)", "no end after 1 seconds"), ("exit(3)", "status 3")])
def test_a_case_that_hangs_or_dies_is_named(ending: str, told: str):
    code = f"""import time\nprint('{{"case": "ring"}}', flush=True)\n{ending}"""
    with pytest.raises(AssertionError, match=rf"{told}, the last case begun being \['ring'\]"):
        results(child(code), 1)
