"""The backward program: the reverse sweep, which drives a transposed step from the last state to the first.

Each round of the sweep first reverses a *run*: consecutive states that lie in the buffers, in a tight loop of load
and transposed step. Then it descends from the newest checkpoint towards the next run (`descent`). Splits follow
Griewank & Walther 2000: the number of sweeps left lies on the stack beside each checkpoint, so nothing is searched for.

How many steps a run has is known before it, so the tight loop is unrolled without masks: first what is left over, step
by step, then several steps at a time.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dynloop.checkpoints import Layout
from dynloop.on_torch.arguments import cut
from dynloop.on_torch.descent import Descent, Sweep
from dynloop.on_torch.forward import zeros
from dynloop.on_torch.step import Step
from dynloop.on_torch.storing_loop import get, put, run

# A transposed step of many operations gains nothing from being unrolled, and costs its time to compile.
UNROLLED_OPERATIONS, MOST_UNROLLED = 160, 8


class Flow(NamedTuple):
    """What flows through the sweep: cotangents of the active leaves, and the sums for the constants."""

    cotangents: list[Tensor]
    sums: list[Tensor]

    @property
    def flat(self) -> list[Tensor]:
        return [*self.cotangents, *self.sums]


class Given(NamedTuple):
    """What the sweep reads only."""

    y_cotangents: list[Tensor]
    xs: list[Tensor]
    like: list[Tensor]
    constants: list[Any]

    @property
    def flat(self) -> list[Any]:
        return [*self.y_cotangents, *self.xs, *self.like, *self.constants]

    def again(self, flat: Sequence[Any]) -> "Given":
        return Given(*cut(flat, len(self.y_cotangents), len(self.xs), len(self.like)))


class Sweeper:
    """The steps that a sweep consists of: each takes what it reads as `Given`."""

    def __init__(self, step: Step, layout: Layout):
        self.step, self.layout = step, layout
        operations = sum(node.op == "call_function" for node in step.transpose.graph.nodes)
        self.unrolled = max(min(UNROLLED_OPERATIONS // max(operations, 1), MOST_UNROLLED), 1)

    def advance(self, i: Tensor, kept: list[Tensor], given: Given) -> list[Tensor]:
        """One step of the loop, as far as what is stored needs it."""
        state = self.step.whole(kept, given.like)
        return self.step.stored(self.step.advance(i, state, get(given.xs, i), given.constants)[0])

    def turn(self, i: Tensor, kept: list[Tensor], flow: Flow, stacked: list[Tensor], given: Given) -> Any:
        """The transposed step i: the flow before it, and the cotangents of xs with its row."""
        state, seeds = self.step.whole(kept, given.like), get(given.y_cotangents, i)
        out = self.step.turn(i, state, get(given.xs, i), given.constants, flow.cotangents, seeds)
        cotangents, rows, increments = out
        sums = [a + b for a, b in zip(flow.sums, increments, strict=True)]
        return Flow(cotangents, sums), put(stacked, rows, i)

    def reverse_run(
        self,
        first: Tensor,
        end: Tensor,
        row_of: Callable[[Tensor, list[Any]], Tensor],
        extra: list[Any],
        kept: list[Tensor],
        flow: Flow,
        stacked: list[Tensor],
        given: Given,
    ) -> tuple[Flow, list[Tensor]]:
        """Steps end - 1 .. first, their states in the rows that row_of(i, extra) tells."""
        n, k, e = len(flow.cotangents), len(kept), len(extra)

        def turns(steps: int) -> Callable[..., Any]:
            def several(carries: list[Tensor], stacked: list[Tensor], constants: list[Any]) -> Any:
                end, *flat = carries
                _, extra, kept, flat_given = cut(constants, 1, e, k)
                flow, now = Flow(*cut(flat, n)), given.again(flat_given)
                for q in range(1, steps + 1):
                    i = end - q
                    flow, stacked = self.turn(i, get(kept, row_of(i, extra)), flow, stacked, now)
                return [end - steps, *flow.flat], stacked

            return several

        def is_on(carries: list[Tensor], _: Any, constants: list[Any]) -> Tensor:
            return carries[0] > constants[0]

        carries, constants = [end + 0, *flow.flat], [*extra, *kept, *given.flat]
        if self.unrolled > 1:
            whole = end - torch.remainder(end - first, self.unrolled)
            carries, stacked = run(is_on, turns(1), carries, stacked, [whole, *constants])
        carries, stacked = run(is_on, turns(self.unrolled), carries, stacked, [first + 0, *constants])
        return Flow(*cut(carries[1:], n)), stacked


def sweep(
    step: Step,
    layout: Layout,
    length: Any,
    is_known: bool,
    steps: Tensor,
    stored: Tensor,
    kept: list[Tensor],
    cotangents: Sequence[Tensor],
    given: Given,
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Cotangents of the active leaves at the start, of the xs, and of the constants.

    cotangents: of the active leaves at the end.   kept: the buffers that `storing` filled.
    """
    sweeper = Sweeper(step, layout)
    wanted = [x for x, w in zip(given.constants, step.wanted, strict=True) if w]
    flow = Flow(
        [x.clone(memory_format=torch.contiguous_format) for x in cotangents],
        [torch.zeros_like(x, memory_format=torch.contiguous_format) for x in wanted],
    )
    stacked = [zeros((length, *x.shape[1:]), x) for x, w in zip(given.xs, step.wanted_rows, strict=True) if w]
    if not layout.slots:
        first = torch.zeros_like(steps)
        flow, stacked = sweeper.reverse_run(first, steps, lambda i, _: i, [], kept, flow, stacked, given)
        return flow.cotangents, stacked, flow.sums
    descent = Descent(layout, steps, stored, is_known=is_known)
    n, k, size = len(flow.cotangents), len(kept), len(Sweep._fields)
    tables = descent.tables

    def one_round(carries: list[Tensor], buffers: list[Tensor], constants: list[Any]) -> Any:
        at, flat = Sweep(*carries[:size]), carries[size:]
        tables, flat_given = cut(constants, len(descent.tables))
        kept, stacked = cut(buffers, k)
        now, flow = given.again(flat_given), Flow(*cut(flat, n))
        extra = [*tables, *at]

        def row_of(i: Tensor, extra: list[Any]) -> Tensor:
            tables, at = cut(extra, len(descent.tables))
            return descent.row_of(tables, Sweep(*at), i)

        flow, stacked = sweeper.reverse_run(at.first, at.end, row_of, extra, kept, flow, stacked, now)
        # Any round but the last: the run is read, so its rows may be written again.
        at = at._replace(end=at.first)
        at, kept = descent.descend(
            tables, at, kept, lambda i, state, given: sweeper.advance(i, state, now.again(given)), now.flat
        )
        return [*at, *flow.flat], [*kept, *stacked]

    # What the forward pass stored is written over.
    buffers = [*(x.clone() for x in kept), *stacked]
    carries = [*descent.start, *flow.flat]
    carries, buffers = run(lambda c, *_: c[1] > 0, one_round, carries, buffers, [*tables, *given.flat])
    flow = Flow(*cut(carries[size:], n))
    return flow.cotangents, buffers[k:], flow.sums
