"""The picture of a reversal in characters: time across, steps down, for a terminal and for a report."""

from __future__ import annotations

from adjoint.errors import ScheduleError, checked_integer
from adjoint.replay import HasActions
from adjoint.schedule import checked_steps
from adjoint.trace import Stroke, strokes

KEPT = "-=#"
ADVANCED, TURNED = "\\", "o"


def draw(schedule: HasActions, steps: int, width: int = 72, height: int = 20) -> str:
    """Draws a reversal in characters.

    Args:
        schedule: anything with `actions(steps)`.
        steps: n >= 1.
        width: columns, of time; 72 by default, which fits a terminal.
        height: rows, of steps; 20 by default. A chain of fewer steps takes a row for each.

    Returns:
        Lines of text: `\\` is an advance, `o` a turn, `-` a state in a slot (`=` in tier 1, `#` beyond).

    Raises:
        ScheduleError: an argument is no such number, or the schedule has no answer.

    Cost: one operation per action and per character drawn; no step runs.

    >>> from adjoint import Binomial
    >>> print(draw(Binomial(2), 6, width=40))
    step
       0 \\\\\\-------------------------\\\\\\------o
       1    \\\\\\                        \\\\\\--o
       2       \\\\                        o
       3        \\\\\\----\\\\\\----\\\\\\-o
       4           \\\\\\    \\\\    o
       5              \\\\   o
         time: 17 evaluations and 6 turns
    """
    n = checked_steps(steps)
    if n == 0:
        raise ScheduleError("steps", steps, "an integer >= 1", "a chain without steps has no picture")
    columns = checked_integer("width", width, 1, "give the number of columns")
    rows = min(checked_integer("height", height, 1, "give the number of rows"), n)
    drawn = list(strokes(schedule, n))
    total = max(stroke.stop for stroke in drawn)
    paper = [[" "] * columns for _ in range(rows)]
    # What is kept lies below what runs.
    for stroke in sorted(drawn, key=lambda stroke: ("keep", "advance", "turn").index(stroke.kind)):
        put(paper, stroke, total, n)
    labels = [str(-(-row * n // rows)) for row in range(rows)]
    margin = max(4, *(len(label) for label in labels))
    lines = [f"{label:>{margin}} {''.join(row).rstrip()}" for label, row in zip(labels, paper, strict=True)]
    turns = sum(stroke.kind == "turn" for stroke in drawn)
    counted = f"{' ' * margin} time: {total} evaluations and {turns} turns"
    return "\n".join([f"{'step':>{margin}}", *lines, counted])


def put(paper: list[list[str]], stroke: Stroke, total: int, steps: int) -> None:
    """Draws one stroke. What takes place during time t stands in the column of t."""
    columns, rows = len(paper[0]), len(paper)
    begin = stroke.start * columns // total
    end = max(begin + 1, -(-stroke.stop * columns // total))
    if stroke.kind == "advance":
        # At least one mark for each row that it passes, at least one for each column.
        marks = max(end - begin, (stroke.last - stroke.first) * rows // steps, 1)
        for mark in range(marks):
            state = stroke.first + mark * (stroke.last - stroke.first) // marks
            paper[state * rows // steps][min(begin + mark * (end - begin) // marks, columns - 1)] = ADVANCED
        return
    row = min(stroke.first * rows // steps, rows - 1)
    sign = TURNED if stroke.kind == "turn" else KEPT[min(stroke.tier, len(KEPT) - 1)]
    stop = begin + 1 if stroke.kind == "turn" else min(end, columns)
    for column in range(begin, stop):
        paper[row][min(column, columns - 1)] = sign
