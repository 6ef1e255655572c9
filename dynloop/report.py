"""What the loops of a call did, and what their gradients cost: values that a backend fills, and their text.

A backend tells of each loop what it is and how its buffers are laid out (`Site`), and how many steps each run of it
took; everything else follows from `adjoint`'s schedules, here.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import adjoint
from adjoint.report import in_bytes
from dynloop.checkpoints import Layout
from dynloop.errors import ArgumentError
from dynloop.picture import picture


@dataclass(frozen=True)
class Site:
    """A loop as a backend knows it before it runs; two runs of equal sites are runs of one loop.

    name: the public function.   where: its body stands, as `location` tells.
    layout: of the buffers that a gradient uses; None where it keeps no state.   has_gradient: it has one (not with
    `checkpoints=0`).
    is_known: the number of steps is given when the loop starts.   has_tangents: it carries tangents beside the state.
    follows: the schedule of its gradient; None: the one of a compiled program with this layout.
    lanes: how many loops run in one.   state_bytes: of one state of one lane.   buffer_bytes: of all buffers.
    """

    name: str
    where: str
    layout: Layout | None
    has_gradient: bool
    is_known: bool
    has_tangents: bool
    lanes: int
    state_bytes: int
    buffer_bytes: int
    follows: adjoint.Schedule | None = None

    @property
    def schedule(self) -> adjoint.Schedule | None:
        """The schedule that its gradient follows."""
        layout = self.layout
        if layout is None or self.follows is not None:
            return self.follows
        if not layout.slots:
            return adjoint.StoreAll()
        # With a slot for every block nothing is given up, and both schedules run the same steps.
        if not self.is_known or layout.is_complete:
            return adjoint.Online(layout.slots, layout.leaf)
        return adjoint.Blocks(layout.slots, layout.leaf) if layout.leaf else adjoint.Binomial(layout.slots)


@dataclass(frozen=True)
class LoopReport:
    """What one loop did in a call, and what its gradient costs. Printing it gives a table.

    Args:
        name: the public function, such as `"while_loop"`.
        where: the name of its body, with file and line.
        schedule: which states a gradient keeps and which steps it runs again; None where it keeps none.
        has_gradient: False with `checkpoints=0`. A gradient that reads no state, as of a linear body, keeps none.
        slots, leaf_rows: rows of the buffers: those of planned states, and those of the newest block's states.
        host_rows: how many of these rows lie in memory of the host; the others lie on the device.
        state_bytes: of one state, of one lane of a batch, such as a gradient keeps.
        buffer_bytes: of all the buffers, the lanes of a batch and the working row included.
        lanes: how many loops ran in one, under `jax.vmap`; the longest of them is counted.
        has_tangents: the loop carried tangents beside its state: it ran in forward mode, or in a higher derivative.
        forward: how many runs forward took how many steps: `{steps: runs}`.
        reversed: the same of the gradients, each of which turned the steps of a run.
        to_host, from_host: bytes of states that this call moved to memory of the host and back; all lanes of a batch.

    Cost: `evaluations` asks the schedule for its cost, once for each number of steps.

    >>> import jax, dynloop
    >>> f = lambda x: dynloop.while_loop(lambda x: x < 20, lambda x: x + 1 / x, x, checkpoints=4)
    >>> loop = dynloop.explain(jax.grad(f))(jax.numpy.float32(1)).loops[0]
    >>> loop.steps, loop.runs, loop.reversals
    (198, 1, 1)
    >>> loop.evaluations, loop.least, loop.executed
    (1169, 1140, 1169)
    """

    name: str
    where: str
    schedule: adjoint.Schedule | None
    has_gradient: bool
    slots: int
    leaf_rows: int
    host_rows: int
    state_bytes: int
    buffer_bytes: int
    lanes: int
    has_tangents: bool
    forward: Mapping[int, int]
    reversed: Mapping[int, int]
    to_host: int = 0
    from_host: int = 0

    @property
    def runs(self) -> int:
        """How often it ran forward, recomputation by an outer loop included."""
        return sum(self.forward.values())

    @property
    def reversals(self) -> int:
        """How often its steps were turned."""
        return sum(self.reversed.values())

    @property
    def steps(self) -> int:
        """Steps of all runs forward."""
        return sum(steps * runs for steps, runs in self.forward.items())

    @property
    def longest(self) -> int:
        """Steps of the longest run."""
        return max(self.forward, default=0)

    @property
    def evaluations(self) -> int:
        """Evaluations of the body for one gradient of each run, as the schedule predicts; without one, the steps."""
        return sum(self.of_gradient(steps) * runs for steps, runs in self.forward.items())

    @property
    def least(self) -> int:
        """The fewest evaluations that any schedule in as many rows can have, had the number of steps been known."""
        return sum(self.least_of_gradient(steps) * runs for steps, runs in self.forward.items())

    @property
    def ratio(self) -> float:
        """`evaluations / least`; 1.0 where there is nothing to do."""
        return self.evaluations / self.least if self.least else 1.0

    @cached_property
    def executed(self) -> int:
        """Evaluations of the body in this call: those of the runs forward and of the gradients that were taken."""
        again = sum((self.of_gradient(steps) - steps) * runs for steps, runs in self.reversed.items())
        return self.steps + again

    def of_gradient(self, steps: int) -> int:
        """Evaluations that a gradient of a run of so many steps takes."""
        if self.schedule is None:
            return 2 * steps if self.has_gradient else steps
        return self.schedule.cost(steps).evaluations

    def least_of_gradient(self, steps: int) -> int:
        """The fewest of them in as many rows."""
        if self.schedule is None or not steps:
            return self.of_gradient(steps)
        return adjoint.advances(steps + 1, self.slots + self.leaf_rows) + steps

    def picture(self, *, width: float = 8.0, height: float = 4.0) -> Any:
        """Draws the schedule of the longest run: time across, steps down.

        Args:
            width: of the picture, in inches; 8 by default.
            height: of the picture, in inches.

        Returns:
            A `matplotlib.figure.Figure`, as `dynloop.picture` makes it.

        Raises:
            ArgumentError: the loop has no schedule, or took no step.
            BackendError: matplotlib is not installed.
        """
        if self.schedule is None:
            raise ArgumentError(f"picture: the {self.name} keeps no state, so it has no schedule to draw")
        if not self.longest:
            raise ArgumentError(f"picture: the {self.name} took no step, so there is nothing to draw")
        return picture(self.schedule, self.longest, width=width, height=height)

    def __str__(self) -> str:
        lines = [("ran", times(self.forward))]
        if self.reversed:
            lines.append(("reversed", times(self.reversed)))
        if self.lanes != 1:
            lines.append(("lanes", f"{self.lanes}, of which the longest counts"))
        lines.append(("evaluated", counted(self.executed, "time")))
        lines.append(("keeps", self.kept_in_words()))
        if self.to_host or self.from_host:
            lines.append(("moved", f"{in_bytes(self.to_host)} to the host, {in_bytes(self.from_host)} back"))
        if self.schedule is not None:
            lines.append(("schedule", f"{self.schedule}"))
        if self.has_gradient and self.steps:
            each = f"{self.evaluations / self.steps:.2f} for each step"
            lines.append(("gradient", f"{self.evaluations} evaluations, {each}"))
            lines.append(("  least", f"{self.least}, for as many states: a ratio of {self.ratio:.4f}"))
        title = f"{self.name} of {self.where}{', with tangents' if self.has_tangents else ''}"
        return "\n".join([title, *(f"  {label:<11} {text}" for label, text in lines)])

    def kept_in_words(self) -> str:
        """What a gradient keeps."""
        if not self.has_gradient:
            return "no state: checkpoints=0"
        rows = [(self.slots, "slot"), (self.leaf_rows, "leaf row")]
        kept = " and ".join(counted(number, what) for number, what in rows if number)
        size = f"{kept} of {in_bytes(self.state_bytes)}, {in_bytes(self.buffer_bytes)} in all"
        if self.host_rows:
            size += f"; {self.host_rows} of them in memory of the host"
        return size if kept else "no state: its gradient reads none"


@dataclass(frozen=True)
class Report:
    """What the loops of a call did, as `dynloop.explain` finds it. Printing it gives a table for each.

    Args:
        loops: one entry for each loop of the program, in the program's order.

    >>> import dynloop
    >>> print(dynloop.Report(()))
    no loop of dynloop has run
    """

    loops: tuple[LoopReport, ...]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.loops)) or "no loop of dynloop has run"


def report_of(
    forward: Mapping[Site, Counter[int]],
    reversed: Mapping[Site, Counter[int]],
    moved: Mapping[Site, Mapping[str, int]] = MappingProxyType({}),
) -> Report:
    """What the sites' runs amount to; `forward` has every site, `reversed` those that were reversed, `moved` bytes."""
    none: Counter[int] = Counter()
    return Report(tuple(loop_report(s, runs, reversed.get(s, none), moved.get(s, {})) for s, runs in forward.items()))


def loop_report(site: Site, forward: Counter[int], reversed: Counter[int], moved: Mapping[str, int]) -> LoopReport:
    """The report of one site."""
    return LoopReport(
        site.name,
        site.where,
        site.schedule,
        site.has_gradient,
        slots=site.layout.slots if site.layout else 0,
        leaf_rows=site.layout.leaf if site.layout else 0,
        host_rows=site.layout.host if site.layout else 0,
        state_bytes=site.state_bytes,
        buffer_bytes=site.buffer_bytes,
        lanes=site.lanes,
        has_tangents=site.has_tangents,
        forward=dict(sorted(forward.items())),
        reversed=dict(sorted(reversed.items())),
        to_host=moved.get("to_host", 0),
        from_host=moved.get("from_host", 0),
    )


def times(runs: Mapping[int, int]) -> str:
    """Runs by their steps, in words."""
    if not runs:
        return "never"
    total = sum(steps * number for steps, number in runs.items())
    text = f"{counted(sum(runs.values()), 'time')}, {counted(total, 'step')}"
    return text if len(runs) == 1 and total in runs else f"{text} in all, {spread(min(runs), max(runs))} each"


def spread(least: int, most: int) -> str:
    return f"{least}" if least == most else f"{least} to {most}"


def counted(number: int, what: str) -> str:
    """A number of things."""
    return f"{number} {what}{'' if number == 1 else 's'}"
