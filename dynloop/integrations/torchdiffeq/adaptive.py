"""Steps of the length that the tolerances allow: one dynloop.while_loop, whatever is wanted of the solution.

Each turn of the loop tries one step and accepts it or not, by torchdiffeq's rules, which are those of Hairer, Nørsett
and Wanner 1993, section II.4; so steps that are rejected count as steps of the loop. What is wanted of an accepted
step is taken on the way: its values at the times that lie in it, or the step itself. No derivative is taken of a
step's length, nor of whether it was accepted.

What is wanted is carried, but never read by a step, so that no checkpoint holds it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

import dynloop
from dynloop.integrations.torchdiffeq.methods import Field, Pair, Taken, between


class State(NamedTuple):
    """Where the solver stands. length: of the step to try.   wanted: see `Solver.run`."""

    time: Tensor
    value: Tensor
    slope: Tensor
    length: Tensor
    wanted: Any


@dataclass(frozen=True)
class Solver:
    """A method, tolerances, and torchdiffeq's options."""

    pair: Pair
    rtol: Any
    atol: Any
    norm: Callable[[Tensor], Tensor]
    checkpoints: Any
    first_step: Any = None
    min_step: float = 0.0
    max_step: float = float("inf")
    safety: float = 0.9
    ifactor: float = 10.0
    dfactor: float = 0.2
    max_num_steps: int | None = None
    dtype: torch.dtype = torch.float64

    def run(
        self,
        field: Field,
        time: Tensor,
        value: Tensor,
        goes_on: Callable[[State], Tensor],
        first: Callable[[Tensor], Any],
        take: Callable[[Any, Taken, Tensor], Any],
    ) -> State:
        """Steps from `time` while `goes_on` says so, and a step can be taken.

        first(slope): what is wanted before a step.   take(wanted, step, accepts): what is wanted after it.
        """
        slope = field(time.to(value.real.dtype), value)
        length = self.first_length(field, time, value, slope)
        start = State(time, value, slope, length, first(slope))
        return dynloop.while_loop(
            lambda state: goes_on(state) & self.moves(state),
            lambda state: self.attempt(field, state, take),
            start,
            checkpoints=self.checkpoints,
            max_steps=self.max_num_steps,
            on_max_steps="stop",
        )

    def moves(self, state: State) -> Tensor:
        """Whether the next step is one: not too short for the time to change, and finite."""
        return state.time + state.length > state.time

    def attempt(self, field: Field, state: State, take: Callable[[Any, Taken, Tensor], Any]) -> State:
        step = self.pair.step(field, state.time, state.length, state.value, state.slope)
        before, after = step.before.detach(), step.after.detach()
        tolerance = self.atol + self.rtol * torch.maximum(before.abs(), after.abs())
        error = self.norm(step.error.detach() / tolerance).abs().to(state.length.dtype)
        accepts = error <= 1
        if self.min_step:
            accepts = accepts | (state.length <= self.min_step)
        length = self.next_length(state.length, error)
        # A value that is not finite has no step after it.
        length = torch.where(accepts & ~torch.isfinite(error), torch.nan, length)
        choose = lambda new, old: torch.where(accepts, new, old)
        return State(
            choose(step.end, state.time),
            choose(step.after, state.value),
            choose(step.next_slope, state.slope),
            length,
            take(state.wanted, step, accepts),
        )

    def next_length(self, length: Tensor, error: Tensor) -> Tensor:
        # What was accepted is never followed by a shorter one.
        least = torch.where(error < 1, torch.ones_like(error), self.dfactor)
        factor = torch.clamp(torch.maximum(self.safety / error ** (1 / self.pair.order), least), max=self.ifactor)
        return self.clamped(length * factor)

    def clamped(self, length: Tensor) -> Tensor:
        if self.min_step:
            length = torch.where(torch.isfinite(length), length, self.min_step)
        return torch.clamp(length, self.min_step, self.max_step)

    def first_length(self, field: Field, time: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        """Hairer, Nørsett and Wanner 1993, section II.4; one evaluation of the field."""
        if self.first_step is not None:
            return self.clamped(torch.as_tensor(self.first_step, dtype=time.dtype, device=time.device).detach())
        time, value, slope = time.detach(), value.detach(), slope.detach()
        real = value.real.dtype
        scale = self.atol + value.abs() * self.rtol
        of_value, of_slope = self.norm(value / scale).abs(), self.norm(slope / scale).abs()
        is_tiny = (of_value < 1e-5) | (of_slope < 1e-5)
        guess = torch.where(is_tiny, 1e-6, 0.01 * of_value / of_slope)
        ahead = field((time + guess).to(real), value + guess.to(real) * slope).detach()
        bent = self.norm((ahead - slope) / scale).abs() / guess
        is_flat = (of_slope <= 1e-15) & (bent <= 1e-15)
        longer = (0.01 / torch.maximum(of_slope, bent)) ** (1 / self.pair.order)
        longer = torch.where(is_flat, torch.clamp(guess * 1e-3, min=1e-6), longer)
        return self.clamped(torch.minimum(100 * guess, longer).to(time.dtype))


def at_times(solver: Solver, field: Field, times: Tensor, value: Tensor) -> tuple[Tensor, State]:
    """The values at all times, the first of which is the start: [times, *state]; and where the solver stopped."""
    times = times.to(solver.dtype)
    wanted, end = times[1:], times[-1].detach()

    def take(rows: Tensor, step: Taken, accepts: Tensor) -> Tensor:
        is_here = (wanted > step.start) & (wanted <= step.end) & accepts
        return torch.where(is_here.reshape(-1, *(1,) * value.dim()), between(step, wanted), rows)

    blank = lambda slope: torch.zeros((wanted.shape[0], *value.shape), dtype=value.dtype, device=value.device)
    last = solver.run(field, times[0], value, lambda state: state.time < end, blank, take)
    return torch.cat([value[None], last.wanted]), last


def at_event(
    solver: Solver, field: Field, start: Tensor, value: Tensor, event: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor, State]:
    """When the least of an event's functions changes its sign, the value there, and where the solver stopped.

    The time is found by halving the step in which it lies, and has no derivative.
    """
    start, real = start.to(solver.dtype), value.real.dtype
    signs = torch.sign(event(start.to(real), value).detach())
    height = lambda time, value: torch.min(event(time.to(real), value).detach() * signs)
    before = torch.sign(height(start, value))

    def take(last: Taken, step: Taken, accepts: Tensor) -> Taken:
        return Taken(*(torch.where(accepts, new, old) for new, old in zip(step, last, strict=True)))

    def first(slope: Tensor) -> Taken:
        zero, nothing = torch.zeros_like(start), torch.zeros_like(value)
        # A step of no use, but of some length.
        return Taken(start, start + 1, zero, value, value, nothing, nothing, nothing, value)

    goes_on = lambda state: (torch.sign(height(state.time, state.value)) == before) & (before != 0)
    last = solver.run(field, start, value, goes_on, first, take)
    step: Taken = Taken(*last.wanted)

    def halve(_: Tensor, bracket: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        low, high = bracket
        middle = (low + high) / 2
        is_before = torch.sign(height(middle, between(step, middle).detach())) == before
        return torch.where(is_before, middle, low), torch.where(is_before, high, middle)

    low, high = step.start.detach(), step.end.detach()
    halvings = torch.ceil(torch.log2(torch.clamp((high - low) / torch.as_tensor(solver.atol).min(), min=1)))
    low, high = dynloop.fori_loop(0, halvings.to(torch.int64), halve, (low, high), checkpoints=0)
    time = torch.where(last.time > start, (low + high) / 2, start).detach()
    return time, between(step, time), last
