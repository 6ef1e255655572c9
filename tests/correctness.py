"""docs/correctness.md: what the full matrix of derivatives saw, written by the run itself and read back.

The cases of the matrix are named here, and made in tests/on_jax/matrix.py. pytest's hooks import this file, so it loads
no array library.
"""

import platform
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from tests.user_process import ROOT

DOCUMENT = ROOT / "docs/correctness.md"
PROPERTY = "relative difference"
"""The name under which a case reports what it saw."""
LIMIT = 1e-10
"""The relative difference that every case must stay below."""


class Case(NamedTuple):
    """One case of the matrix, by the names that the document has for its parts."""

    form: str
    mode: str
    checkpoints: str


FORMS = ("while_loop", "fori_loop", "scan", "scan with until")
CHECKPOINTS = ("1", "2", "3", "16", '"all"', '"auto"')
MODES = (
    "value",
    "jvp",
    "grad",
    "jacfwd",
    "jacrev",
    "linearize",
    "forward over reverse",
    "reverse over reverse",
    "reverse over forward",
    "forward over forward",
    "reverse over forward over reverse",
    "vmap of grad",
    "grad of vmap",
    "vmap of hessian",
)
CASES = [Case(*names) for names in product(FORMS, MODES, CHECKPOINTS)]

HEAD = (
    "# Correctness",
    "",
    "Seen with {versions} on {machine}.",
    "",
    "Each number compares dynloop, in one compiled program, with the same loop unrolled in Python, operation by "
    "operation and lane by lane, in the same mode of derivative, in 64 bits and without XLA's optimisations.",
    "It is the greatest difference in any array of the result, relative to the greatest entry of that array; "
    "a 0 means that they agree in every bit.",
    "The columns are values of `checkpoints`; a loop takes more steps than any number of them.",
    "In the modes with vmap the lanes take different numbers of steps, and one takes none; "
    "but a `scan` without `until` takes all rows in every lane.",
    "[Contributing](contributing.md) has the command that runs these cases and writes this page; "
    "a case fails if its number is not below {limit}.",
    "",
)


def measured(reports: Iterable[Any]) -> dict[Case, float]:
    """What the cases reported, by case: from the user properties of pytest's reports."""
    properties = (pair for report in reports for pair in getattr(report, "user_properties", ()))
    return {Case(*value[:-1]): value[-1] for name, value in properties if name == PROPERTY}


def processor() -> str:
    """The processor's name where Linux tells it, and its architecture."""
    told = Path("/proc/cpuinfo")
    name = re.search(r"^model name\s*:\s*(.+)$", told.read_text(encoding="utf-8"), re.M) if told.exists() else None
    return f"{name[1]}, {platform.machine()}" if name else platform.machine()


def written(differences: Mapping[Case, float]) -> str:
    """The document's text."""
    names = ", ".join(f"{name} {version(name)}" for name in ("dynloop", "jax", "jaxlib"))
    versions = f"{names} and Python {platform.python_version()}"
    head = "\n".join(HEAD)
    parts = [head.format(versions=versions, machine=f"{platform.system()}, {processor()}", limit=LIMIT)]
    for form in FORMS:
        rows = [f"## {form}\n", f"| mode | {' | '.join(CHECKPOINTS)} |", "|--|" + "--|" * len(CHECKPOINTS)]
        for mode in MODES:
            numbers = (differences[Case(form, mode, checkpoints)] for checkpoints in CHECKPOINTS)
            rows.append(f"| {mode} | {' | '.join(f'{d:.1e}' if d else '0' for d in numbers)} |")
        parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def read(text: str) -> list[tuple[Case, float]]:
    """The cases of a document's tables, in order, and their numbers."""
    found: list[tuple[Case, float]] = []
    form, columns = "", list[str]()
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("## "):
            form = line[3:]
        elif line.startswith("| mode |"):
            columns = cells[1:]
        elif line.startswith("| "):
            found += [(Case(form, cells[0], c), float(d)) for c, d in zip(columns, cells[1:], strict=True)]
    return found


def faults(text: str) -> list[str]:
    """What is wrong with a document: cases that it lacks or should not have, and numbers that are too large."""
    entries = read(text)
    if [case for case, _ in entries] != CASES:
        listed = {case for case, _ in entries}
        missing, foreign = [c for c in CASES if c not in listed], sorted(listed - set(CASES))
        return [f"not the cases of the matrix, in order: it lacks {missing}, and has {foreign}"]
    return [f"{case}: {number} is not below {LIMIT}" for case, number in entries if not number < LIMIT]


def recorded(outcomes: Mapping[str, Iterable[Any]], document: Path = DOCUMENT) -> str | None:
    """Writes the document if every case ran, and says whether; None if no case did.

    Args:
        outcomes: pytest's reports by outcome. A case that failed counts with the number it saw, for the page to show.
        document: where to write.
    """
    differences = measured(report for reports in outcomes.values() for report in reports)
    if not differences:
        return None
    if set(differences) != set(CASES):
        return f"{document.name}: left as it is, since {len(differences)} of {len(CASES)} cases ran"
    document.write_text(written(differences), encoding="utf-8")
    return f"{document.name}: written, from {len(CASES)} cases"
