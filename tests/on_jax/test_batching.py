"""Claims about vmap: each lane gives what it gives alone, stops by itself, and costs the others no finite gradient."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynloop
from dynloop import StoppedBecause
from tests.closeness import assert_close
from tests.on_jax.subjects import looped, unrolled

pytestmark = pytest.mark.versions

STEPS = np.array([0, 3, 4, 0, 9])
XS = jnp.asarray([0.3, -0.5, 0.9, 1.4, 0.1])
WS = jnp.asarray([0.7, 1.1, 0.4, 0.9, 1.3])
W = jnp.asarray(0.8)


def counted(steps: Any, **options: Any) -> Callable[[Any, Any], Any]:
    """sin(w y) + y / 3, repeated: the number of steps may differ between lanes."""

    def f(x: Any, w: Any) -> Any:
        def body(carry: Any) -> Any:
            return carry[0] + 1, jnp.sin(w * carry[1]) + carry[1] / 3

        return dynloop.while_loop(lambda c: c[0] < steps, body, (jnp.int32(0), x), **options)[1]

    return f


def plain(steps: int) -> Callable[[Any, Any], Any]:
    def f(x: Any, w: Any) -> Any:
        for _ in range(steps):
            x = jnp.sin(w * x) + x / 3
        return x

    return f


def one_by_one(transform: Callable[[Any], Any], ws: Any) -> Any:
    """The oracle: each lane alone, unrolled."""
    lanes = [transform(plain(int(n)))(x, w) for n, x, w in zip(STEPS, XS, jnp.broadcast_to(ws, XS.shape), strict=True)]
    return jax.tree.map(lambda *xs: jnp.stack(xs), *lanes)


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "value": lambda f: f,
    "gradient": lambda f: jax.grad(f, (0, 1)),
    "jvp": lambda f: lambda x, w: jax.jvp(f, (x, w), (1.0, 0.5)),
    "hessian": lambda f: jax.hessian(f, (0, 1)),
    "reverse over reverse": lambda f: jax.jacrev(jax.grad(f, (0, 1)), (0, 1)),
    "forward over forward": lambda f: jax.jacfwd(jax.jacfwd(f, (0, 1)), (0, 1)),
}


@pytest.mark.parametrize("checkpoints", [1, 2, "auto"])
@pytest.mark.parametrize("ws", [W, WS], ids=["shared", "per lane"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_each_lane_gives_what_it_gives_alone(name: str, ws: Any, checkpoints: Any):
    transform = TRANSFORMS[name]

    def lane(n: Any, x: Any, w: Any) -> Any:
        return transform(counted(n, checkpoints=checkpoints))(x, w)

    found = jax.jit(jax.vmap(lane, (0, 0, None if ws is W else 0)))(STEPS, XS, ws)
    assert_close(found, one_by_one(transform, ws))


def total(ws_axis: int | None, **options: Any) -> Callable[[Any, Any], Any]:
    lane = jax.vmap(lambda n, x, w: counted(n, **options)(x, w), (0, 0, ws_axis))
    return lambda xs, ws: jnp.sum(lane(STEPS, xs, ws) ** 2)


def plain_total(xs: Any, ws: Any) -> Any:
    each = jnp.broadcast_to(ws, xs.shape)
    return sum(plain(int(n))(xs[i], each[i]) ** 2 for i, n in enumerate(STEPS))


@pytest.mark.parametrize("ws", [W, WS], ids=["shared", "per lane"])
@pytest.mark.parametrize("name", ["gradient", "hessian", "reverse over reverse"])
def test_derivatives_of_a_batch_equal_those_of_the_plain_loops(name: str, ws: Any):
    transform = TRANSFORMS[name]
    found = jax.jit(transform(total(None if ws is W else 0, checkpoints=2)))(XS, ws)
    assert_close(found, transform(plain_total)(XS, ws))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_condition_that_is_the_same_for_all_lanes_counts_for_all(name: str):
    transform = TRANSFORMS[name]
    found = jax.jit(jax.vmap(transform(counted(7, checkpoints=2))))(XS, WS)
    alone = [transform(plain(7))(x, w) for x, w in zip(XS, WS, strict=True)]
    assert_close(found, jax.tree.map(lambda *xs: jnp.stack(xs), *alone))


def rooted(x: Any, limit: Any) -> Any:
    """The root, while above the limit: at 0 its derivative is infinite."""
    return dynloop.while_loop(lambda y: y > limit, jnp.sqrt, x, checkpoints=2)


@pytest.mark.parametrize("together", [True, False])
def test_a_lane_that_is_finished_at_an_infinite_slope_keeps_its_gradient(together: bool):
    xs = jnp.asarray([0.0, 4.0])
    if together:
        found = jax.grad(lambda xs: jnp.sum(jax.vmap(lambda x: rooted(x, 1.5))(xs)))(xs)
    else:
        found = jax.vmap(jax.grad(lambda x: rooted(x, 1.5)))(xs)
    assert_close(found, jnp.asarray([1.0, 4**-0.75 / 4]))


@pytest.mark.parametrize("start", [1.0, 100.0])
def test_the_body_never_sees_a_state_whose_condition_is_false(start: float):
    """1 / (10 - y) in the body, and lanes that stop at 10 exactly, or start there."""

    def f(x: Any, w: Any) -> Any:
        return dynloop.while_loop(lambda y: y < 10, lambda y: y + w * (1 + 0 / (10 - y)), x, checkpoints=2)

    xs, w = jnp.asarray([10.0, 7.0, 9.5, start]), jnp.asarray(1.0)
    value, (for_x, for_w) = jax.value_and_grad(lambda xs, w: jnp.sum(jax.vmap(f, (0, None))(xs, w)), (0, 1))(xs, w)
    steps = sum(int(np.ceil(max(10 - float(x), 0))) for x in xs)
    assert_close((value, for_x, for_w), (jnp.sum(xs) + steps, jnp.ones(4), jnp.asarray(float(steps))))


def test_lanes_count_and_report_for_themselves():
    def f(x: Any) -> Any:
        options = {"max_steps": 4, "on_max_steps": "stop", "full_output": True}
        return dynloop.while_loop(lambda y: y < 10, lambda y: 2 * y, x, **options)

    result = jax.vmap(f)(jnp.asarray([20.0, 3.0, 0.1, jnp.nan]))
    assert result.steps.tolist() == [0, 2, 4, 0]
    assert [StoppedBecause(s).name for s in result.status.tolist()] == ["CONDITION", "CONDITION", "BOUND", "NONFINITE"]


def test_one_lane_at_the_bound_raises_for_all():
    f = jax.vmap(lambda x: dynloop.while_loop(lambda y: y < 10, lambda y: 2 * y, x, max_steps=3))
    with pytest.raises(Exception, match="max_steps=3 was reached"):
        jax.block_until_ready(f(jnp.asarray([20.0, 0.1])))


@pytest.mark.parametrize(("option", "value", "slope"), [("stop", 0.8, 8.0), ("nan", np.nan, np.nan)])
def test_a_lane_at_the_bound_leaves_the_others_what_they_have(option: Any, value: float, slope: float):
    # patrick-kidger/diffrax#268, patrick-kidger/optimistix#66.
    def f(x: Any) -> Any:
        return dynloop.while_loop(lambda y: y < 10, lambda y: 2 * y, x, max_steps=3, on_max_steps=option)

    found = jax.vmap(jax.value_and_grad(f))(jnp.asarray([20.0, 3.0, 0.1]))
    np.testing.assert_allclose(found, ([20, 12, value], [1, 4, slope]), rtol=1e-12)


def test_lanes_of_a_parameter_in_the_condition():
    f = jax.vmap(lambda w: dynloop.while_loop(lambda y: y < 10, lambda y: y * w, jnp.asarray(1.0), checkpoints=2))
    ws = jnp.asarray([2.0, 3.0])
    assert_close(
        (f(ws), jax.grad(lambda ws: jnp.sum(f(ws)))(ws)), (jnp.asarray([16.0, 27.0]), jnp.asarray([32.0, 27.0]))
    )


def test_a_second_axis_along_which_the_condition_is_the_same():
    def f(n: Any, x: Any, w: Any) -> Any:
        return counted(n, checkpoints=2)(x, w)

    both = jax.vmap(jax.vmap(jax.grad(f, (1, 2)), (0, 0, None)), (None, None, 0))(STEPS, XS, WS[:2])
    assert_close(
        both, jax.tree.map(lambda *xs: jnp.stack(xs), *[one_by_one(TRANSFORMS["gradient"], w) for w in WS[:2]])
    )


def climbing(x: Any, a: Any, b: Any, scale: Any) -> Any:
    """Up to b, by steps whose root is not a number above it: body must not see a state that is past it."""
    return dynloop.while_loop(lambda y: y < b, lambda y: y + jnp.sqrt(b - y) * a * scale + 0.3, x, checkpoints=2)


def climbed(x: Any, a: Any, b: Any, scale: Any) -> Any:
    while bool(x < b):
        x = x + jnp.sqrt(b - x) * a * scale + 0.3
    return x


GRADIENTS: dict[str, Any] = {
    "gradient": lambda f: jax.value_and_grad(f, (0, 1, 2, 3)),
    "reverse over reverse": lambda f: jax.jacrev(jax.grad(f, (1, 2, 3)), (1, 2, 3)),
}
STARTS, SLOPES = jnp.asarray([0.1, 1.0, 2.9, 7.0]), jnp.asarray([0.5, 0.7, 0.9, 1.1])
# No lane takes a step to the second limit, and the last start is past all of them.
LIMITS, SCALE = jnp.asarray([3.0, 0.05, 2.0]), jnp.asarray(0.8)


@pytest.mark.parametrize("name", GRADIENTS)
def test_two_axes_along_which_the_condition_differs(name: str):
    def both(f: Any) -> Any:
        return jax.vmap(jax.vmap(f, (0, 0, None, None)), (None, None, 0, None))

    found = jax.jit(both(GRADIENTS[name](climbing)))(STARTS, SLOPES, LIMITS, SCALE)
    alone = GRADIENTS[name](climbed)
    rows = [[alone(x, a, b, SCALE) for x, a in zip(STARTS, SLOPES, strict=True)] for b in LIMITS]
    assert_close(found, stacked([stacked(row) for row in rows]))


def test_a_gradient_between_two_axes_along_which_the_condition_differs():
    """What the inner lanes share, a limit of the outer axis and a scale, gets the sum of their gradients."""

    def inner(x: Any, a: Any, b: Any, scale: Any) -> Any:
        return jnp.sum(jax.vmap(climbing, (0, 0, None, None))(x, a, b, scale))

    found = jax.vmap(jax.grad(inner, (1, 2, 3)), (None, None, 0, None))(STARTS, SLOPES, LIMITS, SCALE)
    alone = jax.grad(climbed, (1, 2, 3))
    for_a, for_b, for_scale = stacked(
        [stacked([alone(x, a, b, SCALE) for x, a in zip(STARTS, SLOPES, strict=True)]) for b in LIMITS]
    )
    assert_close(found, (for_a, jnp.sum(for_b, 1), jnp.sum(for_scale, 1)))


def stacked(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *xs: jnp.stack(xs), *trees)


def test_a_loop_in_a_batched_branch():
    def f(x: Any, w: Any) -> Any:
        return jax.lax.cond(x > 0.5, counted(4, checkpoints=2), counted(2, checkpoints=2), x, w)

    def alone(x: Any, w: Any) -> Any:
        return plain(4 if x > 0.5 else 2)(x, w)

    found = jax.vmap(jax.grad(f, (0, 1)))(XS, WS)
    expected = [jax.grad(alone, (0, 1))(x, w) for x, w in zip(XS, WS, strict=True)]
    assert_close(found, jax.tree.map(lambda *xs: jnp.stack(xs), *expected))


def test_random_keys_of_the_lanes_are_their_own():
    def f(repeat: Any) -> Callable[[Any, Any], Any]:
        def value(key: Any, x: Any) -> Any:
            def body(i: Any, carry: Any) -> Any:
                key, sub = jax.random.split(carry[0])
                return key, carry[1] * (1 + jax.random.uniform(sub))

            return repeat(3, body, (key, x))[1]

        return value

    keys = jax.random.split(jax.random.key(1), 5)
    found = jax.vmap(jax.value_and_grad(f(looped(checkpoints=2)), 1))(keys, XS)
    assert_close(found, jax.vmap(jax.value_and_grad(f(unrolled), 1))(keys, XS))


def test_a_batched_loop_keeps_as_many_states_as_one_lane():
    """Memory is meant for one lane: the rows do not shrink under vmap."""
    f = jax.vmap(jax.grad(lambda x: counted(9, checkpoints=dynloop.Memory(400))(x, W)))
    text = jax.jit(f).lower(jnp.ones(64)).as_text()
    rows = {line.split("tensor<")[-1].split("x64x")[0] for line in text.splitlines() if "x64xf64>" in line}
    assert any(row.isdigit() and int(row) > 20 for row in rows)


@pytest.mark.parametrize("shape", [(0,), pytest.param((3, 0), marks=pytest.mark.full), (0, 3)])
def test_no_lanes_at_all(shape: tuple[int, ...]):
    """As many lanes as the data has rows, and there may be none."""
    xs, ns = jnp.zeros(shape), jnp.zeros(shape, int)
    forms = {
        "while_loop": lambda x, n: dynloop.while_loop(lambda y: y < n, lambda y: jnp.sin(y) + 1, x, checkpoints=2),
        "fori_loop": lambda x, n: dynloop.fori_loop(0, n, lambda i, y: jnp.sin(y), x, checkpoints=2),
        "scan": lambda x, n: dynloop.scan(
            lambda y, row: (jnp.sin(y * row), y), x, jnp.ones(4) * x, until=lambda y: y > n
        )[1][0],
    }
    for f in forms.values():
        for _ in shape:
            f = jax.vmap(f)
        total = lambda xs, f=f: jnp.sum(f(xs, ns))
        assert f(xs, ns).shape == jax.jit(jax.grad(total))(xs).shape == shape
        if len(shape) == 1:
            assert jax.jit(jax.hessian(total))(xs).shape == shape * 2


def test_communication_between_lanes_that_stop_by_themselves_is_refused():
    def f(x: Any) -> Any:
        return dynloop.while_loop(lambda y: y < 10, lambda y: y + jax.lax.psum(y, "lanes"), x)

    with pytest.raises(dynloop.BatchingError, match=r"while_loop: a step communicates over the axis 'lanes'.*pmax"):
        jax.vmap(f, axis_name="lanes")(jnp.asarray([1.0, 3.0, 20.0]))


def test_lanes_that_go_on_together_may_communicate():
    def body(y: Any, total: Any) -> Any:
        return 0.8 * jnp.sin(y) + 0.05 * total

    def f(x: Any) -> Any:
        go_on = lambda y: jax.lax.pmax(y, "lanes") > 0.4
        return dynloop.while_loop(go_on, lambda y: body(y, jax.lax.psum(y, "lanes")), x, checkpoints=2)

    def steps(y: Any) -> int:
        return 1 + steps(body(y, jnp.sum(y))) if float(jnp.max(y)) > 0.4 else 0

    def plain(y: Any) -> Any:
        for _ in range(n):
            y = body(y, jnp.sum(y))
        return y

    xs = jnp.asarray([1.0, 0.3, 0.9])
    n = steps(xs)
    assert n > 2
    found = jax.jit(jax.value_and_grad(lambda xs: jnp.sum(jax.vmap(f, axis_name="lanes")(xs) ** 2)))(xs)
    assert_close(found, jax.value_and_grad(lambda xs: jnp.sum(plain(xs) ** 2))(xs))
