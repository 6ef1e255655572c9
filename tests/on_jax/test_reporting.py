"""Claims about `dynloop.explain` on JAX: what it reports is what ran, wherever in the program a loop stands."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import adjoint
import dynloop
from dynloop.on_jax import reporting
from tests.on_jax.counting import START, CountedGradient, counted_gradient, counted_gradient_of_fori_loop

pytestmark = pytest.mark.versions

X = jnp.asarray(START)


def swing(x: Any) -> Any:
    """Not linear, so that a gradient reads the states."""
    return jnp.sin(x) + 0.5


def many(x: Any, n: Any, **options: Any) -> Any:
    """n steps, by a condition on the carry."""
    start = (jnp.asarray(0, jnp.int32), x)
    return dynloop.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, swing(c[1])), start, **options)[1]


def only(report: dynloop.Report) -> dynloop.LoopReport:
    (loop,) = report.loops
    return loop


COUNTED: dict[str, tuple[Any, CountedGradient]] = {
    "slots": (adjoint.Online(3), counted_gradient(checkpoints=3)),
    "leaf rows": (adjoint.Online(2, leaf=5), counted_gradient(checkpoints=adjoint.Online(2, leaf=5))),
    "known": (adjoint.Binomial(3), counted_gradient_of_fori_loop(checkpoints=3)),
    "known, leaf rows": (adjoint.Blocks(2, 5), counted_gradient_of_fori_loop(checkpoints=adjoint.Online(2, leaf=5))),
    "all": (adjoint.StoreAll(), counted_gradient(checkpoints="all", max_steps=40)),
}


@pytest.mark.parametrize("case", COUNTED)
def test_evaluations_reported_are_those_that_ran(case: str) -> None:
    schedule, gradient = COUNTED[case]
    gradient.recorder.seen.clear()
    loop = only(dynloop.explain(gradient.run)(X, jnp.asarray(37, jnp.int32)))
    assert loop.executed == loop.evaluations == len(gradient.recorder.seen)
    assert (loop.schedule, loop.steps, loop.forward, loop.reversed) == (schedule, 37, {37: 1}, {37: 1})


def test_a_loop_without_a_gradient_is_told_what_one_would_cost() -> None:
    loop = only(dynloop.explain(many)(X, 50, checkpoints=4))
    gradient = only(dynloop.explain(jax.grad(many))(X, 50, checkpoints=4))
    assert (loop.executed, loop.reversals) == (50, 0)
    assert (loop.schedule, loop.evaluations) == (gradient.schedule, gradient.executed)
    # The counter is not read by the gradient, and takes no room in a slot.
    assert loop.state_bytes == gradient.state_bytes == X.nbytes
    assert loop.buffer_bytes == 5 * X.nbytes


def test_rows_in_memory_of_the_host_are_told() -> None:
    told = dynloop.explain(many)(X, 50, checkpoints=[dynloop.Device(1), dynloop.Host(3)])
    assert (only(told).slots, only(told).host_rows) == (4, 3)
    assert "in all; 3 of them in memory of the host" in str(told)


def test_a_loop_with_a_counter_of_its_own_counts_the_same() -> None:
    assert only(dynloop.explain(many)(X, 9, max_steps=20)).steps == 9
    assert only(dynloop.explain(many)(X, 30, max_steps=20, on_max_steps="stop")).steps == 20


def test_a_compiled_function_is_compiled_anew_and_stays_as_it_was() -> None:
    compiled = jax.jit(jax.grad(many), static_argnums=1)
    before = compiled(X, 20)
    text = compiled.lower(X, 20).as_text()
    assert only(dynloop.explain(lambda x: compiled(x, 20))(X)).executed == adjoint.Online(64).cost(20).evaluations
    assert compiled(X, 20) == before
    assert compiled.lower(X, 20).as_text() == text
    assert "callback" not in text


def test_a_call_outside_of_jit_is_not_told_of() -> None:
    many_again = lambda x: dynloop.while_loop(lambda x: x < 9, lambda x: x * x, x)
    first = dynloop.explain(many_again)(X + 1)
    many_again(X + 1)
    assert only(first).runs == only(dynloop.explain(many_again)(X + 1)).runs == 1


def test_an_inner_loop_has_one_entry_with_all_its_runs() -> None:
    def outer(x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            return swing(dynloop.while_loop(lambda z: z < 2.0 + i, lambda z: z + 0.3 * jnp.cos(z) ** 2 + 0.1, y))

        return dynloop.fori_loop(0, 6, body, x, checkpoints=2)

    report = dynloop.explain(jax.grad(outer))(X)
    first, second = report.loops
    assert (first.name, second.name) == ("fori_loop", "while_loop")
    assert first.executed == adjoint.Binomial(2).cost(6).evaluations
    # Each evaluation of the outer body runs it forward, and each turn of it reverses it.
    assert (second.runs, second.reversals) == (first.executed, 6)
    assert "test_reporting.py" in first.where
    assert str(report) == f"{first}\n\n{second}"


def test_lanes_count_as_the_longest_of_them() -> None:
    gradients = jax.vmap(jax.grad(lambda x, n: many(x, n, checkpoints=3)))
    loop = only(dynloop.explain(gradients)(X[None].repeat(3), np.array([4, 20, 9])))
    assert (loop.lanes, loop.forward, loop.reversed) == (3, {20: 1}, {20: 1})
    assert loop.executed == adjoint.Online(3).cost(20).evaluations
    assert loop.buffer_bytes == 3 * 4 * X.nbytes


def test_a_lane_that_stops_at_once_has_no_steps() -> None:
    assert only(dynloop.explain(jax.vmap(many))(X[None].repeat(2), jnp.zeros(2, jnp.int32))).forward == {0: 1}


def test_higher_derivatives_carry_tangents() -> None:
    loops = dynloop.explain(jax.hessian(lambda x: many(x, 12, checkpoints=2)))(X).loops
    assert all(loop.has_tangents and loop.executed == adjoint.Online(2).cost(12).evaluations for loop in loops)
    assert "with tangents" in str(loops[0])


def test_forward_mode_runs_one_loop() -> None:
    loop = only(dynloop.explain(lambda x: jax.jvp(lambda x: many(x, 12), (x,), (x,)))(X))
    assert (loop.has_tangents, loop.executed) == (True, 12)


def test_the_same_body_with_two_sizes_of_carry_has_two_entries() -> None:
    report = dynloop.explain(lambda x: (many(x, 5), many(jnp.stack([x, x]), 6)))(X)
    assert [(loop.steps, loop.state_bytes) for loop in report.loops] == [(5, X.nbytes), (6, 2 * X.nbytes)]


def test_a_scan_that_stops_and_one_in_a_branch_are_found() -> None:
    def scanned(x: Any, is_long: Any) -> Any:
        rows = jnp.arange(9.0)
        scan = lambda: dynloop.scan(lambda y, row: (swing(y) + row, y), x, rows, until=lambda y: y > 5)[0]
        return jax.lax.cond(is_long, scan, lambda: x)

    y, steps = X, 0
    while y <= 5:
        y, steps = swing(y) + steps, steps + 1
    assert only(dynloop.explain(scanned)(X, True)).steps == steps
    never = only(dynloop.explain(scanned)(X, jnp.asarray(False)))
    assert (never.runs, never.longest, never.ratio) == (0, 0, 1.0)


def test_a_loop_that_has_no_derivative_is_told_of() -> None:
    def body(x: Any) -> Any:
        return jax.pure_callback(lambda x: x * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    assert only(dynloop.explain(lambda x: dynloop.while_loop(lambda x: x < 9, body, x))(X)).steps == 4


def test_a_custom_rule_that_refuses_is_told_of() -> None:
    @jax.custom_jvp
    def double(x: Any) -> Any:
        return x * 2

    @double.defjvp
    def refuse(primals: Any, tangents: Any) -> Any:
        raise TypeError("this function is not to be differentiated")

    assert only(dynloop.explain(lambda x: dynloop.while_loop(lambda x: x < 9, double, x))(X)).steps == 4


def test_a_fault_of_dynloop_itself_is_not_taken_for_a_missing_derivative(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(loop: Any) -> Any:
        raise ValueError("broken")

    monkeypatch.setattr(reporting, "swept_loop", broken)
    with pytest.raises(ValueError, match="broken"):
        dynloop.explain(many)(X, 5)


def test_checkpoints_of_none_keep_nothing() -> None:
    loop = only(dynloop.explain(many)(X, 5, checkpoints=0))
    assert (loop.schedule, loop.has_gradient, loop.buffer_bytes, loop.evaluations) == (None, False, 0, 5)


def test_a_function_without_loops_has_an_empty_report() -> None:
    assert dynloop.explain(jnp.sin)(X) == dynloop.Report(())


def test_arguments_that_are_no_arrays_stay_as_they_are() -> None:
    def f(x: Any, *, how: str, n: int) -> Any:
        assert how == "slowly"
        return many(x, n, checkpoints=n)

    assert only(dynloop.explain(f)(X, how="slowly", n=3)).schedule == adjoint.Online(3)


def test_a_bound_that_raises_still_raises() -> None:
    with pytest.raises(Exception, match="max_steps=3 was reached"):
        dynloop.explain(lambda x: many(x, 9, max_steps=3))(X)


def test_a_function_that_looks_at_a_value_is_told_why_it_cannot() -> None:
    with pytest.raises(jax.errors.ConcretizationTypeError) as caught:
        dynloop.explain(lambda x: float(many(x, 3)))(X)
    assert "explain: the function is compiled as by jax.jit" in caught.value.__notes__[0]


@pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.vmap])
def test_inside_of_a_transformation_it_is_refused(transform: Any) -> None:
    def f(x: Any) -> Any:
        dynloop.explain(lambda x: many(x, 3))(x)
        return x

    with pytest.raises(dynloop.ArgumentError, match=r"^explain: it runs the function and counts"):
        transform(f)(X[None] if transform is jax.vmap else X)


def test_what_it_closes_over_of_a_transformation_is_refused() -> None:
    with pytest.raises(dynloop.ArgumentError, match=r"^explain: it runs the function and counts"):
        jax.jit(lambda x: dynloop.explain(lambda y: many(x, 3) + y, backend="jax")(1.0))(X)
