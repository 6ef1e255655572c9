"""Claims about bad input: each error says what was given, what was expected and what to change."""

import math
from typing import Any

import numpy as np
import pytest

import adjoint
import dynloop
from dynloop import (
    ArgumentError,
    ArgumentTypeError,
    BackendError,
    BatchingError,
    BranchError,
    CarryError,
    DerivativeError,
    DynloopError,
    Memory,
    StoppedBecause,
)
from tests.dynloop.backends import Backend


def message(error: type[DynloopError], call: Any) -> str:
    """The text of the error that the call raises."""
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


def loop_message(backend: Backend, error: type[DynloopError], init: Any, body: Any, cond: Any = lambda c: True) -> str:
    return message(error, lambda: backend.value(lambda: backend.while_loop(cond, body, init)))


def assert_says(text: str, *parts: str) -> None:
    missing = [part for part in parts if part not in text]
    assert not missing, f"{missing} not in: {text}"


# ---- the carry


def test_a_leaf_that_changes_dtype(backend: Backend):
    init = {"x": [backend.asarray(1.0), backend.asarray(4, "int32")]}
    text = loop_message(backend, CarryError, init, lambda c: {"x": [c["x"][0], c["x"][1] * 1.5]})
    assert_says(
        text,
        "while_loop: the carry changes from step to step",
        "carry['x'][1] is int32[] before a step and float64[] after it",
        f"give init as float64, or end body with {backend.casting('int32')}",
    )
    assert "['x'][0]" not in text


@pytest.mark.parametrize("before", ["float16", "bfloat16", "float32"])
def test_a_floating_leaf_that_grows(backend: Backend, before: str):
    init = (backend.asarray([1.0, 2.0], before),)
    text = loop_message(backend, CarryError, init, lambda c: (c[0] * backend.asarray([1.0, 1.0]),))
    assert_says(text, f"carry[0] is {before}[2] before a step and float64[2] after it", "give init as float64")


def test_a_leaf_that_changes_shape(backend: Backend):
    init = {"y": backend.asarray([1.0, 2.0])}
    text = loop_message(backend, CarryError, init, lambda c: {"y": backend.xp.concatenate([c["y"], c["y"]])})
    assert_says(
        text, "carry['y'] is float64[2] before a step and float64[4] after it", "shape must not change", "pad it"
    )


def test_each_leaf_that_changes_is_named(backend: Backend):
    init = (backend.asarray(1, "int32"), backend.asarray([1.0]), backend.asarray(1.0))
    text = loop_message(backend, CarryError, init, lambda c: (c[0] * 1.5, c[1][0], c[2]))
    assert_says(text, "carry[0] is int32[]", "carry[1] is float64[1] before a step and float64[] after it")
    assert "carry[2]" not in text


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda c: {"a": c["a"]}, "missing from what body returned: carry['b']"),
        (lambda c: {**c, "c": c["a"]}, "not in init: carry['c']"),
        (lambda c: {"a": None, "b": c["b"]}, "missing from what body returned: carry['a']"),
        (lambda c: (c["a"], c["b"]), "not in init: carry[0], carry[1]"),
        (lambda c: [c], "not in init: carry[0]['a'], carry[0]['b']"),
    ],
    ids=["leaf lost", "leaf added", "leaf turned None", "other container", "wrapped"],
)
def test_a_structure_that_changes(backend: Backend, change: Any, part: str):
    init = {"a": backend.asarray(1.0), "b": backend.asarray(2.0)}
    text = loop_message(backend, CarryError, init, change)
    assert_says(text, "body must return a carry of the same structure as init", part, "init: ", "body returned: ")
    assert_says(text, "Return every part of the carry from body")


def test_a_body_that_returns_nothing(backend: Backend):
    text = loop_message(backend, CarryError, backend.asarray(1.0), lambda c: None)
    assert_says(text, "same structure as init", "is a `return` missing?")


@pytest.mark.parametrize("label", ["cond", "body"])
def test_an_error_of_the_users_function_tells_the_carry_it_was_given(backend: Backend, label: str):
    functions: dict[str, Any] = {"cond": lambda c: c["x"][0] < 1, "body": lambda c: c}
    functions[label] = lambda a, b: a
    with pytest.raises(TypeError) as caught:
        backend.while_loop(**functions, init={"x": backend.asarray([0.5, 2.0])})
    assert_says(caught.value.__notes__[0], f"while_loop: raised while {label} ", " with the carry {'x': 'float64[2]'}")


def test_a_number_that_is_too_large(backend: Backend):
    text = loop_message(backend, CarryError, {"n": 2**70, "x": backend.asarray(1.0)}, lambda c: c)
    assert_says(text, "carry['n'] in init is not an array")


@pytest.mark.parametrize("value", ["text", object(), {1, 2}], ids=["text", "object", "set"])
def test_a_leaf_that_is_no_array(backend: Backend, value: Any):
    init = (backend.asarray(1.0), {"k": value})
    text = loop_message(backend, CarryError, init, lambda c: c)
    assert_says(text, f"carry[1]['k'] in init is {type(value).__name__}", "must be an array or a number", "Close over")


def test_a_leaf_that_body_turns_into_no_array(backend: Backend):
    text = loop_message(backend, CarryError, (backend.asarray(1.0),), lambda c: ("text",))
    assert_says(text, "carry[0] in what body returned is str ('text')", "must be an array or a number")


# ---- the functions


@pytest.mark.parametrize(
    ("cond", "part"),
    [
        (lambda c: c, "got float64[3]"),
        (lambda c: c > 0, "got bool[3]"),
        (lambda c: c[0], "got float64[]"),
        (lambda c: (c > 0)[:1], "got bool[1]"),
        (lambda c: None, "got a NoneType (None). Return one comparison"),
        (lambda c: (c[0] > 0,), "got a tuple ("),
    ],
    ids=["floats", "booleans", "float", "one boolean", "None", "tuple"],
)
def test_a_condition_that_is_no_boolean_scalar(backend: Backend, cond: Any, part: str):
    text = loop_message(backend, ArgumentTypeError, backend.asarray([1.0, 2.0, 3.0]), lambda c: c, cond)
    assert_says(text, "while_loop: cond must return a boolean scalar", part)


@pytest.mark.parametrize("given", [3, None, "body", [abs]], ids=str)
@pytest.mark.parametrize("label", ["cond", "body"])
def test_a_function_that_is_not_callable(backend: Backend, label: str, given: Any):
    functions = {"cond": lambda c: False, "body": lambda c: c} | {label: given}
    text = message(ArgumentTypeError, lambda: backend.while_loop(**functions, init=backend.asarray(1.0)))
    assert_says(text, f"while_loop: {label} must be a function of the carry; got a", type(given).__name__, repr(given))


# ---- the options


BAD_OPTIONS: list[tuple[dict[str, Any], type[DynloopError], list[str]]] = [
    ({"max_steps": -1}, ArgumentError, ["max_steps must be between 0 and 2**31 - 1; got -1"]),
    ({"max_steps": 2**31}, ArgumentError, ["max_steps must be between 0 and 2**31 - 1; got 2147483648"]),
    ({"max_steps": 2.5}, ArgumentTypeError, ["max_steps must be a Python int or None", "got 2.5", "into cond"]),
    ({"max_steps": True}, ArgumentTypeError, ["max_steps must be a Python int or None", "got True"]),
    ({"max_steps": "10"}, ArgumentTypeError, ["max_steps must be a Python int or None", "got '10'"]),
    ({"checkpoints": -1}, ArgumentError, ["checkpoints=-1 is negative", 'give "auto", a number of slots']),
    ({"checkpoints": 2.0}, ArgumentTypeError, ["checkpoints is a float (2.0)", 'give "auto", a number of slots']),
    ({"checkpoints": True}, ArgumentTypeError, ["checkpoints is a bool (True)"]),
    ({"checkpoints": [4]}, ArgumentTypeError, ["checkpoints has an int (4) among its tiers", "dynloop.Device(8)"]),
    ({"checkpoints": "some"}, ArgumentError, ["checkpoints='some' is unknown", "dynloop.Memory(...)"]),
    ({"checkpoints": "all"}, ArgumentError, ["checkpoints='all' needs room", "give max_steps="]),
    ({"checkpoints": adjoint.StoreAll()}, ArgumentError, ["checkpoints=StoreAll() needs room", "give max_steps="]),
    ({"checkpoints": adjoint.Periodic(4)}, ArgumentError, ["Periodic(", "needs room", "give max_steps="]),
    (
        {"checkpoints": adjoint.Binomial(4)},
        ArgumentError,
        ["needs the number of steps before the loop starts", "give checkpoints=4 or adjoint.Online(4)"],
    ),
    ({"checkpoints": adjoint.Online(0, 8)}, ArgumentError, ["holds at most 8 steps; give max_steps=8"]),
    ({"checkpoints": adjoint.Online(0, 8), "max_steps": 9}, ArgumentError, ["holds at most 8 steps"]),
    ({"on_max_steps": "ignore"}, ArgumentError, ["on_max_steps='ignore' is unknown", '"raise", "stop" or "nan"']),
    ({"on_max_steps": None}, ArgumentError, ["on_max_steps=None is unknown"]),
    ({"backend": ["jax"]}, ArgumentTypeError, ["backend must be a name or None; got a list (['jax'])"]),
    ({"backend": "numpy"}, ArgumentError, ["backend='numpy' is unknown", 'give "jax" or "torch"']),
    (
        {"checkpoints": Memory(7)},
        ArgumentError,
        ["checkpoints=dynloop.Memory(7)", "one state of the carry takes 8 bytes", "at least dynloop.Memory(8)"],
    ),
]


@pytest.mark.parametrize(("options", "error", "parts"), BAD_OPTIONS, ids=[str(case[0]) for case in BAD_OPTIONS])
def test_an_option_out_of_its_range_or_kind(
    backend: Backend, options: dict[str, Any], error: type[DynloopError], parts: list[str]
):
    x = backend.asarray(1.0)
    # A body whose gradient reads its state, so that a state takes memory.
    text = message(error, lambda: dynloop.while_loop(lambda y: y < 10, lambda y: y * y + 1, x, **options))
    assert_says(text, *parts)


@pytest.mark.parametrize("number", [np.int64(2), np.uint8(2)], ids=repr)
def test_any_whole_number_is_a_number_of_slots(backend: Backend, number: Any):
    f = backend.grad(lambda x: backend.while_loop(lambda y: y < 10, lambda y: 2 * y, x, checkpoints=number))
    assert float(f(backend.asarray(1.0))) == 16.0


@pytest.mark.parametrize("amount", ["a lot", "12 parsec", 0, -5, "0B", 1.5, True, None, ""], ids=repr)
def test_an_amount_of_memory_that_is_none(amount: Any):
    text = message(ArgumentError, lambda: Memory(amount))
    assert_says(text, f"{amount!r}", "Memory: ")


@pytest.mark.parametrize(
    ("amount", "expected"),
    [(1, 1), ("64", 64), ("1kB", 1000), ("1KB", 1000), ("1KiB", 1024), ("2 GB", 2 * 10**9), ("1.5MiB", 3 * 2**19)],
)
def test_an_amount_of_memory_in_bytes(amount: Any, expected: int):
    assert Memory(amount).bytes == expected


def test_a_gradient_of_a_loop_that_only_runs_forward(backend: Backend):
    def f(x: Any) -> Any:
        return backend.while_loop(lambda y: y < 10, lambda y: 2 * y, x, checkpoints=0)

    x = backend.asarray(1.0)
    text = message(DerivativeError, lambda: backend.grad(f)(x))
    assert_says(
        text,
        "while_loop: checkpoints=0 makes a loop without reverse mode",
        'give checkpoints="auto"',
        backend.forward_mode,
    )
    # Forward mode stores nothing, so it is allowed.
    assert float(backend.jvp(f, (x,), (x,))[1]) == 16.0


@pytest.mark.parametrize("init", [1.0, (1, 2.0), {"x": np.ones(3)}, None, ()], ids=str)
def test_no_array_and_no_backend(init: Any):
    text = message(BackendError, lambda: dynloop.while_loop(lambda c: False, lambda c: c, init))
    assert_says(text, "no array in init tells which library runs it", 'backend="jax" or', "jax.numpy.asarray(...)")


# ---- what only running can tell


def test_a_nan_condition_stops_the_loop_and_says_so(backend: Backend):
    def f(x: Any) -> Any:
        return backend.while_loop(lambda y: y < 10, lambda y: y * math.nan, x, full_output=True)

    result = backend.value(f, backend.asarray(1.0))
    assert (int(result.steps), result.stopped_because) == (1, StoppedBecause.NONFINITE)


def test_a_nan_that_would_never_end_is_ended_by_the_bound_and_says_so(backend: Backend):
    def f(x: Any) -> Any:
        options = {"max_steps": 7, "on_max_steps": "stop", "full_output": True}
        return backend.while_loop(lambda y: ~(y >= 10), lambda y: y * math.nan, x, **options)

    result = backend.value(f, backend.asarray(1.0))
    assert (int(result.steps), result.stopped_because) == (7, StoppedBecause.NONFINITE)


@pytest.mark.parametrize(
    "error", [ArgumentError, ArgumentTypeError, BackendError, BatchingError, BranchError, CarryError, DerivativeError]
)
def test_all_errors_have_one_base(error: type[Exception]):
    assert issubclass(error, DynloopError)
