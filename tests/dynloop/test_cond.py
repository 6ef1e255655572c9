"""Claims about `dynloop.cond` on every backend: one branch's value and gradient, and errors in the user's words."""

from typing import Any

import numpy as np
import pytest

import dynloop
from dynloop import ArgumentTypeError, BackendError, BranchError, DynloopError
from tests.closeness import assert_close
from tests.dynloop.backends import Backend


def message(error: type[DynloopError], call: Any) -> str:
    """The text of the error that the call raises."""
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


def assert_says(text: str, *parts: str) -> None:
    missing = [part for part in parts if part not in text]
    assert not missing, f"{missing} not in: {text}"


def branched(backend: Backend, x: Any, w: Any, is_python: bool = False) -> Any:
    """Undefined in the other branch, closed-over values, nested, and a tree of results."""
    xp = backend.xp

    def cond(pred: Any, true_fn: Any, false_fn: Any, *operands: Any) -> Any:
        if is_python:
            return true_fn(*operands) if bool(pred) else false_fn(*operands)
        return dynloop.cond(pred, true_fn, false_fn, *operands, backend=backend.library)

    def positive(c: Any) -> Any:
        inner = cond(c["x"] > 1, lambda: xp.sqrt(c["x"] - 1) * w, lambda: xp.log(1 - c["x"]))
        return (xp.sqrt(c["x"]), inner), None

    out, none = cond(x > 0, positive, lambda c: ((xp.log(-c["x"]) * w, c["x"]), None), {"x": x})
    assert none is None
    return out[0] * xp.cos(out[1])


@pytest.mark.parametrize("x", [-0.7, 0.4, 1.9])
def test_value_and_gradients_are_those_of_the_branch(backend: Backend, x: float):
    args = backend.asarray(x), backend.asarray(0.3)
    found = backend.value(lambda x, w: branched(backend, x, w), *args)
    assert_close(found, branched(backend, *args, is_python=True))
    h = 1e-6
    slopes = [
        (branched(backend, args[0] + a, args[1] + b, True) - branched(backend, args[0] - a, args[1] - b, True))
        / (2 * h)
        for a, b in ((h, 0.0), (0.0, h))
    ]
    assert_close(backend.grad(lambda x, w: branched(backend, x, w), (0, 1))(*args), slopes, 1e-8)


def test_a_branch_closed_over_and_unused_gets_gradient_zero(backend: Backend):
    f = backend.grad(lambda x, w: dynloop.cond(x > 0, lambda: x * 2, lambda: x * w), (0, 1))
    assert [float(g) for g in f(backend.asarray(1.0), backend.asarray(3.0))] == [2, 0]


def test_a_python_bool_chooses_too(backend: Backend):
    x = backend.asarray(3.0)
    values = [
        float(backend.value(lambda x, p=p: dynloop.cond(p, lambda x: x + 1, lambda x: x - 1, x), x))
        for p in (True, False, np.bool_(True))
    ]
    assert values == [4, 2, 4]


@pytest.mark.parametrize(
    ("pred", "part"),
    [
        (1, "got int"),
        (0.5, "got float"),
        (None, "got a NoneType (None)"),
        ([True], "got a list ([True])"),
        (np.array([True, False]), "got bool[2]"),
        (np.array(1), "got int64[]"),
    ],
    ids=str,
)
def test_a_predicate_that_is_no_boolean_scalar(backend: Backend, pred: Any, part: str):
    x = backend.asarray(1.0)
    text = message(ArgumentTypeError, lambda: dynloop.cond(pred, lambda x: x, lambda x: x, x))
    assert_says(text, "cond: pred must be a boolean scalar", part)


@pytest.mark.parametrize("given", [3, None, "body"], ids=str)
@pytest.mark.parametrize("label", ["true_fn", "false_fn"])
def test_a_branch_that_is_not_callable(backend: Backend, label: str, given: Any):
    functions: dict[str, Any] = {"true_fn": lambda: 1.0, "false_fn": lambda: 1.0} | {label: given}
    text = message(ArgumentTypeError, lambda: dynloop.cond(backend.asarray(True, "bool"), **functions))
    assert_says(text, f"cond: {label} must be a function of the operands; got a", type(given).__name__, repr(given))


@pytest.mark.parametrize(
    ("true", "false", "parts"),
    [
        ({"a": 1.0, "b": 2.0}, {"a": 1.0}, ["only true_fn returned out['b']"]),
        ((1.0,), [1.0], ["true_fn returned: ", "false_fn returned: "]),
        (None, 1.0, ["only false_fn returned out", "is a `return` missing?"]),
        (1.0, {"x": [2.0]}, ["only true_fn returned out", "only false_fn returned out['x'][0]"]),
    ],
    ids=["leaf missing", "other container", "nothing", "nested"],
)
def test_branches_of_different_structure(backend: Backend, true: Any, false: Any, parts: list[str]):
    if not backend.traces_branches:
        # One branch runs, and nothing is known of the other one.
        return
    text = message(BranchError, lambda: dynloop.cond(backend.asarray(True, "bool"), lambda: true, lambda: false))
    assert_says(text, "cond: true_fn and false_fn must return the same structure", *parts)


def test_branches_of_different_shape_or_dtype(backend: Backend):
    if not backend.traces_branches:
        return
    a, b, c = backend.asarray([1.0, 2.0]), backend.asarray([1.0]), backend.asarray([1, 2], "int32")
    text = message(
        BranchError,
        lambda: dynloop.cond(
            backend.asarray(True, "bool"),
            lambda: {"x": a, "y": [a, 1.0, c], "z": c},
            lambda: {"x": b, "y": [c, 2.0, 0 * c], "z": c},
        ),
    )
    assert_says(
        text,
        "cond: the branches return different things",
        "out['x'] is float64[2] from true_fn and float64[1] from false_fn: give both one shape",
        "out['y'][0] is float64[2] from true_fn and int32[2] from false_fn",
        f"by {backend.casting('float64')} in false_fn",
    )
    assert not any(part in text for part in ("['y'][1]", "['y'][2]", "['z']"))


def test_a_leaf_that_is_no_array(backend: Backend):
    x = backend.asarray(1.0)
    text = message(
        ArgumentTypeError, lambda: dynloop.cond(True, lambda o: x, lambda o: x, {"k": object()}, backend="jax")
    )
    assert_says(text, "cond: operands[0]['k'] is object (", "must be an array or a number", "Close over")
    text = message(BranchError, lambda: dynloop.cond(x > 0, lambda: ("text",), lambda: x))
    assert_says(text, "out[0] in what true_fn returned is str ('text')", "must be an array or a number")


@pytest.mark.parametrize("label", ["true_fn", "false_fn"])
def test_an_error_of_the_users_function_tells_the_operands_it_was_given(backend: Backend, label: str):
    functions: dict[str, Any] = {"true_fn": lambda c: c["x"], "false_fn": lambda c: c["x"]} | {label: lambda a, b: a}
    with pytest.raises(TypeError) as caught:
        dynloop.cond(
            backend.asarray(label == "true_fn", "bool"), *functions.values(), {"x": backend.asarray([1.0, 2.0])}
        )
    assert_says(caught.value.__notes__[0], f"cond: raised while {label} ", "{'x': 'float64[2]'}")


def test_no_array_and_no_backend():
    text = message(BackendError, lambda: dynloop.cond(True, lambda x: x, lambda x: x, 1.0))
    assert_says(
        text, "cond: no array in pred or operands tells which library", 'backend="jax"', "jax.numpy.asarray(...)"
    )
