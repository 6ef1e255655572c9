"""Reading compiled programs: their size, what their loops copy and communicate, and the memory they need."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import jax

_NAME = r"%?([\w.\-]+)"
_COMPUTATION = re.compile(rf"^(?:ENTRY )?{_NAME} \(.*\) -> .* \{{$")
_LOOP = re.compile(rf"\bwhile\(.*\bcondition={_NAME}, body={_NAME}")
_CALLED = re.compile(r"\b(?:calls|to_apply|body|condition|\w+_computations?)=(\{[^}]*\}|%?[\w.\-]+)")
_COPY = re.compile(r"= (\w+\[[\d,]*\])\S* copy\(")
_COLLECTIVE = re.compile(r" (all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute)(?:-start)?\(")


def stablehlo(f: Callable[..., Any], *args: Any) -> str:
    """The program before XLA optimises it."""
    return jax.jit(f).lower(*args).as_text()


def operations(text: str) -> list[str]:
    """The names of a StableHLO program's operations, in order."""
    return re.findall(r"= \"?(stablehlo\.\w+|call|func\.call)\b", text)


def custom_calls(text: str) -> set[str]:
    """What a StableHLO program calls that is none of its own operations."""
    return {a or b for a, b in re.findall(r'custom_call @([\w.]+)|call_target_name = "([\w.]+)"', text)}


def equations(jaxpr: Any) -> int:
    """The equations of a jaxpr, inner ones included."""
    return str(jaxpr).count(" = ")


def computations(text: str) -> dict[str, list[str]]:
    """The computations of an optimised HLO program by name, as lines."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        match = _COMPUTATION.match(line)
        if match:
            lines = found.setdefault(match[1], [])
        else:
            lines.append(line)
    return found


def lines_inside_loops(text: str) -> list[str]:
    """Every line that some loop's body or condition runs, calls included."""
    all_of_them = computations(text)
    waiting = [
        name for lines in all_of_them.values() for line in lines for pair in _LOOP.findall(line) for name in pair
    ]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            called = [group for line in all_of_them[name] for group in _CALLED.findall(line)]
            waiting += [inner for group in called for inner in re.findall(_NAME, group)]
    return [line for name in seen for line in all_of_them[name]]


def copies_inside_loops(text: str) -> list[str]:
    """The shapes, such as `f64[16,8]`, of every copy that some loop makes."""
    return [shape for line in lines_inside_loops(text) for shape in _COPY.findall(line)]


def collectives(lines: Iterable[str]) -> list[str]:
    """The operations among these lines for which devices wait for each other, such as `all-reduce`."""
    return [name for line in lines for name in _COLLECTIVE.findall(line)]


def temporary_bytes(f: Callable[..., Any], *args: Any) -> int:
    """The greatest temporary memory of the compiled function, arguments and results apart."""
    return compiled(f, *args).memory_analysis().temp_size_in_bytes


def compiled(f: Callable[..., Any], *args: Any) -> Any:
    return jax.jit(f).lower(*args).compile()
