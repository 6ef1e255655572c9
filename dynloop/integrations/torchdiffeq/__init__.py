"""torchdiffeq's `odeint` by dynloop's loops: compiled as one program, its gradient in the memory that you choose.

The same signature, the same methods and the same control of the step as torchdiffeq 0.2.5, so the same steps but for
rounding. torchdiffeq unrolls a solve, and keeps every step for the gradient; or solves an equation backward for it,
whose solution is another one than the gradient of what was computed. Here the gradient is that of the steps that were
taken, by binomial checkpointing, outside of `torch.compile` and inside, where the whole solve is one loop.

Nothing of torchdiffeq is imported.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dynloop.checkpoints import Checkpoints
from dynloop.integrations.torchdiffeq import adaptive, arguments
from dynloop.integrations.torchdiffeq.adaptive import Solver
from dynloop.integrations.torchdiffeq.arguments import SolveError
from dynloop.integrations.torchdiffeq.fixed import Stepper
from dynloop.integrations.torchdiffeq.methods import ADAPTIVE, FIXED

__all__ = ["SolveError", "odeint"]


def odeint(
    func: Callable[[Any, Any], Any],
    y0: Any,
    t: Tensor,
    *,
    rtol: Any = 1e-7,
    atol: Any = 1e-9,
    method: str | None = None,
    options: dict[str, Any] | None = None,
    event_fn: Callable[[Any, Any], Tensor] | None = None,
    checkpoints: Checkpoints = "auto",
) -> Any:
    """Solve `dy/dt = func(t, y)`, `y(t[0]) = y0`, and return y at the times `t`.

    Args:
        func: maps a time, a scalar tensor, and the value y to its slope, of the structure of y. What it closes over
            is differentiated, and so are the parameters of a module.
        y0: a tensor of any shape, floating or complex, or a tuple of them.
        t: [times], floating, strictly increasing or strictly decreasing. It may ask for a gradient.
        rtol, atol: positive; a step's error is measured in units of `atol + rtol * max(|y| at its two ends)`.
            Where y0 is a tuple, each may be a tuple of as many. The defaults are torchdiffeq's.
        method: adaptive: `"dopri5"` (None is the same), `"bosh3"`, `"fehlberg2"`, `"adaptive_heun"`;
            with steps from one of the times to the next: `"euler"`, `"midpoint"`, `"heun2"`, `"heun3"`, `"rk4"`.
        options: torchdiffeq's. Of an adaptive method `first_step`, `min_step`, `max_step`, `safety`, `ifactor`,
            `dfactor`, `dtype`, `norm` and `max_num_steps`, the most attempts in the whole solve, which has no bound by
            default; of the others `step_size`, `grid_constructor` and `interp`.
        event_fn: maps (t, y) to one number or several. The solve goes on until one of them changes its sign, and `t`
            has two times, whose second one says the direction only. For adaptive methods.
        checkpoints: how many states a gradient keeps, as in `dynloop.while_loop`; a state is a value, a slope and two
            scalars. `"all"` wants a `max_num_steps`.

    Returns:
        [times, *y0.shape], the first row of which is y0; a tuple of them where y0 is one. With `event_fn` the time of
        the event, which has no gradient, and the values at the start and there; `torchdiffeq.odeint_event` with
        `odeint_interface=odeint` gives the time its gradient.

    Raises:
        ArgumentError, ArgumentTypeError: an argument is none that it can be.
        SolveError: no step is short enough for the tolerances, the field is NaN or infinite, or `max_num_steps`
            attempts did not reach the end. In a compiled program a RuntimeError that says the same.

    Cost:
        That of `dynloop.while_loop` for as many steps as are tried, of six evaluations for dopri5; besides, each step
        looks at every time, so that hundreds of times are better asked for by several solves.

    No derivative is taken of the lengths of the steps. The time of a step is kept in `options["dtype"]`, float64.

    >>> import torch
    >>> from dynloop.integrations.torchdiffeq import odeint
    >>> rate = torch.tensor(0.5, requires_grad=True)
    >>> y = odeint(lambda t, y: -rate * y, torch.ones(1), torch.tensor([0.0, 1.0, 2.0]), checkpoints=8)
    >>> y[-1].sum().backward()
    >>> print(*(f"{x.item():.4f}" for x in (*y, rate.grad)))
    1.0000 0.6065 0.3679 -0.7358
    """
    name = "dopri5" if method is None else method
    given = arguments.checked(func, y0, t, rtol, atol, name, dict(options or {}), event_fn)
    if name in FIXED:
        values = Stepper(FIXED[name], checkpoints, **given.options).at_times(given.field, given.times, given.value)
        return given.as_given(values)
    solver = Solver(ADAPTIVE[name], given.rtol, given.atol, checkpoints=checkpoints, **given.options)
    if event_fn is None:
        values, last = adaptive.at_times(solver, given.field, given.times, given.value)
        is_there = last.time >= given.times[-1]
        return given.as_given(arguments.unless_stuck(values, is_there, solver, last))
    assert given.event is not None
    time, value, last = adaptive.at_event(solver, given.field, given.times[0], given.value, given.event)
    is_there = arguments.is_over(solver, last, given)
    value = arguments.unless_stuck(value, is_there, solver, last)
    return (time * given.sign).to(t.dtype), given.as_given(torch.stack([given.value, value]))
