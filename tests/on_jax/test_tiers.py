"""Claims about loops with states in memory of the host: the same numbers and evaluations, few transfers, the programs.

On a CPU the two memories are one, and a move is nothing; that a GPU moves what its program says is not tested here.
"""

import re
from collections import Counter
from functools import cache
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import adjoint
import dynloop
from dynloop import Device, Host
from dynloop.on_jax import host_memory
from tests.closeness import assert_close
from tests.on_jax.counting import CountedGradient, counted_gradient, counted_gradient_of_fori_loop
from tests.on_jax.programs import compiled, copies_inside_loops, custom_calls, stablehlo
from tests.on_jax.subjects import SUBJECTS, V, W, X, looped, unrolled

LENGTHS = [*range(21), 100]
SPLITS = [(1, 2), (2, 3)]


@cache
def online(device: int, host: int) -> CountedGradient:
    return counted_gradient(checkpoints=[Device(device), Host(host)])


@cache
def known(device: int, host: int) -> CountedGradient:
    return counted_gradient_of_fori_loop(checkpoints=[Device(device), Host(host)])


@pytest.mark.parametrize(("split", "n"), list(product(SPLITS, LENGTHS)), ids=str)
def test_gradient_and_evaluations_are_those_of_all_the_slots(split: tuple[int, int], n: int):
    assert len(online(*split)(n)) == adjoint.Online(sum(split)).cost(n).evaluations


@pytest.mark.parametrize(("split", "n"), list(product(SPLITS, LENGTHS)), ids=str)
def test_a_known_number_of_steps_takes_the_least_evaluations(split: tuple[int, int], n: int):
    assert len(known(*split)(n)) == adjoint.Binomial(sum(split)).cost(n).evaluations


def test_a_scan_has_the_gradient_of_a_central_difference():
    """Rows of the host that were read from the other end would give another number."""

    def total(a: Any) -> Any:
        step = lambda c, y: ((a * c[0] + 0.1, c[1] + y * 4 * (a * c[0] + 0.1)), None)
        return dynloop.scan(step, (a, 0 * a), jnp.arange(1.0, 21), checkpoints=[Device(2), Host(5)])[0][1]

    assert round(float(jax.grad(total)(0.9)), 3) == 6063.169
    difference = (total(0.9 + 1e-5) - total(0.9 - 1e-5)) / 2e-5
    assert abs(difference - 6063.169) < 1e-3


def test_a_bound_that_all_tiers_hold_computes_nothing_again():
    run = counted_gradient(checkpoints=[Device(3), Host(20)], max_steps=20, on_max_steps="stop")
    assert [len(run(n)) for n in (0, 1, 3, 4, 20)] == [0, 2, 6, 8, 40]


# ---- transformations

f, plain = (SUBJECTS["simple"](r) for r in (looped(checkpoints=[Device(1), Host(2)]), unrolled))
XS = jnp.stack([X, 2 * X])
DERIVED: dict[str, Any] = {
    "reverse over reverse": lambda f: jax.grad(lambda x: jax.grad(f)(x, W) @ V)(X),
    "forward over reverse": lambda f: jax.jvp(lambda x: jax.grad(f)(x, W), (X,), (V,))[1],
    "vmap of the gradient": lambda f: jax.vmap(jax.grad(f), (0, None))(XS, W),
    "a branch, by lanes": lambda f: jax.vmap(
        jax.grad(lambda x: dynloop.cond(x[0] < 0.5, lambda x: f(x, W), lambda x: jnp.sum(x), x))
    )(XS),
}


@pytest.mark.parametrize("name", DERIVED)
def test_derivatives_are_those_of_the_unrolled_loop(name: str):
    assert_close(jax.jit(lambda: DERIVED[name](f))(), jax.jit(lambda: DERIVED[name](plain))())


TIERS = (Device(1), Host(2))


def stops(x: Any, checkpoints: Any = TIERS) -> Any:
    far, grow = (lambda y: jnp.sum(y) < 100), (lambda y: 1.5 * y + jnp.sin(y))
    return jnp.sum(dynloop.while_loop(far, grow, x, checkpoints=checkpoints))


def test_lanes_stop_by_themselves():
    xs = jnp.asarray([1.0, 200.0, 7.0])
    assert_close(jax.jit(jax.vmap(jax.grad(stops)))(xs), jax.vmap(jax.grad(lambda x: stops(x, 3)))(xs))


@pytest.mark.parametrize("compile", [jax.jit, lambda f: f], ids=["jit", "eager"])
def test_inside_shard_map_the_gradient_is_that_of_slots(compile: Any):
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))

    def loss(x: Any, checkpoints: Any) -> Any:
        each = lambda x: stops(x, checkpoints)[None]
        return jnp.sum(jax.shard_map(each, mesh=mesh, in_specs=jax.P("i"), out_specs=jax.P("i"))(x))

    assert_close(compile(jax.grad(lambda x: loss(x, TIERS)))(X), jax.jit(jax.grad(lambda x: loss(x, 3)))(X))


def test_keys_lie_on_the_host_and_outside_of_jit_too():
    run = lambda repeat: SUBJECTS["typed_keys"](repeat)
    tiers = looped(checkpoints=[Device(1), Host(2)], observe=dynloop.verify())
    assert_close(jax.grad(run(tiers))(X, W), jax.grad(run(unrolled))(X, W))


# ---- transfers


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Rows that a running program has written to the host, and read from it."""
    counted: Counter[str] = Counter()

    def counting(name: str) -> None:
        real = getattr(host_memory, name)

        def counted_move(*args: Any) -> Any:
            jax.debug.callback(lambda: counted.update([name]))
            return real(*args)

        monkeypatch.setattr(host_memory, name, counted_move)

    counting("put_in_host")
    counting("get_from_host")
    return counted


@pytest.mark.parametrize("kind", ["known", "unknown"])
def test_the_states_touched_least_lie_on_the_host(kind: str, moves: Counter[str]):
    def last(x: Any, n: Any) -> Any:
        step = lambda i, y: 0.5 * jnp.sin(y) + 0.1
        tiers = [Device(2), Host(5)]
        if kind == "known":
            return dynloop.fori_loop(0, n, step, x, checkpoints=tiers)
        start = (jnp.asarray(0), x)
        return dynloop.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, step(*c)), start, checkpoints=tiers)[1]

    gradient = jax.jit(jax.grad(last))
    schedule = adjoint.Multistage((adjoint.Tier("device", 2), adjoint.Tier("host", 5, write=1, read=1)))
    for n in (0, 2, 5, 20, 100):
        moves.clear()
        gradient(0.7, n)
        jax.effects_barrier()
        written, read = moves["put_in_host"], moves["get_from_host"]
        least = schedule.cost(n).traffic[1]
        if kind == "known":
            # A state is read once for its turn too, and Multistage reads it once for both where it can.
            assert least.stores <= written <= 1.35 * least.stores
            assert least.restores <= read <= 1.35 * least.restores + 1
        else:
            # State 0 always lies on the host, and of the others the loop does not know which will stay.
            assert written <= 2 * least.stores + 1
            assert read <= 1.6 * least.restores + 3


@pytest.mark.parametrize("n", [2, 50])
def test_the_bytes_that_explain_tells_are_those_that_moved(n: int, moves: Counter[str]):
    """Two lanes of a carry of 7 entries, counted where rows are written and read, which the report is not made of."""

    def last(x: Any) -> Any:
        step = lambda i, y: 0.5 * jnp.sin(y) + 0.1
        return jnp.sum(dynloop.fori_loop(0, n, step, x, checkpoints=[Device(2), Host(4)]))

    report = dynloop.explain(jax.vmap(jax.grad(last)))(jnp.ones((2, 7)))
    (loop,) = report.loops
    row = 2 * 7 * 8
    assert (loop.to_host, loop.from_host) == (row * moves["put_in_host"], row * moves["get_from_host"])
    assert (loop.to_host > 0) == ("to the host" in str(report)) == (n > 2)


# ---- programs


def cuda_program(f: Any, *args: Any) -> str:
    return export.export(jax.jit(f), platforms=["cuda"])(*args).mlir_module()


@pytest.mark.versions
def test_a_program_for_cuda_moves_rows_only_and_calls_nothing_on_the_host():
    """The carry has 7 entries, and its buffers 2 rows on the device and 5 on the host."""
    program = cuda_program(jax.grad(lambda x: stops(x, [Device(1), Host(5)])), jnp.ones(7))
    assert custom_calls(program) == {"annotate_device_placement"}
    moved = re.findall(r'_xla_buffer_placement = "(\w+)"\}\} : \((\S+)\)', program)
    assert set(moved) == {("pinned_host", "tensor<1x7xf64>"), ("device", "tensor<1x7xf64>")}
    # Nothing is done with the buffer of the host but to allocate it, carry it, write a row and read one.
    uses = re.findall(r"(stablehlo\.\w+|func\.call).* -> tensor<5x7xf64>", program)
    assert set(uses) == {"stablehlo.broadcast_in_dim", "stablehlo.dynamic_update_slice"}
    used = re.findall(r"= \"?(stablehlo\.\w+).*\(tensor<5x7xf64>", program)
    assert set(used) == {"stablehlo.dynamic_update_slice", "stablehlo.dynamic_slice"}
    assert "stablehlo.case" not in program


@pytest.mark.versions
def test_what_a_forward_pass_hands_on_lies_on_the_host():
    pull = lambda x: jax.tree_util.tree_leaves(jax.vjp(lambda x: stops(x, [Device(1), Host(5)]), x)[1])
    kinds = re.findall(r'tensor<5x7xf64> \{[^}]*memory_kind = "(\w+)"', cuda_program(pull, jnp.ones(7)))
    assert kinds == ["pinned_host"]
    buffers = [x for x in jax.jit(pull)(jnp.ones(7)) if x.shape == (5, 7)]
    assert [x.sharding.memory_kind for x in buffers] == ["pinned_host"]


def test_one_tier_is_a_number_of_slots():
    gradient = lambda checkpoints: lambda x: jax.grad(lambda x: stops(x, checkpoints))(x)
    assert stablehlo(gradient([Device(4)]), X) == stablehlo(gradient(4), X)


def test_peak_memory_beside_the_host_is_that_of_the_slots_on_the_device():
    """XLA's statistics for a CPU count both memories together, so the rows of the host are taken off."""
    size = 2**17

    def loss(x: Any, w: Any, n: Any, checkpoints: Any) -> Any:
        grow = lambda c: (c[0] + 1, jnp.sin(c[1]) * w)
        start = (jnp.asarray(0, jnp.int32), x)
        return jnp.sum(dynloop.while_loop(lambda c: c[0] < n, grow, start, checkpoints=checkpoints)[1])

    arguments = (jnp.ones(size), jnp.full(size, 0.5), jnp.asarray(5))
    gradient = lambda x, w, n: jax.grad(loss, (0, 1))(x, w, n, [Device(1), Host(8)])
    program = compiled(gradient, *arguments)
    assert [shape for shape in copies_inside_loops(program.as_text()) if f",{size}]" in shape] == []
    tape = closed_over = 8 * size
    peak = program.memory_analysis().temp_size_in_bytes - 8 * 8 * size
    assert peak <= (1 + 4) * 8 * size + tape + 2 * closed_over + 2**16


def test_moves_to_the_host_change_no_value():
    x = jnp.arange(3.0)
    rows = jax.jit(lambda x: host_memory.put_in_host(host_memory.host_rows(x, 4), 2 * x, 1))(x)
    assert rows.sharding.memory_kind == "pinned_host"
    row = jax.jit(lambda rows: host_memory.get_from_host(rows, 1, x))(rows)
    assert (row.sharding.memory_kind, row.tolist()) == ("device", [0.0, 2.0, 4.0])
    np.testing.assert_array_equal(rows[1], row)
