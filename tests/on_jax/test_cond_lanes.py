"""Claims about `cond` under vmap: each lane gives what it gives alone, and no branch is evaluated on another's data."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import dynloop
from tests.closeness import assert_close
from tests.on_jax.branched import SUBJECTS, WS, XS, Function, W, alone

Transformation = Callable[[Function], Any]
BOTH = (0, 1)

FIRST: dict[str, Transformation] = {
    "value": lambda f: f,
    "grad": lambda f: jax.grad(f, BOTH),
    "grad of checkpoint": lambda f: jax.grad(jax.checkpoint(f), BOTH),
    "grad of jit": lambda f: jax.grad(jax.jit(f), BOTH),
}
FORWARD: dict[str, Transformation] = {
    "jvp": lambda f: lambda x, w: jax.jvp(f, (x, w), (1.0, 0.5)),
    "linearize": lambda f: lambda x, w: jax.linearize(f, x, w)[1](1.0, 0.5),
    "jacfwd": lambda f: jax.jacfwd(f, BOTH),
    "jacrev": lambda f: jax.jacrev(f, BOTH),
    "hessian": lambda f: jax.hessian(f, BOTH),
    "jvp of grad": lambda f: lambda x, w: jax.jvp(jax.grad(f, BOTH), (x, w), (1.0, 0.5)),
    "grad of jvp": lambda f: jax.grad(lambda x, w: jax.jvp(f, (x, w), (1.0, 0.5))[1], BOTH),
    "grad of grad": lambda f: jax.grad(lambda x, w: jax.grad(f)(x, w) + jax.grad(f, 1)(x, w), BOTH),
    "grad of checkpointed grad": lambda f: jax.grad(jax.checkpoint(jax.grad(f)), BOTH),
}
ALL = FIRST | FORWARD
# custom_vjp has no forward mode.
REVERSE_ONLY = FIRST | {name: FORWARD[name] for name in ("jacrev", "grad of grad", "grad of checkpointed grad")}
# The oracle asks numbers, which neither jax.checkpoint nor jax.jit shows it.
IN_PYTHON = ALL | {
    "grad of checkpoint": ALL["grad"],
    "grad of jit": ALL["grad"],
    "grad of checkpointed grad": lambda f: jax.grad(jax.grad(f), BOTH),
}


def cases(chosen: dict[str, str]) -> list[Any]:
    """Every subject with the transformations chosen for it, by their names or "all"; the others in the full matrix."""
    found = []
    for subject in SUBJECTS:
        names = chosen.get(subject, chosen["others"])
        for name in REVERSE_ONLY if subject == "custom_vjp" else ALL:
            marks = () if names == "all" or name in names.split(", ") else pytest.mark.full
            found.append(pytest.param(subject, name, marks=marks))
    return found


def one_by_one(subject: str, transform: Transformation, xs: Any, ws: Any) -> Any:
    """The oracle: each lane alone, its branches taken in Python."""
    f = transform(SUBJECTS[subject](alone))
    lanes = [f(jnp.asarray(x), jnp.asarray(w)) for x, w in zip(xs, np.broadcast_to(ws, np.shape(xs)), strict=True)]
    return jax.tree.map(lambda *ys: np.stack(ys), *lanes)


def check_lanes(subject: str, name: str, ws: Any) -> None:
    f = ALL[name](SUBJECTS[subject](dynloop.cond))
    found = jax.jit(jax.vmap(f, (0, 0 if ws.ndim else None)))(XS, ws)
    assert_close(found, one_by_one(subject, IN_PYTHON[name], XS, ws))


@pytest.mark.parametrize(
    ("subject", "name"), cases({"root": "all", "pole": "grad of grad", "nested": "hessian", "others": "grad"})
)
def test_each_lane_gives_what_it_gives_alone(subject: str, name: str):
    check_lanes(subject, name, W)


@pytest.mark.parametrize(
    ("subject", "name"),
    cases({"root": "grad of grad", "pole": "hessian", "nested": "grad", "others": ""}),
)
def test_each_lane_with_a_parameter_of_its_own_gives_what_it_gives_alone(subject: str, name: str):
    check_lanes(subject, name, WS)


def batch(subject: str) -> Callable[[Any, Any], Any]:
    """The lanes of a batch, summed: a function of two numbers again, which every transformation takes."""
    f = SUBJECTS[subject](dynloop.cond)
    return lambda a, w: jnp.vdot(jax.vmap(f, (0, None))(XS * a, w), WEIGHTS)


def batch_alone(subject: str) -> Callable[[Any, Any], Any]:
    f = SUBJECTS[subject](alone)
    return lambda a, w: sum((c * f(x * a, w) for c, x in zip(WEIGHTS, XS, strict=True)), jnp.zeros(()))


WEIGHTS = np.arange(1.0, len(XS) + 1)


@pytest.mark.parametrize(
    ("subject", "name"),
    cases(
        {
            "root": "grad, grad of checkpoint, linearize, jvp of grad, grad of jvp, grad of checkpointed grad",
            "nested": "grad",
            "others": "grad",
        }
    ),
)
def test_a_transformed_batch_gives_what_its_lanes_give_alone(subject: str, name: str):
    one = jnp.asarray(1.0)
    found = jax.jit(ALL[name](batch(subject)))(one, W)
    assert_close(found, IN_PYTHON[name](batch_alone(subject))(one, jnp.asarray(W)))


@pytest.mark.parametrize("name", ["jacrev", "jacfwd", "hessian"])
def test_a_lane_that_lends_its_operands_gets_no_derivative_for_it(name: str):
    f = jax.jit(ALL[name](lambda xs, w: jax.vmap(SUBJECTS["root"](dynloop.cond), (0, None))(xs, w)))
    by_lane = one_by_one("root", ALL[name], XS, W)
    found = f(jnp.asarray(XS), W)
    if name == "hessian":
        ((xx, _), (wx, ww)), ((own, _), (_, shared)) = found, by_lane
        lanes = np.arange(len(XS))
        expected = np.zeros((len(XS),) * 3)
        expected[lanes, lanes, lanes] = own
        assert_close([xx, ww], [expected, shared])
        assert_close(wx[lanes, lanes], by_lane[1][0])
    else:
        assert_close(found, [np.diag(by_lane[0]), by_lane[1]])


GRID = np.array([[0.7, -0.4, 1.6], [-0.2, -1.1, -0.9], [0.3, 1.2, 0.8], [1.4, -0.6, -1.5]])
"""Along both axes the branches differ; one row takes one branch only, another one only the other."""

TWO_AXES: dict[str, Transformation] = {
    "lanes of lanes of gradients": lambda f: jax.vmap(jax.vmap(jax.grad(f, BOTH), (0, None)), (0, None)),
    "lanes of gradients of lanes": lambda f: (
        lambda xs, w: jax.vmap(jax.grad(lambda x, w: jnp.sum(jax.vmap(f, (0, None))(x, w)), BOTH), (0, None))(xs, w)
    ),
    "gradient of lanes of lanes": lambda f: jax.grad(
        lambda xs, w: jnp.sum(jax.vmap(jax.vmap(f, (0, None)), (0, None))(xs, w)), BOTH
    ),
    "lanes of lanes of hessians": lambda f: jax.vmap(jax.vmap(jax.hessian(f, BOTH), (0, None)), (0, None)),
}


@pytest.mark.parametrize("subject", ["root", pytest.param("nested", marks=pytest.mark.full)])
@pytest.mark.parametrize("name", TWO_AXES)
def test_two_axes_along_which_the_predicate_differs(name: str, subject: str):
    found = jax.jit(TWO_AXES[name](SUBJECTS[subject](dynloop.cond)))(GRID, W)
    transform = ALL["hessian" if "hessians" in name else "grad"]
    by_x, by_w = one_by_one(subject, transform, GRID.ravel(), W)
    if "hessians" in name:
        assert_close(found, jax.tree.map(lambda y: y.reshape(GRID.shape), (by_x, by_w)))
    else:
        shared = by_w.reshape(GRID.shape)
        kept = {"lanes of lanes of gradients": shared, "lanes of gradients of lanes": shared.sum(1)}
        assert_close(found, [by_x.reshape(GRID.shape), kept.get(name, shared.sum())])


def test_lanes_in_the_body_of_a_loop_of_lax():
    def f(x: jax.Array) -> jax.Array:
        def body(c: Any) -> Any:
            y = dynloop.cond(c[1] > 0, lambda y: -jnp.sqrt(y) - 0.1, lambda y: jnp.log(-y) + 0.7, c[1])
            return c[0] + 1, y

        return lax.while_loop(lambda c: c[0] < 2, body, (0, x))[1]

    def expected(x: Any) -> Any:
        for _ in range(2):
            x = -jnp.sqrt(x) - 0.1 if x > 0 else jnp.log(-x) + 0.7
        return x

    slopes = jax.vmap(lambda x: jax.jvp(f, (x,), (1.0,)))(jnp.asarray(XS))
    assert_close(slopes, [np.stack(ys) for ys in zip(*(jax.jvp(expected, (x,), (1.0,)) for x in XS), strict=True)])


@pytest.mark.parametrize("name", ["value", "grad", "grad of grad"])
def test_a_loop_in_a_branch_never_starts_where_it_would_not_end(name: str):
    def make(cond: Any, repeat: Any) -> Function:
        # From a number that is not positive, neither loop reaches its end.
        up = lambda x, w: repeat(lambda y: y < 3, lambda y: y * (1.5 + w * y), x)
        down = lambda x, w: repeat(lambda y: y < -0.1, lambda y: y * (0.5 - w * y), x)
        return lambda x, w: cond(x > 0, up, lambda x, w: cond(x < -0.5, down, lambda x, w: x * w, x, w), x, w)

    def alone_loop(go: Any, body: Any, x: Any) -> Any:
        while go(x):
            x = body(x)
        return x

    xs = np.array([0.7, -0.6, -0.9, 0.0, 1.3])
    found = jax.jit(jax.vmap(ALL[name](make(dynloop.cond, dynloop.while_loop)), (0, None)))(xs, W)
    f = ALL[name](make(alone, alone_loop))
    lanes = [f(jnp.asarray(x), jnp.asarray(W)) for x in xs]
    assert_close(found, jax.tree.map(lambda *ys: np.stack(ys), *lanes))


def test_what_a_lane_shares_gets_exactly_nothing_from_a_branch_not_taken():
    """Where a branch is taken by none, and where it is taken by others, its parameter's gradient is zero, not small."""

    def f(x: jax.Array, w: Any, u: Any) -> jax.Array:
        return dynloop.cond(x > 0, lambda: jnp.sqrt(x) * w, lambda: jnp.log(-x) / u)

    by_w, by_u = jax.vmap(jax.grad(f, (1, 2)), (0, None, None))(jnp.asarray(XS), 2.0, 0.1)
    assert (by_w[XS < 0] == 0).all()
    assert (by_u[XS > 0] == 0).all()
    positive = jnp.abs(jnp.asarray(XS))
    gradient = jax.grad(lambda u: jnp.sum(jax.vmap(f, (0, None, None))(positive, 2.0, u)))(0.0)
    assert gradient == 0
