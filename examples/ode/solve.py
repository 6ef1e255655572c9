"""A solver of initial value problems: one dynloop.while_loop to the end, or a dynloop.scan over times to be saved.

Nobody knows how many steps it takes; the loop asks the solution itself. What is saved between two steps is read off
the method's dense output, so the times that are wanted change no step. Where the solver cannot go on, it says why:
`Solution.status` is one of the numbers of `Status`, and printing a solution tells it in words.

Derivatives are those of the steps that were taken, their lengths included, to any order and in both modes.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

import dynloop

from .control import PI, Control, first_step, size
from .guard import guarded
from .methods import Array, Field, Method, Tsit5


class Status(IntEnum):
    """Why a solve ended."""

    RUNNING = 0
    DONE = 1
    EVENT = 2
    MAX_STEPS = 3
    STEP_UNDERFLOW = 4
    NOT_FINITE = 5
    UNORDERED = 6


REASONS = {
    Status.DONE: "reached the end",
    Status.EVENT: "stopped at the event",
    Status.MAX_STEPS: (
        "max_steps attempts did not reach the end: raise max_steps, loosen the tolerances, or, if the problem is "
        "stiff and the method explicit, take Rodas4"
    ),
    Status.STEP_UNDERFLOW: (
        "no step is short enough for the tolerances: the solution may end here, or the tolerances are too tight"
    ),
    Status.NOT_FINITE: "the field is NaN or infinite at the last value: it may have left where the field is defined",
    Status.UNORDERED: "times must ascend, or descend to solve backwards, without repeating one",
}


class State(NamedTuple):
    """What goes from step to step. `kept` belongs to the last accepted step, from `old_time` to `time`."""

    time: Array
    value: Array  # [n]
    slope: Array  # [n]
    step: Array  # the length to try, with its sign
    errors: tuple[Array, Array]  # of the two steps accepted last
    after_rejection: Array
    old_time: Array
    old_value: Array  # [n]
    kept: tuple[Array, ...]
    sign: Array  # of the event's function at `time`
    status: Array
    accepted: Array
    rejected: Array


class Solution(NamedTuple):
    """Where a solve ended. `status` is a number of `Status`; the counts are of steps and of the field's evaluations."""

    time: Array
    value: Array  # [n], at `time`
    saved: Array | None  # [times, n], NaN where the solve did not arrive
    status: Array
    accepted: Array
    rejected: Array
    evaluations: Array

    def __str__(self) -> str:
        counts = f"{self.accepted.item()} steps, {self.rejected.item()} rejected, {self.evaluations.item()} evaluations"
        return f"t = {self.time.item():g}: {REASONS[Status(self.status.item())]} ({counts})"


@dataclass(frozen=True)
class Solver:
    """How to solve: a method, tolerances and a control, for the arrays of one library.

    `xp` is the library's namespace, `jax.numpy` or `torch`; `jacfwd` is `jax.jacfwd` or `torch.func.jacfwd`, which an
    implicit method needs. An error is measured in units of `atol + rtol * |value|`. `checkpoints` is the number of
    states that a gradient keeps, as in `dynloop.while_loop`; `max_steps` bounds the attempts, rejected ones included.
    """

    xp: Any
    method: Method = Tsit5
    rtol: float = 1e-6
    atol: float = 1e-9
    control: Control = PI
    max_steps: int = 100_000
    checkpoints: Any = "auto"
    jacfwd: Any = None

    def __post_init__(self) -> None:
        for name in ("rtol", "atol"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive; got {getattr(self, name)}. An error of zero is never met.")
        if self.max_steps < 1:
            raise ValueError(f"max_steps must be at least 1; got {self.max_steps}")


def solve(solver: Solver, field: Field, times: Any, start: Array, *, event: Any = None, save: bool = False) -> Solution:
    """Solve d value / d time = field(time, value) from `times[0]` on.

    `times` are numbers, or arrays of `solver.xp` that a gradient may go through, ascending, or descending to solve
    backwards; the last one is the end. Those that no Python can see, inside of a jit, are checked by the program: the
    status is UNORDERED. `start` is [n], the value at the first one, in a floating dtype of `solver.xp`.
    With `save`, `saved` has the values at all of `times`. `event(time, value)` is a number; where it changes its sign
    the solve ends, `time` and `value` being those of the change, and what would be saved behind it is NaN; without a
    change the status is DONE. An event is not looked for between two ends of one step that have the same sign.
    """
    xp = solver.xp
    check_start(solver, start)
    clock = clock_of(xp, times, start.dtype)
    check_times(xp, times)
    state = begin(solver, field, clock, start, event)
    saved = None
    if save:

        def to_the_next(state: State, time: Array) -> tuple[State, Array]:
            state = advance(solver, field, state, time, clock[-1], event)
            return state, at(solver, state, time)

        state, saved = dynloop.scan(to_the_next, state, clock, checkpoints=solver.checkpoints)
    else:
        state = advance(solver, field, state, clock[-1], clock[-1], event)
    time, value = state.time, state.value
    if event is not None:
        time, value = at_the_change(solver, state, event)
        if saved is not None:
            saved = xp.where(((clock - time) * xp.sign(state.step) <= 0)[:, None], saved, xp.nan)
    running = state.status == int(Status.RUNNING)
    # One evaluation at the start, one to find the first step.
    evaluations = 2 + solver.method.evaluations * (state.accepted + state.rejected)
    status = status_where(xp, running, Status.MAX_STEPS, state.status)
    return Solution(time, value, saved, status, state.accepted, state.rejected, evaluations)


def clock_of(xp: Any, times: Any, dtype: Any) -> Array:
    """The times as one array; a row of Python's with arrays in it keeps their derivatives."""
    if isinstance(times, list | tuple):
        of_library = lambda time: xp.asarray(float(time), dtype=dtype) if isinstance(time, int | float) else time
        clock = xp.stack([of_library(time) for time in times])
    else:
        clock = xp.asarray(times, dtype=dtype) if isinstance(times, np.ndarray) else times
    if clock.ndim != 1 or clock.shape[0] < 2:
        raise ValueError(f"times must be the start and the end at least, in one row; got shape {tuple(clock.shape)}")
    if clock.dtype != dtype:
        raise ValueError(f"times that are arrays must have the dtype of start, {dtype}; got {clock.dtype}")
    return clock


def check_times(xp: Any, times: Any) -> None:
    # PyTorch warns of a number that is read off a tensor with a gradient.
    plain = lambda time: time.detach() if xp.__name__ == "torch" and isinstance(time, xp.Tensor) else time
    try:
        seen = np.array([float(plain(time)) for time in times])
    except (TypeError, RuntimeError):
        # Inside of a transformation a time has no value yet; `begin` tells a wrong one by the status.
        return
    if not np.all(np.isfinite(seen)):
        raise ValueError(f"times must be finite; got {seen}")
    apart = np.diff(seen)
    if not (np.all(apart > 0) or np.all(apart < 0)):
        raise ValueError(f"times must ascend, or descend to solve backwards, without repeating one; got {seen}")


def check_start(solver: Solver, start: Array) -> None:
    if start.ndim != 1 or "float" not in str(start.dtype):
        raise ValueError(f"start must be one row of floats; got shape {tuple(start.shape)} of {start.dtype}")
    least = 10 * float(solver.xp.finfo(start.dtype).eps)
    if solver.rtol < least:
        raise ValueError(f"rtol={solver.rtol:g} is below what {start.dtype} can tell apart; give at least {least:.1g}")


def begin(solver: Solver, field: Field, clock: Array, start: Array, event: Any) -> State:
    xp = solver.xp
    time, span = clock[0], clock[-1] - clock[0]
    slope = field(time, start)
    if slope.shape != start.shape or slope.dtype != start.dtype:
        given = f"{tuple(slope.shape)} of {slope.dtype}"
        raise ValueError(f"field must return what start is, {tuple(start.shape)} of {start.dtype}; got {given}")
    step = first_step(field, time, start, slope, span, solver.method.order, solver.rtol, solver.atol, xp)
    count, one = xp.asarray(0, dtype=xp.int32), xp.ones_like(time)
    fine = xp.all(xp.isfinite(slope)) & xp.all(xp.isfinite(start))
    # A time that is no number is in no order either.
    ordered = xp.all((clock[1:] - clock[:-1]) * xp.sign(span) > 0) & xp.isfinite(span)
    return State(
        time=time,
        value=start,
        slope=slope,
        step=step,
        errors=(one, one),
        after_rejection=xp.asarray(False),
        old_time=time,
        old_value=start,
        kept=(slope,) * solver.method.kept,
        sign=xp.zeros_like(time) if event is None else xp.sign(event(time, start)),
        status=status_where(xp, ordered, status_where(xp, fine, Status.RUNNING, Status.NOT_FINITE), Status.UNORDERED),
        accepted=count,
        rejected=count,
    )


def status_where(xp: Any, predicate: Array, yes: Any, no: Any) -> Array:
    yes, no = (xp.asarray(int(x), dtype=xp.int32) if isinstance(x, Status) else x for x in (yes, no))
    return xp.where(predicate, yes, no)


def advance(solver: Solver, field: Field, state: State, time: Array, end: Array, event: Any) -> State:
    """Step until `time` is reached or passed; `end` alone is met exactly."""
    xp, method = solver.xp, solver.method
    eps = float(xp.finfo(state.value.dtype).eps)

    def is_under_way(state: State) -> Array:
        ahead = (time - state.time) * xp.sign(state.step) > 0
        return ahead & (state.status == int(Status.RUNNING)) & (state.accepted + state.rejected < solver.max_steps)

    def body(state: State) -> State:
        left = end - state.time
        arrives = xp.abs(state.step) >= xp.abs(left)
        step = xp.where(arrives, left, state.step)
        attempt = lambda at, value, slope, step: method.attempt(field, at, value, slope, step, xp, solver.jacfwd)
        trial, fine = guarded(attempt, xp, state.time, state.value, state.slope, step)
        # The end of a step must be a place to go on from. If it is none, what follows is reckoned with numbers, since
        # what is selected away must have a derivative all the same.
        reached = xp.where(fine, trial.value, state.value)
        scale = solver.atol + solver.rtol * xp.maximum(xp.abs(state.value), xp.abs(reached))
        error = xp.where(fine, size(xp.where(fine, trial.error, 0.0), scale, xp), xp.inf)
        accept = error <= 1

        longer = solver.control.accepted((error, *state.errors), method.order, state.after_rejection, xp)
        proposed = step * xp.where(accept, longer, solver.control.rejected(error, method.order, xp))
        to = xp.where(arrives, end, state.time + step)
        sign = state.sign if event is None else xp.sign(event(to, reached))
        changes = accept & (sign * state.sign < 0)
        too_short = xp.abs(proposed) <= 10 * eps * xp.maximum(xp.abs(state.time), eps * xp.abs(left))

        status = status_where(xp, accept & arrives, Status.DONE, state.status)
        status = status_where(xp, changes, Status.EVENT, status)
        why = status_where(xp, xp.isfinite(error), Status.STEP_UNDERFLOW, Status.NOT_FINITE)
        status = xp.where(too_short & ~accept, why, status)
        keep = lambda new, old: xp.where(accept, new, old)
        return State(
            time=keep(to, state.time),
            value=keep(trial.value, state.value),
            slope=keep(trial.slope, state.slope),
            step=proposed,
            errors=(keep(error, state.errors[0]), keep(state.errors[0], state.errors[1])),
            after_rejection=~accept,
            old_time=keep(state.time, state.old_time),
            old_value=keep(state.value, state.old_value),
            kept=tuple(keep(new, old) for new, old in zip(trial.stages, state.kept, strict=True)),
            # A value that is exactly on the event counts for the side it came from.
            sign=keep(xp.where(sign == 0, state.sign, sign), state.sign),
            status=status,
            accepted=state.accepted + accept,
            rejected=state.rejected + ~accept,
        )

    return dynloop.while_loop(is_under_way, body, state, checkpoints=solver.checkpoints)


def at(solver: Solver, state: State, time: Array) -> Array:
    """The value at a time within the last step; NaN if the solve ended before it."""
    xp = solver.xp
    step = state.time - state.old_time
    still = step == 0
    part = xp.where(still, 0.0, (time - state.old_time) / xp.where(still, 1.0, step))
    value = solver.method.between(part, step, state.old_value, state.value, state.kept)
    return xp.where((time - state.time) * xp.sign(state.step) <= 0, value, xp.nan)


HALVINGS = 24


def at_the_change(solver: Solver, state: State, event: Any) -> tuple[Array, Array]:
    """Time and value where the event's function is zero in the last step; the last ones if it did not change its sign.

    Halving finds where the zero is, and has no derivative; the secant through what is left has the zero's own.
    """
    xp = solver.xp
    step = state.time - state.old_time
    value = lambda part: solver.method.between(part, step, state.old_value, state.value, state.kept)
    seen = lambda part: event(state.old_time + part * step, value(part))
    before = xp.sign(seen(xp.zeros_like(step)))

    def halve(i: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        is_before = xp.sign(seen(middle)) == before
        return xp.where(is_before, middle, low), xp.where(is_before, high, middle)

    bracket = (xp.zeros_like(step), xp.ones_like(step))
    low, high = dynloop.fori_loop(0, HALVINGS, halve, bracket, checkpoints=solver.checkpoints)
    at_low, at_high = seen(low), seen(high)
    flat = at_low == at_high
    part = low - at_low * (high - low) / xp.where(flat, 1.0, at_high - at_low)
    changed = state.status == int(Status.EVENT)
    time = xp.where(changed, state.old_time + part * step, state.time)
    return time, xp.where(changed, value(part), state.value)
