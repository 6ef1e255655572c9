"""What is refused, and in which words: at once for syntax, and when it comes to staging for types and effects."""

import re
import textwrap
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import dynloop
from tests.syntax.programs import defined

pytestmark = pytest.mark.versions


def made(body: str, head: str = "def f(x, *rest):") -> Callable[..., Any]:
    """A function of these lines, the first of which is line 2."""
    return defined(head + "\n" + textwrap.indent(textwrap.dedent(body), "    "), {"jnp": jnp, "jax": jax})


REFUSED = {
    "yield": ("while x:\n    yield x", 3, 9, "generators are not supported; collect the values"),
    "yield from": ("yield from x", 2, 5, "generators are not supported"),
    "global": ("global y\ny = x", 2, 5, "'global' is not supported: a staged loop cannot write outside"),
    "nonlocal": ("def g():\n    nonlocal x\n    x = 1\ng()", 3, 9, "'nonlocal x' is not supported; return the value"),
    "match": ("match x:\n    case 1: pass", 2, 5, "'match' is not supported; write if/elif"),
    "return in try": ("try:\n    return x\nfinally:\n    pass", 3, 9, "'return' inside of 'try' is not supported"),
    "break in with": ("while x:\n    with x:\n        break", 4, 13, "'break' inside of 'with' is not supported"),
    "continue in except": (
        "while x:\n    try:\n        x()\n    except E:\n        continue",
        6,
        13,
        "'continue' inside of 'try' is not supported; set a variable in the block, and jump after it",
    ),
    "walrus": ("while (y := x - 1):\n    x = y", 2, 12, "':=' is not supported; assign on a line of its own"),
    "walrus in a comprehension": ("y = [z := v for v in x]", 2, 9, "':=' is not supported"),
    "reserved name": ("_dynloop_x = 1", 2, 5, "the name '_dynloop_x' is reserved for rewritten code"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_syntax_is_refused_at_once(case: str) -> None:
    body, line, column, words = REFUSED[case]
    function = made(body)
    with pytest.raises(dynloop.LoopSyntaxError, match=re.escape(words)) as caught:
        dynloop.loop(function)
    error = caught.value
    assert isinstance(error, SyntaxError)
    assert isinstance(error, dynloop.DynloopError)
    assert (error.filename, error.lineno, error.offset) == (function.__code__.co_filename, line, column)
    assert error.text


def test_an_async_function_is_refused() -> None:
    async def f(x: int) -> int:
        return x

    with pytest.raises(dynloop.LoopSyntaxError, match="async functions are not supported; await around the function"):
        dynloop.loop(f)


@pytest.mark.parametrize(
    "body", ["return 1", "for i in x:\n    if i: break\nreturn i", "with x as y:\n    z = y\nreturn z"]
)
def test_syntax_that_is_fine_is_not_refused(body: str) -> None:
    dynloop.loop(made(body))


def test_a_break_inside_of_a_loop_inside_of_a_try_is_fine() -> None:
    function = made("try:\n    for i in x:\n        if i > 1: break\nfinally:\n    pass\nreturn i")
    assert dynloop.loop(function)([1, 2, 3]) == 2


def test_a_function_without_source_is_refused() -> None:
    namespace: dict[str, Any] = {}
    exec(compile("def f(x):\n    return x", "<stdin>", "exec"), namespace)
    words = r"the source of 'f' is not available \(<stdin>\); put it in a file or a notebook cell"
    with pytest.raises(dynloop.LoopSyntaxError, match=words):
        dynloop.loop(namespace["f"])


def test_a_wrapped_function_is_refused() -> None:
    with pytest.raises(dynloop.ArgumentTypeError, match="must be closest to 'def'; it got PjitFunction"):
        dynloop.loop(jax.jit(lambda x: x))
    with pytest.raises(dynloop.ArgumentTypeError, match="must be closest to 'def'; it got function"):
        dynloop.loop(dynloop.loop(made("return x")))


def test_a_lambda_is_refused() -> None:
    with pytest.raises(
        dynloop.ArgumentTypeError, match="cannot rewrite a lambda, which has no statements; write a 'def'"
    ):
        dynloop.loop(lambda x: x)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(dynloop.ArgumentTypeError, match="no option 'max_step'; there are max_steps, checkpoints"):
        dynloop.loop(max_step=3)
    with pytest.raises(dynloop.ArgumentError, match="max_steps must be between 0"):
        dynloop.loop(max_steps=-1)
    with pytest.raises(dynloop.ArgumentError, match="on_max_steps='go' is unknown"):
        dynloop.options(on_max_steps="go")


def test_source_wants_a_decorated_function() -> None:
    with pytest.raises(dynloop.ArgumentTypeError, match=r"must be under @dynloop\.loop; got a function"):
        dynloop.source(made("return x"))


STAGED = {
    "dtype": (
        "while x < 9:\n    x = (x + 1).astype(jnp.int32)\nreturn x",
        "loop at {file}:2: 'x' is float64[] before the loop but int32[] after one iteration; cast it explicitly",
    ),
    "shape": (
        "y = jnp.ones(2)\nwhile y.sum() < x:\n    y = jnp.concatenate([y, y])\nreturn y",
        "loop at {file}:3: 'y' has shape (2,) before the loop but (4,) after one iteration; shapes must not change",
    ),
    "first assigned inside": (
        "while x < 9:\n    y = x * 2\n    x = x + 1\nreturn y",
        "loop at {file}:2: 'y' is first assigned inside the loop and used after it, so it has no value if the loop "
        "runs zero times; give 'y' a value before the loop",
    ),
    "text": (
        "if x > 0:\n    m = 'a'\nelse:\n    m = 'b'\nreturn m",
        "statement at {file}:2: 'm' is str 'a' when true but str 'b' when false; a value that is not an array must be "
        "the same on both paths",
    ),
    "None": (
        "m = None\nwhile x < 9:\n    x = x + 1\n    m = x\nreturn m",
        "loop at {file}:3: 'm' is None before the loop but float64[] after one iteration; a value that is not an "
        "array must not change",
    ),
    "structure": (
        "m = (x, x)\nwhile x < 9:\n    x = x + 1\n    m = (x, x, x)\nreturn m",
        "loop at {file}:3: 'm' is PyTreeDef((*, *)) before the loop but PyTreeDef((*, *, *)) after one iteration; "
        "its structure must not change",
    ),
    "a part": (
        "m = {{'a': x}}\nwhile x < 9:\n    x = x + 1\n    m = {{'a': x > 1}}\nreturn m",
        "loop at {file}:3: 'm['a']' is float64[] before the loop but bool[] after one iteration; cast it explicitly",
    ),
    "vector condition": (
        "y = jnp.ones(3)\nif y > x:\n    y = 2 * y\nreturn y",
        "statement at {file}:3: the condition must be a scalar, got bool[3] (use where, or vmap)",
    ),
    "vector condition of a loop": (
        "y = jnp.ones(3)\nwhile y < x:\n    y = 2 * y\nreturn y",
        "loop at {file}:3: the condition must be a scalar, got bool[3] (use where, or vmap)",
    ),
    "attribute": (
        "o = lambda: 0\nwhile x < 9:\n    o.n = x\n    x = x + 1\nreturn x",
        "loop at {file}:3 depends on traced values and must be staged, but {file}:4 assigns to 'o.n'; use a local "
        "variable",
    ),
    "item of an attribute": (
        "o = lambda: 0\nwhile x < 9:\n    o.n[0] = x\n    x = x + 1\nreturn x",
        "{file}:4 assigns to 'o.n[0]'; use a local variable",
    ),
    "append": (
        "out = []\nwhile x < 9:\n    out.append(x)\n    x = x + 1\nreturn out",
        "{file}:4 calls 'out.append'; use a local variable, or an array",
    ),
    "raise": (
        "if x > 0:\n    raise ValueError\nreturn x",
        "statement at {file}:2 depends on traced values and must be staged, but {file}:3 raises, and a compiled "
        "program cannot; use 'assert'",
    ),
    "stale function": (
        "def step():\n    return 2 * x\nwhile x < 9:\n    x = step()\nreturn x",
        "{file}:2 reads 'x' in a function that is made before; pass it as an argument",
    ),
    "result": (
        "if x > 0:\n    return jnp.float32(1)\nreturn jnp.int32(2)",
        "statement at {file}:2: the returned value is float32[] when true but int32[] when false; cast it explicitly",
    ),
    "conditional expression": (
        "y = 'a' if x > 0 else 'b'\nreturn y",
        "conditional expression at {file}:2: 'its value' is str 'a' when true but str 'b' when false",
    ),
    "step of a range": (
        "for i in range(0, 9, x.astype(int)):\n    x = x + i\nreturn x",
        "range() with an array as its step is not supported; count in steps of 1, and multiply",
    ),
}


@pytest.mark.parametrize("case", STAGED)
@pytest.mark.parametrize("mode", ["eager", "jit"])
def test_what_cannot_be_staged_is_told(case: str, mode: str) -> None:
    body, words = STAGED[case]
    function = made(body.replace("{{", "{").replace("}}", "}"))
    words = words.replace("{file}", function.__code__.co_filename)
    run = dynloop.loop(function) if mode == "eager" else jax.jit(dynloop.loop(function))
    with pytest.raises(dynloop.StagingError, match=re.escape(words)):
        run(jnp.asarray(2.0, "float64"))


def test_a_name_without_a_value_on_some_path_is_told_where_it_is_read() -> None:
    function = dynloop.loop(made("if x > 0:\n    y = x\nreturn y"))
    assert function(1.0) == 1.0
    with pytest.raises(UnboundLocalError, match="where it is not associated with a value"):
        function(-1.0)
    words = "'y' is used but may not have been assigned on every path; give 'y' a value before"
    with pytest.raises(dynloop.UnassignedError, match=words):
        jax.jit(function)(1.0)


def test_print_in_a_staged_loop_is_warned_of() -> None:
    function = made("while x < 9:\n    print(x)\n    x = 2 * x\nreturn x")
    words = f"while loop at {function.__code__.co_filename}:2 is staged, and .*:3 calls 'print', which runs while"
    with pytest.warns(UserWarning, match=words) as caught:
        jax.jit(dynloop.loop(function))(1.0)
    assert caught[0].filename == function.__code__.co_filename


def test_an_assert_raises_while_the_program_runs() -> None:
    function = dynloop.loop(made("assert x > 0, 'x must be positive'\nreturn 2 * x"))
    with pytest.raises(AssertionError, match="x must be positive"):
        function(-1.0)
    with pytest.raises(AssertionError, match=r"assert at .*:2 failed: x must be positive"):
        function(jnp.asarray(-1.0))
    assert jax.jit(function)(1.0) == 2.0
    with pytest.raises(Exception, match="x must be positive"):
        jax.block_until_ready(jax.jit(function)(-1.0))
