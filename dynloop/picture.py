"""The classic picture of checkpointing: time across, steps down, every advance, turn and kept state a line.

The strokes are `adjoint`'s; only drawing them needs matplotlib, which is loaded then. The picture uses no window and
no global state of matplotlib's: it is a figure that can be saved.
"""

from typing import Any

import adjoint
from dynloop.errors import BackendError

COLOURS = {"advance": "tab:blue", "turn": "tab:red"}
# Kept states by tier, from the fastest: memory is drawn light, and what is slow stands out.
KEPT = ("0.8", "tab:orange", "tab:green")


def picture(schedule: Any, steps: int, *, width: float = 8.0, height: float = 4.0) -> Any:
    """Draws how a schedule reverses a chain.

    Args:
        schedule: one of `adjoint`'s schedules, or anything with `actions(steps)`.
        steps: n >= 1.
        width: of the picture, in inches; 8 by default.
        height: of the picture, in inches.

    Returns:
        A `matplotlib.figure.Figure`; save it with `figure.savefig("schedule.svg")`.

    Raises:
        BackendError: matplotlib is not installed.
        adjoint.ScheduleError: the schedule has no answer for that many steps.

    Cost: one line for each action; no step runs.

    >>> import adjoint, dynloop
    >>> figure = dynloop.picture(adjoint.Binomial(4), 60)
    >>> figure.axes[0].get_xlabel()
    'time, in step evaluations: 248'
    """
    try:
        from matplotlib.collections import LineCollection
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D
    except ImportError as error:
        raise BackendError(f'picture: {error}; install matplotlib, with pip install "dynloop[viz]"') from error
    if steps == 0:
        raise adjoint.ScheduleError("steps", steps, "an integer >= 1", "a chain without steps has no picture")
    drawn = list(adjoint.strokes(schedule, steps))
    total = max(stroke.stop for stroke in drawn)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    legend: dict[str, Any] = {}
    # What is kept lies below what runs.
    for stroke in sorted(drawn, key=lambda stroke: ("keep", "advance", "turn").index(stroke.kind)):
        colour, label = appearance(stroke)
        legend.setdefault(label, ([], colour))[0].append(line(stroke))
    for label, (lines, colour) in legend.items():
        axes.add_collection(LineCollection(lines, colors=colour, linewidths=1.2, label=label))
    axes.set_xlim(0, total)
    axes.set_ylim(steps, 0)
    axes.set_xlabel(f"time, in step evaluations: {total}")
    axes.set_ylabel("step")
    axes.set_title(str(schedule))
    handles = [Line2D([], [], color=colour, label=label) for label, (_, colour) in legend.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    return figure


def appearance(stroke: adjoint.Stroke) -> tuple[str, str]:
    """The colour of a stroke, and its name in the legend."""
    if stroke.kind == "keep":
        where = "kept" if stroke.tier == 0 else f"kept in tier {stroke.tier}"
        return KEPT[min(stroke.tier, len(KEPT) - 1)], where
    return COLOURS[stroke.kind], stroke.kind


def line(stroke: adjoint.Stroke) -> list[tuple[float, float]]:
    """The ends of a stroke. A turn runs its step and comes back, so its line is as high as its step."""
    last = stroke.last + 1 if stroke.kind == "turn" else stroke.last
    return [(stroke.start, stroke.first), (stroke.stop, last)]
