"""Steps whose lengths are told: from one of the times to the next, or on a finer grid with values read off between.

How many steps there are is known when the loop starts, so a gradient costs the least evaluations possible.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import dynloop
from dynloop.integrations.torchdiffeq.methods import Field


@dataclass(frozen=True)
class Stepper:
    """A method, and torchdiffeq's options. advance: maps (field, t0, t1, y, slope at t0) to the value at t1."""

    advance: Any
    checkpoints: Any
    step_size: Any = None
    grid_constructor: Any = None
    interp: str = "linear"

    def step(self, field: Field, t0: Tensor, t1: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The value at t1, and the slope at t0."""
        slope = field(t0, value)
        return self.advance(field, t0, t1, value, slope), slope

    def at_times(self, field: Field, times: Tensor, value: Tensor) -> Tensor:
        """The values at all times, the first of which is the start: [times, *state]."""
        times = times.to(value.real.dtype)
        if self.grid_constructor is not None:
            grid = self.grid_constructor(field, value, times).to(times.dtype)
            return self.on_grid(field, times, value, grid.shape[0] - 1, lambda i: (grid[i], grid[i + 1]))
        if self.step_size is not None:
            return self.of_one_size(field, times, value)

        def one(value: Tensor, row: Any) -> Any:
            start, stop = row
            value = self.step(field, start, stop, value)[0]
            return value, value

        _, rows = dynloop.scan(one, value, (times[:-1], times[1:]), checkpoints=self.checkpoints)
        return torch.cat([value[None], rows])

    def of_one_size(self, field: Field, times: Tensor, value: Tensor) -> Tensor:
        first, last, size = times[0], times[-1], self.step_size
        steps = torch.ceil((last - first).detach() / size + 1).to(torch.int64) - 1

        def interval(i: Tensor) -> tuple[Tensor, Tensor]:
            t0, t1 = (j.to(times.dtype) * size + first for j in (i, i + 1))
            # The last step ends where it is wanted.
            return t0, torch.where(i + 1 == steps, last, t1)

        return self.on_grid(field, times, value, steps, interval)

    def on_grid(self, field: Field, times: Tensor, value: Tensor, steps: Any, interval: Any) -> Tensor:
        wanted = times[1:]
        column = (-1, *(1,) * value.dim())
        blank = torch.zeros((wanted.shape[0], *value.shape), dtype=value.dtype, device=value.device)

        def one(i: Tensor, carry: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            before, rows = carry
            t0, t1 = interval(i)
            after, slope = self.step(field, t0, t1, before)
            x = ((wanted - t0) / (t1 - t0)).clamp(0, 1).reshape(column)
            inside = before + x * (after - before)
            if self.interp == "cubic":
                h, next_slope = t1 - t0, field(t1, after)
                at_ends = (1 - x) ** 2 * (1 + 2 * x) * before + x**2 * (3 - 2 * x) * after
                inside = at_ends + x * (1 - x) * h * ((1 - x) * slope - x * next_slope)
            is_here = ((wanted > t0) & (wanted <= t1)).reshape(column)
            return after, torch.where(is_here, inside, rows)

        _, rows = dynloop.fori_loop(0, steps, one, (value, blank), checkpoints=self.checkpoints)
        return torch.cat([value[None], rows])
