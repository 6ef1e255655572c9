"""Claims about `observe=`: each real step of each lane is told once, and a sweep can be checked while it runs."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynloop

X, XS = jnp.asarray(1.0), jnp.asarray([1.0, 3.0, 20.0])
ONE = [(0, 2.0), (1, 4.0), (2, 8.0), (3, 16.0)]
# The lane that starts at 20 takes no step.
LANES = [(0, 2.0), (0, 6.0), (1, 4.0), (1, 12.0), (2, 8.0), (3, 16.0)]

Function = Callable[[Any], Any]
OF_ONE: dict[str, Callable[[Function], Function]] = {
    "value": lambda f: f,
    "jit": jax.jit,
    "gradient": jax.grad,
    "forward mode": lambda f: lambda x: jax.jvp(f, (x,), (x,)),
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](x),
    "forward over reverse": jax.hessian,
    "reverse over reverse": lambda f: jax.jit(jax.grad(jax.grad(f))),
    "reverse over forward": lambda f: jax.grad(lambda x: jax.jvp(f, (x,), (x,))[1]),
}
OF_LANES: dict[str, Callable[[Function], Function]] = {
    "values": jax.vmap,
    "gradients": lambda f: jax.jit(jax.vmap(jax.grad(f))),
    "gradient of their sum": lambda f: jax.grad(lambda xs: jnp.sum(jax.vmap(f)(xs))),
    "reverse over reverse": lambda f: jax.vmap(jax.grad(jax.grad(f))),
}


def doubling(told: list[Any]) -> Function:
    """Doubles up to 10, with a leaf that is returned unchanged, and tells the steps to a list."""

    def f(x: Any) -> Any:
        def body(c: Any) -> Any:
            return {"w": c["w"], "y": c["w"][0] * c["y"]}

        start = {"w": jnp.full(2, 2.0), "y": x}
        show = dynloop.on_step(lambda i, c: told.append((i, float(c["y"]))))
        return dynloop.while_loop(lambda c: c["y"] < 10, body, start, checkpoints=2, observe=show)["y"]

    return f


@pytest.mark.parametrize("name", OF_ONE)
def test_each_real_step_is_told_once(name: str):
    told: list[Any] = []
    OF_ONE[name](doubling(told))(X)
    jax.effects_barrier()
    assert told == ONE


@pytest.mark.parametrize("name", OF_LANES)
def test_each_lane_tells_its_own_steps(name: str):
    told: list[Any] = []
    OF_LANES[name](doubling(told))(XS)
    jax.effects_barrier()
    assert told == LANES


def test_two_axes_of_lanes_tell_each_of_their_steps():
    told: list[Any] = []
    jax.vmap(jax.vmap(doubling(told)))(jnp.stack([XS, XS]))
    jax.effects_barrier()
    assert sorted(told) == sorted(LANES * 2)


def test_scan_and_fori_loop_are_observed():
    told: list[Any] = []
    show = dynloop.on_step(lambda i, c: told.append((i, float(c))))
    dynloop.scan(lambda c, x: (c + x, c), 0.0, XS, until=lambda c: c > 3, observe=show)
    dynloop.fori_loop(2, 4, lambda i, c: c * i, X, observe=[show])
    jax.effects_barrier()
    assert told == [(0, 1.0), (1, 4.0), (0, 2.0), (1, 6.0)]


@pytest.mark.parametrize("run", [jax.jit, jax.vmap, jax.grad])
def test_the_first_nan_is_raised_with_its_step_and_leaf(run: Any, capfd: pytest.CaptureFixture[str]):
    def f(x: Any) -> Any:
        body = lambda c: {"i": c["i"] + 1, "y": jnp.sqrt(c["y"] - 1)}
        start = {"i": 0, "y": x}
        return dynloop.while_loop(lambda c: c["i"] < 10, body, start, observe=dynloop.watch_nan())["y"]

    x = jnp.asarray([3.0]) if run is jax.vmap else jnp.asarray(3.0)
    with pytest.raises(Exception, match=r"while_loop: step 2 made carry\['y'\] NaN; state 2 has none"):
        jax.block_until_ready(run(f)(x))
    jax.effects_barrier()
    capfd.readouterr()


def test_what_is_not_nan_is_not_reported():
    body = lambda c: (c[0] + 1, c[1] * jnp.inf)
    out = dynloop.while_loop(lambda c: c[0] < 3, body, (0, X), observe=dynloop.watch_nan())
    assert float(out[1]) == np.inf


class Noise:
    """A function of an integer that is another one every time."""

    def __init__(self, dtype: Any):
        self.calls, self.dtype = 0, dtype

    def __call__(self, i: Any) -> Any:
        self.calls += 1
        return self.dtype(self.calls)

    def draw(self, i: Any) -> Any:
        return jax.pure_callback(self, jax.ShapeDtypeStruct((), self.dtype), i, vmap_method="sequential")


@pytest.mark.parametrize("checkpoints", [1, 2, "auto"])
def test_a_body_that_repeats_itself_has_hardly_any_drift(checkpoints: Any):
    drifts: list[float] = []

    def f(x: Any) -> Any:
        body = lambda c: (c[0] + 1, jnp.sin(c[1]) + 0.1 * c[0])
        observe = dynloop.verify(drifts.append)
        return dynloop.while_loop(lambda c: c[0] < 9, body, (0, x), checkpoints=checkpoints, observe=observe)[1]

    plain = jax.grad(lambda x: f(x))(X)
    lanes = jax.jit(jax.vmap(jax.grad(f)))(XS)
    jax.effects_barrier()
    assert len(drifts) == 2
    assert max(drifts) < 1e-14
    assert abs(plain - lanes[0]) < 1e-12


def test_a_body_that_does_not_repeat_itself_drifts():
    drifts: list[float] = []
    noise = Noise(np.float64)

    def f(x: Any) -> Any:
        body = lambda c: (c[0] + 1, jnp.sin(c[1]) + 1e-6 * noise.draw(c[0]))
        observe = dynloop.verify(drifts.append)
        return dynloop.while_loop(lambda c: c[0] < 9, body, (0, x), checkpoints=2, observe=observe)[1]

    jax.grad(f)(X)
    jax.effects_barrier()
    assert 1e-6 < drifts[0] < 1e-3


def test_an_integer_that_does_not_repeat_itself_raises():
    noise = Noise(np.int64)

    def f(x: Any) -> Any:
        def body(c: Any) -> Any:
            return c[0] + 1, noise.draw(c[0]), c[2] * jnp.where(c[1] > 5, 1.1, 1.2)

        start = (0, jnp.asarray(0), x)
        return dynloop.while_loop(lambda c: c[0] < 9, body, start, checkpoints=2, observe=dynloop.verify())[2]

    with pytest.raises(Exception, match="an integer or boolean leaf of a state that the reverse sweep used differs"):
        jax.block_until_ready(jax.grad(f)(X))
    jax.effects_barrier()


@pytest.mark.parametrize("observe", [print, [print], "on_step"])
def test_observe_takes_observers_only(observe: Any):
    with pytest.raises(dynloop.ArgumentTypeError, match=r"observe must be dynloop.on_step\(...\)"):
        dynloop.while_loop(lambda x: x < 1, lambda x: x, X, observe=observe)


@pytest.mark.parametrize("make", [dynloop.on_step, dynloop.verify])
def test_an_observer_needs_a_function(make: Any):
    with pytest.raises(dynloop.ArgumentTypeError, match="must take"):
        make(3)


def test_observers_are_told_apart_by_identity():
    """An object that is called may be no key of a dict, or equal another one."""

    class Told(list[int]):
        def __eq__(self, other: object) -> bool:
            return True

        def __call__(self, i: int, carry: Any) -> None:
            self.append(i)

    def is_small(x: Any) -> Any:
        return x < 8

    def double(x: Any) -> Any:
        return 2 * x

    told = [Told(), Told()]
    for function in (*told, told[0].__call__, told[0].__call__):
        dynloop.while_loop(is_small, double, X, observe=dynloop.on_step(function))
    jax.effects_barrier()
    assert [list(x) for x in told] == [[0, 1, 2] * 3, [0, 1, 2]]
    assert dynloop.on_step(told[0].__call__) == dynloop.on_step(told[0].__call__)
    assert dynloop.verify(print) == dynloop.verify(print) != dynloop.verify(lambda drift: None)
    assert hash(dynloop.verify(print)) == hash(dynloop.verify(print))
