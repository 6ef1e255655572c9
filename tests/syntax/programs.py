"""Random structured programs as text, and the functions that they define: for the fuzz tests of `@dynloop.loop`.

A program works on three integers and a list of three, keeps them small, and ends by itself: every `while`
counts. `STAGED` programs keep to what a staged one can mean, whatever its conditions are; the others also
use names that may have no value yet, record what they do, and return anything.
"""

import itertools
import linecache
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

INTEGERS = ("a", "b", "c")
_NAMES = itertools.count()


@dataclass
class Writer:
    """Draws a program.   is_staged: it must be one that can be staged."""

    draw: Callable[[st.SearchStrategy[Any]], Any]
    is_staged: bool
    counters: "itertools.count[int]" = field(default_factory=itertools.count)
    known: tuple[str, ...] = INTEGERS

    def pick(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    # ---- expressions

    def number(self, depth: int = 2) -> str:
        kind = (
            self.pick("name", "constant")
            if depth == 0
            else self.pick("name", "sum", "item", "choice", "constant", "rest")
        )
        if kind == "name":
            return self.pick(*self.known)
        if kind == "constant":
            return str(self.draw(st.integers(-3, 5)))
        if kind == "item":
            return f"v[{self.place(depth - 1)}]"
        if kind == "choice":
            return f"({self.number(depth - 1)} if {self.truth(depth - 1)} else {self.number(depth - 1)})"
        if kind == "rest":
            return f"({self.number(depth - 1)} % {self.pick(2, 3, 7)})"
        return f"({self.number(depth - 1)} {self.pick('+', '-', '*')} {self.number(depth - 1)})"

    def place(self, depth: int) -> str:
        return self.pick("0", "1", "2", f"({self.number(max(depth, 0))}) % 3")

    def truth(self, depth: int = 2) -> str:
        kinds = ("less",) if depth == 0 else ("less", "chain", "and", "or", "not", "even")
        kind = self.pick(*kinds)
        sign = self.pick("<", "<=", "==", "!=", ">")
        if kind == "less":
            return f"{self.number(0)} {sign} {self.number(max(depth - 1, 0))}"
        if kind == "chain":
            return f"{self.number(0)} {sign} {self.number(depth - 1)} {self.pick('<', '<=', '!=')} {self.number(0)}"
        if kind == "even":
            return f"{self.number(depth - 1)} % 2 == 0"
        if kind == "not":
            return f"not ({self.truth(depth - 1)})"
        return f"({self.truth(depth - 1)} {kind} {self.truth(depth - 1)})"

    # ---- statements

    def block(self, depth: int, in_loop: bool, indent: str) -> list[str]:
        lines = [line for _ in range(self.draw(st.integers(1, 3))) for line in self.statement(depth, in_loop, indent)]
        return lines

    def statement(self, depth: int, in_loop: bool, indent: str) -> list[str]:
        kinds = ["set", "add", "two", "item", "item", "late"] + (["jump"] * 2 if depth < 3 else [])
        if depth > 0:
            kinds += ["if", "if", "if", "range", "while", "forever", "tuple"]
        kind = self.pick(*kinds)
        known = self.known
        lines = getattr(self, f"write_{kind}")(depth, in_loop, indent)
        self.known = known
        return lines

    def value(self) -> str:
        return f"({self.number()}) % 101"

    def write_set(self, depth: int, in_loop: bool, indent: str) -> list[str]:
        name = self.pick(*INTEGERS)
        lines = [f"{indent}{name} = {self.value()}"]
        return lines + ([f"{indent}note({name})"] if not self.is_staged and self.draw(st.booleans()) else [])

    def write_add(self, depth: int, in_loop: bool, indent: str) -> list[str]:
        name = self.pick(*INTEGERS)
        return [f"{indent}{name} {self.pick('+=', '-=')} {self.value()}", f"{indent}{name} %= 53"]

    def write_two(self, depth: int, in_loop: bool, indent: str) -> list[str]:
        first = self.pick("a, b", "b, c", "c, (a, b)", "a, v[0]", "v[1], b")
        values = (
            f"{self.value()}, ({self.value()}, {self.value()})" if "(" in first else f"{self.value()}, {self.value()}"
        )
        return [f"{indent}{first} = {values}"]

    def write_item(self, depth: int, in_loop: bool, indent: str) -> list[str]:
        return [f"{indent}v[{self.place(1)}] {self.pick('=', '=', '+=')} {self.value()}"]

    def write_late(self, depth: int, in_loop: bool, indent: str) -> list[str]:
        name = self.pick("d", "e")
        if self.is_staged or self.draw(st.booleans()):
            return [f"{indent}{name} = {self.value()}", f"{indent}a = {name} + b"]
        return [f"{indent}{self.pick('a', name)} = {name} + 1"]

    def write_jump(self, depth: int, in_loop: bool, indent: str) -> list[str]:
        jump = self.pick("return", *(["break", "continue", "break", "continue"] if in_loop else []))
        if jump == "return":
            return [f"{indent}return {self.result()}"]
        return [f"{indent}{jump}"]

    def result(self) -> str:
        return f"({self.value()}, b, c, v)"

    def write_if(self, depth: int, in_loop: bool, indent: str) -> list[str]:
        lines = [f"{indent}if {self.truth()}:", *self.block(depth - 1, in_loop, indent + "    ")]
        if self.draw(st.booleans()):
            lines += [f"{indent}elif {self.truth()}:", *self.block(depth - 1, in_loop, indent + "    ")]
        if self.draw(st.booleans()):
            lines += [f"{indent}else:", *self.block(depth - 1, in_loop, indent + "    ")]
        return lines

    def otherwise(self, depth: int, in_loop: bool, indent: str) -> list[str]:
        if self.draw(st.integers(0, 2)):
            return []
        return [f"{indent}else:", *self.block(depth - 1, in_loop, indent + "    ")]

    def write_range(self, depth: int, in_loop: bool, indent: str) -> list[str]:
        name = f"i{next(self.counters)}"
        bounds = self.pick(f"{self.number(1)} % 4", f"1, {self.number(0)} % 5", f"{self.number(0)} % 5, -1, -2", "2")
        after = self.otherwise(depth, in_loop, indent)
        self.known = (*self.known, name)
        return [f"{indent}for {name} in range({bounds}):", *self.block(depth - 1, True, indent + "    "), *after]

    def write_tuple(self, depth: int, in_loop: bool, indent: str) -> list[str]:
        name = f"i{next(self.counters)}"
        after = self.otherwise(depth, in_loop, indent)
        self.known = (*self.known, name)
        return [f"{indent}for {name} in (3, 1, 2):", *self.block(depth - 1, True, indent + "    "), *after]

    def write_while(self, depth: int, in_loop: bool, indent: str) -> list[str]:
        name = f"k{next(self.counters)}"
        after = self.otherwise(depth, in_loop, indent)
        head = [f"{indent}{name} = 0", f"{indent}while {name} < {self.pick(2, 3, 4)} and {self.truth(1)}:"]
        self.known = (*self.known, name)
        return [*head, f"{indent}    {name} += 1", *self.block(depth - 1, True, indent + "    "), *after]

    def write_forever(self, depth: int, in_loop: bool, indent: str) -> list[str]:
        name = f"k{next(self.counters)}"
        head = [f"{indent}{name} = 0", f"{indent}while True:"]
        self.known = (*self.known, name)
        body = self.block(depth - 1, True, indent + "    ")
        bound = self.pick("2", "3", "(a % 3)")
        stop = [f"{indent}    {name} += 1", f"{indent}    if {name} > {bound}:", f"{indent}        break"]
        return [*head, *stop, *body]


@st.composite
def programs(draw: Callable[[st.SearchStrategy[Any]], Any], is_staged: bool) -> str:
    """The text of a function `f(a, b, c, v, note)`."""
    writer = Writer(draw, is_staged)
    body = [line for _ in range(draw(st.integers(1, 3))) for line in writer.statement(3, False, "    ")]
    return "\n".join(["def f(a, b, c, v, note):", *body, f"    return {writer.result()}", ""])


def within_staged(text: str) -> str:
    """The program under an `if` that always holds, if it has `v[i]`: PyTorch compiles no such item outside of one."""
    first, *body = text.splitlines()
    if not any(re.search(r"v\[(?![012]\])", line) for line in body):
        return text
    return "\n".join([first, "    if a > -1000:", *[f"    {line}" for line in body], "    return a, b, c, v", ""])


def defined(text: str, names: dict[str, Any] | None = None) -> Any:
    """The function `f` that a text defines, with its source where `inspect` finds it.   names: its globals."""
    name = f"<program {next(_NAMES)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace = dict(names or {})
    exec(compile(text, name, "exec"), namespace)
    return namespace["f"]


def outcome(function: Callable[..., Any], a: int, b: int, c: int, v: Any) -> tuple[Any, list[Any]]:
    """What a call returns or raises, and what it has noted."""
    noted: list[Any] = []
    try:
        return function(a, b, c, v, noted.append), noted
    except Exception as error:
        return type(error), noted
