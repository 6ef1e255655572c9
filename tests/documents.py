"""Documents that run: a Markdown file's Python blocks, executed in order in one namespace.

A block fenced as `text` or `output` right below a Python block is what that block prints.
`python -m tests.documents FILE` runs a document and prints, as JSON, the line of each block and what it printed.
"""

import contextlib
import io
import json
import re
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s#]+)(?:#[^)]*)?\)")


class Block(NamedTuple):
    """One Python block: the line its code begins at (from 1), the code, and the output shown below it, if any."""

    line: int
    code: str
    shown: str | None


def python_blocks(text: str) -> Iterator[Block]:
    """A document's Python blocks, in order."""
    fences = list(FENCE.finditer(text))
    for fence, below in zip_longest(fences, fences[1:]):
        if fence["language"] != "python":
            continue
        shown = None
        if below and below["language"] in ("text", "output") and not text[fence.end() : below.start()].strip():
            shown = below["body"]
        yield Block(text.count("\n", 0, fence.start("body")) + 1, fence["body"], shown)


def shell_block(text: str, marker: str) -> str:
    """The command in the first `sh` block below the line that holds `marker`."""
    _, found, below = text.partition(marker)
    fence = next((fence for fence in FENCE.finditer(below) if fence["language"] == "sh"), None)
    if not found or fence is None:
        raise ValueError(f"no sh block below {marker!r}")
    return fence["body"].strip()


def run_blocks(text: str, name: str) -> list[tuple[int, str]]:
    """Runs a document's blocks; returns each block's line and what it printed. Tracebacks show the document's lines."""
    namespace: dict[str, Any] = {"__name__": "document"}
    printed = []
    for block in python_blocks(text):
        code = compile("\n" * (block.line - 1) + block.code, name, "exec")
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(code, namespace)
        printed.append((block.line, output.getvalue()))
    return printed


def wrong_outputs(text: str, printed: list[tuple[int, str]]) -> list[str]:
    """Blocks whose output differs from the one shown."""
    return [
        f"line {block.line}: shows\n{block.shown}and prints\n{output}"
        for block, (_, output) in zip(python_blocks(text), printed, strict=True)
        if block.shown is not None and block.shown.rstrip() != output.rstrip()
    ]


def broken_links(text: str, folder: Path) -> list[str]:
    """Relative links that lead to no file."""
    targets = {match["target"] for match in LINK.finditer(FENCE.sub("", text))}
    return sorted(target for target in targets if "://" not in target and not (folder / target).exists())


def crowded_lines(text: str) -> list[str]:
    """Lines of prose that hold more than one sentence; a label in bold before a sentence is none."""
    prose = FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text).splitlines()
    return [
        f"line {number}: {line}" for number, line in enumerate(prose, 1) if re.search(r"[\w)`\"][.?!] [A-Z`]", line)
    ]


if __name__ == "__main__":
    document = Path(sys.argv[1])
    print(json.dumps(run_blocks(document.read_text(encoding="utf-8"), str(document))))
