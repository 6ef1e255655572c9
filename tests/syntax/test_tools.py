"""A decorated function is still the user's: debuggers, tracebacks, `inspect`, pickles, notebooks, other decorators."""

import copy
import doctest
import functools
import inspect
import io
import linecache
import pdb
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import dynloop
from tests.syntax.programs import defined

pytestmark = pytest.mark.versions


@dynloop.loop
def grow(x: float, limit: float = 10.0, *, factor: float = 2.0) -> float:
    """Grow x until it reaches the limit."""
    while x < limit:
        x = x * factor
    return x


def test_a_function_keeps_what_it_says_of_itself() -> None:
    assert grow.__name__ == "grow"
    assert grow.__qualname__ == "grow"
    assert grow.__module__ == __name__
    assert grow.__doc__ == "Grow x until it reaches the limit."
    assert str(inspect.signature(grow)) == "(x: float, limit: float = 10.0, *, factor: float = 2.0) -> float"
    assert grow.__annotations__["x"] is float


def test_source_is_the_users_with_its_decorator() -> None:
    lines, first = inspect.getsourcelines(grow)
    assert lines[0] == "@dynloop.loop\n"
    assert lines[1].startswith("def grow(")
    assert lines[-1] == "    return x\n"
    assert linecache.getline(__file__, first) == lines[0]


def test_help_shows_signature_and_docstring(capsys: pytest.CaptureFixture[str]) -> None:
    help(grow)
    said = capsys.readouterr().out
    assert "grow(x: float, limit: float = 10.0" in said
    assert "Grow x until it reaches the limit." in said


def test_it_is_pickled_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(grow)) is grow
    assert copy.deepcopy(grow) is grow


def test_other_decorators_go_around_it() -> None:
    @functools.wraps(grow)
    def wrapped(*args: Any) -> float:
        return grow(*args)

    assert wrapped(3.0) == 12.0
    assert inspect.unwrap(wrapped) is grow


def test_methods_of_every_kind() -> None:
    class Base:
        def start(self) -> float:
            return 1.0

    class Grower(Base):
        @dynloop.loop
        def run(self, n):
            x = super().start()
            for _ in range(n):
                x = 3 * x
            return x

        @staticmethod
        @dynloop.loop
        def static(n):
            x = 1
            for _ in range(n):
                x = x * 2
            return x

        @classmethod
        @dynloop.loop
        def of_class(cls, n):
            return [cls.__name__ for _ in range(n)]

        @property
        @dynloop.loop
        def size(self):
            n = 0
            while n < 5:
                n += 2
            return n

    assert Grower().run(2) == 9.0
    assert Grower.static(3) == 8
    assert Grower.of_class(2) == ["Grower", "Grower"]
    assert Grower().size == 6


FAILING = """
def f(x):
    while x < 3:
        if x > 1:
            x = x + missing
        x = x + 1
    return x
"""


@pytest.mark.parametrize("start", [0, 0.5])
def test_a_traceback_shows_the_users_lines(start: float) -> None:
    function = defined(FAILING)
    frames = []
    for f in (function, dynloop.loop(function)):
        with pytest.raises(NameError, match="missing") as caught:
            f(start)
        found = [e for e in traceback.extract_tb(caught.value.__traceback__) if e.filename.startswith("<program")]
        frames.append([(e.filename, e.lineno, e.name, e.line) for e in found])
    assert frames[0] == frames[1]
    assert frames[1][0][1:] == (5, "f", "x = x + missing")


def lines_run(function: Callable[..., Any], *args: Any) -> list[int]:
    """The lines that a debugger stops at while stepping, each once where it stops several times in a row."""
    seen: list[int] = []

    def trace(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != function.__code__.co_filename:
            return None
        if event == "line" and (not seen or seen[-1] != frame.f_lineno):
            seen.append(frame.f_lineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*args)
    finally:
        sys.settrace(before)
    return seen


STEPS = """
def f(n):
    total = 0
    for i in range(n):
        if i == 2:
            continue
        while total < 3:
            total += 1
        total = total + i
        if total > 7:
            break
    return total
"""


def test_stepping_goes_through_the_same_lines() -> None:
    function = defined(STEPS)
    rewritten = dynloop.loop(function)
    assert lines_run(rewritten, 3) == lines_run(function, 3)
    # After a break out of a `for` the header is passed once more.
    steps = lines_run(rewritten, 9)
    assert [*steps[:-2], steps[-1]] == lines_run(function, 9)
    assert steps[-2] == 4


def test_pdb_stops_at_a_breakpoint_in_the_body() -> None:
    function = dynloop.loop(defined(STEPS))
    said = io.StringIO()
    debugger = pdb.Pdb(stdin=io.StringIO("c\np total\nclear 1\nc\n"), stdout=said, nosigint=True, readrc=False)
    debugger.prompt = ""
    filename = function.__code__.co_filename
    assert debugger.set_break(filename, 9) is None
    debugger.runcall(function, 9)
    assert f"> {filename}(9)f()" in said.getvalue()
    assert "\n3\n" in said.getvalue()


def test_the_rewritten_source_is_shown() -> None:
    text = dynloop.source(grow)
    assert "def grow(x: float, limit: float=10.0, *, factor: float=2.0) -> float:" in text
    assert "def _dynloop_body1(x, factor, limit):\n    x = x * factor\n    return (x,)" in text
    compile(text, "source", "exec")


def test_a_notebook_cell_works() -> None:
    shell = InteractiveShell.instance()
    try:
        cell = "import dynloop\n@dynloop.loop\ndef cell(x):\n    while x < 5:\n        x = x * 2\n    return x\n"
        assert shell.run_cell(cell + "found = cell(3)").success
        assert shell.user_ns["found"] == 6
        assert "while x < 5" in inspect.getsource(shell.user_ns["cell"])
    finally:
        InteractiveShell.clear_instance()


def test_a_function_in_a_doctest_works() -> None:
    text = """
    >>> import dynloop
    >>> @dynloop.loop
    ... def double(x):
    ...     while x < 5:
    ...         x = 2 * x
    ...     return x
    >>> double(3)
    6
    """
    test = doctest.DocTestParser().get_doctest(text, {}, "example", "example.txt", 0)
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0


def test_try_and_with_are_left_alone() -> None:
    def careful(n):
        seen = []
        for i in range(n):
            try:
                while i > 1:
                    i -= 1
                    raise KeyError(i)
            except KeyError as error:
                seen.append(error.args)
            else:
                with io.StringIO() as out:
                    seen.append(out.write("else"))
            finally:
                seen.append("finally")
        return seen

    assert dynloop.loop(careful)(4) == careful(4)


def test_del_of_a_name() -> None:
    @dynloop.loop
    def forget(n):
        for i in range(n):
            kept = i
            del kept
        return n

    assert forget(3) == 3


def test_what_is_assigned_only_after_a_jump_stays_a_local_name() -> None:
    function = dynloop.loop(defined("def f(x):\n    y = z\n    return y\n    z = 1\n", {"z": 3}))
    with pytest.raises(UnboundLocalError):
        function(1)
