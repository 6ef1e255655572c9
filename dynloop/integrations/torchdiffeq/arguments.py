"""What `odeint` is given, checked, and made one kind of problem: one tensor, and times that increase."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dynloop.errors import ArgumentError, ArgumentTypeError, DynloopError, described
from dynloop.integrations.torchdiffeq.adaptive import Solver, State
from dynloop.integrations.torchdiffeq.methods import ADAPTIVE, FIXED, Field
from dynloop.on_torch.engine import is_at_hand

OF_ADAPTIVE = (
    "first_step",
    "min_step",
    "max_step",
    "safety",
    "ifactor",
    "dfactor",
    "max_num_steps",
    "dtype",
    "norm",
)
OF_FIXED = ("step_size", "grid_constructor", "interp")
CALLBACKS = ("callback_step", "callback_accept_step", "callback_reject_step")

STUCK = (
    "odeint: the solve did not reach its end. Either no step is short enough for the tolerances (the solution may end "
    "here, or they are too tight, or the problem is stiff), or func is NaN or infinite, or max_num_steps is too small"
)


class SolveError(DynloopError, ArithmeticError):
    """A solve cannot go on; the message says why, and where.

    >>> import torch
    >>> from dynloop.integrations.torchdiffeq import SolveError, odeint
    >>> try:
    ...     odeint(lambda t, y: y**2, torch.ones(1), torch.tensor([0.0, 2.0]))
    ... except SolveError as error:
    ...     print(str(error).partition(" at ")[0])
    odeint: no step is short enough for the tolerances
    """


class Problem(NamedTuple):
    """sign: 1, or -1 where the given times decrease; times: those, times the sign.   shapes: of a tuple's parts."""

    field: Field
    value: Tensor
    times: Tensor
    sign: Tensor
    rtol: Any
    atol: Any
    options: dict[str, Any]
    event: Callable[[Tensor, Tensor], Tensor] | None
    shapes: tuple[Any, ...] | None

    def as_given(self, values: Tensor) -> Any:
        """Stacked values as the user's structure."""
        return values if self.shapes is None else parts(values, self.shapes)


def parts(flat: Tensor, shapes: Sequence[Any]) -> tuple[Tensor, ...]:
    """The parts of a tuple, from its values one after the other along the last axis."""
    several = torch.split(flat, [shape.numel() for shape in shapes], -1)
    return tuple(x.reshape(*flat.shape[:-1], *shape) for x, shape in zip(several, shapes, strict=True))


def checked(
    func: Any, y0: Any, t: Any, rtol: Any, atol: Any, method: str, options: dict[str, Any], event_fn: Any
) -> Problem:
    known = check_method(method, options)
    for label, function in (("func", func), ("event_fn", event_fn)):
        if not callable(function) and (label == "func" or function is not None):
            raise ArgumentTypeError(f"odeint: {label} must be a function of (t, y); got {described(function)}")
    for name in CALLBACKS:
        if hasattr(func, name):
            raise ArgumentError(f"odeint: func has a {name}, and callbacks are not offered; record in t and y instead")
    check_value(y0)
    check_times(t)
    if event_fn is not None and (method in FIXED or t.shape[0] != 2):
        raise ArgumentError(
            f'odeint: event_fn is offered for an adaptive method and two times; got method="{method}" and '
            f"{t.shape[0]} times, of which the second one says the direction only"
        )
    shapes = None if isinstance(y0, Tensor) else tuple(x.shape for x in y0)
    value = y0 if isinstance(y0, Tensor) else torch.cat([x.reshape(-1) for x in y0])
    rtol, atol = (tolerance(label, x, shapes, value) for label, x in (("rtol", rtol), ("atol", atol)))
    t = t.to(value.device)
    sign = torch.where(t[-1].detach() < t[0].detach(), -1.0, 1.0).to(t.dtype)
    function = func if shapes is None else of_parts(func, shapes)
    real = value.real.dtype

    def field(time: Tensor, value: Tensor) -> Tensor:
        return function(time * sign.to(real), value) * sign.to(real)

    event = None
    if event_fn is not None:
        on_value = event_fn if shapes is None else lambda time, flat: event_fn(time, parts(flat, shapes))
        event = lambda time, value: on_value(time * sign.to(real), value)
    if "grid_constructor" in options:
        construct = options["grid_constructor"]
        options["grid_constructor"] = lambda _, value, times: construct(func, value, times * sign) * sign
    if known is OF_ADAPTIVE:
        options["norm"] = norm_of(options.get("norm"), shapes)
        options["dtype"] = torch.promote_types(options.get("dtype", torch.float64), real)
    return Problem(field, value, t * sign, sign, rtol, atol, options, event, shapes)


def of_parts(func: Any, shapes: Sequence[Any]) -> Any:
    return lambda time, flat: torch.cat([x.reshape(-1) for x in func(time, parts(flat, shapes))])


def check_method(method: Any, options: dict[str, Any]) -> tuple[str, ...]:
    """The options that the method has, having refused others."""
    if method not in ADAPTIVE and method not in FIXED:
        raise ArgumentError(
            f"odeint: method={method!r} is not offered; give one of {', '.join((*ADAPTIVE, *FIXED))}, or solve by "
            "torchdiffeq itself"
        )
    known = OF_ADAPTIVE if method in ADAPTIVE else OF_FIXED
    for name in ("perturb", "norm") if known is OF_FIXED else ():
        # torchdiffeq's defaults, which a fixed method has no use for.
        if not options.get(name) or name == "norm":
            options.pop(name, None)
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ArgumentError(f'odeint: method="{method}" has no option {unknown[0]}; it has {", ".join(known)}')
    if options.get("step_size") is not None and options.get("grid_constructor") is not None:
        raise ArgumentError("odeint: give step_size or grid_constructor, not both of them")
    if options.get("interp", "linear") not in ("linear", "cubic"):
        raise ArgumentError(f'odeint: interp={options["interp"]!r} is unknown; give "linear" or "cubic"')
    for name in ("step_size", "first_step", "max_step", "safety", "ifactor", "dfactor"):
        x = options.get(name)
        if isinstance(x, int | float) and not x > 0:
            raise ArgumentError(f"odeint: {name} must be positive; got {x}")
    return known


def check_value(y0: Any) -> None:
    several = y0 if isinstance(y0, tuple) else (y0,)
    for x in several:
        if not isinstance(x, Tensor) or not (x.dtype.is_floating_point or x.dtype.is_complex):
            given = str(x.dtype) if isinstance(x, Tensor) else described(x)
            raise ArgumentTypeError(f"odeint: y0 must be a floating tensor or a tuple of them; got {given}")
    if not several:
        raise ArgumentError("odeint: y0 is an empty tuple; give at least one tensor")


def check_times(t: Any) -> None:
    if not isinstance(t, Tensor) or not t.dtype.is_floating_point:
        given = str(t.dtype) if isinstance(t, Tensor) else described(t)
        raise ArgumentTypeError(f"odeint: t must be a floating tensor of times; got {given}")
    if t.dim() != 1 or t.shape[0] < 2:
        raise ArgumentError(f"odeint: t must be of one axis with two times or more; got the shape {tuple(t.shape)}")
    forward = t.detach().diff() > 0
    backward = t.detach().diff() < 0
    refuse_unless(
        forward.all() | backward.all(),
        lambda: ArgumentError(f"odeint: t must increase or decrease strictly; got {t.tolist()}"),
        "odeint: t must increase or decrease strictly",
    )


def tolerance(label: str, given: Any, shapes: Any, value: Tensor) -> Any:
    """One number, or one for each entry of the value."""
    if isinstance(given, tuple | list):
        if shapes is None or len(given) != len(shapes):
            raise ArgumentError(f"odeint: {label} is a tuple of {len(given)}, so y0 must be one of as many tensors")
        several = (tolerance(label, x, None, value) for x in given)
        rows = (torch.as_tensor(x, dtype=value.real.dtype, device=value.device) for x in several)
        return torch.cat([x.expand(shape).reshape(-1) for x, shape in zip(rows, shapes, strict=True)])
    if isinstance(given, Tensor):
        if given.requires_grad:
            raise ArgumentError(f"odeint: {label} has no gradient; give {label}.detach()")
        error = lambda: ArgumentError(f"odeint: {label} must be positive; got {given}")
        refuse_unless((given > 0).all(), error, f"odeint: {label} must be positive")
        return given
    if not isinstance(given, int | float) or not given > 0:
        raise ArgumentError(f"odeint: {label} must be a positive number; got {described(given)}")
    return given


def norm_of(given: Any, shapes: Any) -> Callable[[Tensor], Tensor]:
    """The user's norm, or the root of the mean square, the greatest one of a tuple's parts."""
    if shapes is None:
        return root_mean_square if given is None else given
    if given is not None:
        return lambda x: torch.as_tensor(given(parts(x, shapes)), device=x.device)
    return lambda x: torch.stack([root_mean_square(part) for part in parts(x, shapes)]).amax()


def root_mean_square(x: Tensor) -> Tensor:
    return x.abs().square().mean().sqrt()


def refuse_unless(holds: Tensor, error: Callable[[], Exception], message: str) -> None:
    """Raise, or have a compiled program raise; nothing where a transformation holds the value back."""
    if torch.compiler.is_compiling():
        torch._assert_async(holds, message)  # pyright: ignore[reportPrivateImportUsage]
    elif is_at_hand(holds) and not holds:
        raise error()


def is_over(solver: Solver, last: State, given: Problem) -> Tensor:
    """Whether the event came, rather than that no step was left."""
    assert given.event is not None
    real = given.value.real.dtype
    signs = torch.sign(given.event(given.times[0].to(real), given.value))
    before = torch.sign(torch.min(given.event(given.times[0].to(real), given.value) * signs))
    after = torch.sign(torch.min(given.event(last.time.to(real), last.value) * signs))
    return (before != after) | (before == 0)


def unless_stuck(values: Tensor, is_there: Tensor, solver: Solver, last: State) -> Tensor:
    """The values, unless the solver stopped before the end: then it says why."""
    is_there = is_there.detach() & torch.isfinite(last.length.detach())
    refuse_unless(is_there, lambda: SolveError(reason(solver, last)), STUCK)
    if torch.compiler.is_compiling() or is_at_hand(is_there):
        return values
    return torch.where(is_there, values, torch.nan)


def reason(solver: Solver, last: State) -> str:
    time, length = last.time.item(), last.length.item()
    if not torch.isfinite(last.value).all() or not torch.isfinite(last.slope).all() or length != length:
        return (
            f"odeint: func is NaN or infinite near t = {time:g} (of decreasing times, minus the time): the solution "
            "may have left where func is defined"
        )
    if not time + length > time:
        return (
            f"odeint: no step is short enough for the tolerances at t = {time:g} (of decreasing times, minus the "
            "time): the solution may end there, the tolerances be too tight, or the problem stiff"
        )
    return (
        f"odeint: max_num_steps={solver.max_num_steps} attempts came to t = {time:g} and not to the end: raise it, or "
        "loosen rtol and atol; a stiff problem wants another solver"
    )
