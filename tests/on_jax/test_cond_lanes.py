"""Claims about `cond` under vmap: each lane gives what it gives alone, and no branch is evaluated on another's data."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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


def cases(most: dict[str, list[str]]) -> list[Any]:
    """Every subject with the transformations named for it, all others in the full matrix."""
    found = []
    for subject in SUBJECTS:
        for name in REVERSE_ONLY if subject == "custom_vjp" else ALL:
            marks = () if name in most.get(subject, most["others"]) else pytest.mark.full
            found.append(pytest.param(subject, name, marks=marks))
    return found


def one_by_one(subject: str, transform: Transformation, xs: Any, ws: Any) -> Any:
    """The oracle: each lane alone, its branches taken in Python."""
    f = transform(SUBJECTS[subject](alone))
    lanes = [f(jnp.asarray(x), jnp.asarray(w)) for x, w in zip(xs, np.broadcast_to(ws, np.shape(xs)), strict=True)]
    return jax.tree.map(lambda *ys: np.stack(ys), *lanes)


@pytest.mark.parametrize("ws", [W, WS], ids=["shared", "per lane"])
@pytest.mark.parametrize(
    ("subject", "name"),
    cases(
        {
            "root": list(ALL),
            "pole": ["value", "grad", "hessian", "grad of grad"],
            "nested": ["grad", "jvp of grad", "grad of grad"],
            "others": ["grad", "grad of grad"],
        }
    ),
)
def test_each_lane_gives_what_it_gives_alone(subject: str, name: str, ws: Any):
    f = ALL[name](SUBJECTS[subject](dynloop.cond))
    found = jax.jit(jax.vmap(f, (0, 0 if ws.ndim else None)))(XS, ws)
    assert_close(found, one_by_one(subject, IN_PYTHON[name], XS, ws))


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
            "root": list(ALL),
            "nested": ["grad", "hessian", "grad of grad"],
            "others": ["grad", "jvp of grad"],
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
