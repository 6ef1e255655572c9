"""`dynloop.integrations.torchdiffeq.odeint` takes torchdiffeq's steps, and has the gradients that autograd finds there.

The oracle is torchdiffeq, unrolled; the first step's length, through which torchdiffeq differentiates, is given where
gradients are compared.
"""

from typing import Any

import pytest
import torch
import torchdiffeq
from torch import Tensor

import dynloop
from dynloop.integrations.torchdiffeq import SolveError, odeint
from tests.on_torch import compiled as c

ADAPTIVE = ("dopri5", "bosh3", "fehlberg2", "adaptive_heun")
FIXED = ("euler", "midpoint", "heun2", "heun3", "rk4")
STARTED = {"first_step": 0.02}


class Field(torch.nn.Module):
    """A small neural field, which counts its evaluations."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (torch.nn.Parameter(c.weights(3, 3).detach() * k) for k in (1.5, -1.0))
        self.evaluations = 0

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            self.evaluations += 1
        return torch.tanh(y @ self.first) @ self.second * torch.cos(3 * t)


def times(first: float, last: float, number: int) -> Tensor:
    return torch.linspace(first, last, number, dtype=torch.float64).requires_grad_()


def value_and_gradients(solve: Any, field: Any, y0: Any, t: Tensor, **rest: Any) -> list[Tensor]:
    y = solve(field, y0, t, **rest)
    several = (y0,) if isinstance(y0, Tensor) else y0
    flat = y.reshape(-1) if isinstance(y, Tensor) else torch.cat([part.reshape(-1) for part in y])
    return [flat, *c.gradients(flat, *several, t, *field.parameters())]


def assert_same(ours: list[Tensor], theirs: list[Tensor], rtol: float = 1e-10) -> None:
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("t", [(0.0, 1.5, 5), (1.0, -0.5, 2)], ids=["forward", "backward"])
@pytest.mark.parametrize("method", ADAPTIVE)
def test_steps_and_gradients_of_adaptive_methods_are_those_of_torchdiffeq(method: str, t: Any) -> None:
    given: Any = {"rtol": 1e-3, "atol": 1e-4, "method": method, "options": STARTED}
    found, counts = [], []
    for solve in (odeint, torchdiffeq.odeint):
        field = Field()
        extra: Any = {"checkpoints": 0} if solve is odeint else {}
        with torch.no_grad():
            solve(field, c.start(4, 3), times(*t), **given, **extra)
        counts.append(field.evaluations)
        found.append(value_and_gradients(solve, field, c.start(4, 3), times(*t), **given))
    assert_same(found[0], found[1])
    assert counts[0] == counts[1]


@pytest.mark.parametrize("options", [{}, {"step_size": 0.07}, {"step_size": 0.3, "interp": "cubic"}], ids=str)
@pytest.mark.parametrize("method", FIXED)
def test_values_and_gradients_of_fixed_methods_are_those_of_torchdiffeq(method: str, options: Any) -> None:
    for t in ((0.0, 1.5, 6), (1.0, -0.5, 3)):
        field, given = Field(), {"method": method, "options": options}
        found = [value_and_gradients(f, field, c.start(4, 3), times(*t), **given) for f in (odeint, torchdiffeq.odeint)]
        assert_same(found[0], found[1])


def test_a_grid_may_be_constructed() -> None:
    finer = lambda func, y, t: torch.cat([torch.stack([t[:-1], (t[:-1] + t[1:]) / 2], 1).reshape(-1), t[-1:]])
    given: Any = {"method": "heun2", "options": {"grid_constructor": finer}}
    field = Field()
    for t in ((0.0, 1.5, 4), (1.0, -0.5, 4)):
        found = [value_and_gradients(f, field, c.start(3), times(*t), **given) for f in (odeint, torchdiffeq.odeint)]
        assert_same(found[0], found[1])


@pytest.mark.parametrize("norm", [None, lambda parts: torch.stack([part.abs().amax() for part in parts]).amax()])
def test_a_tuple_has_the_norm_and_the_tolerances_of_its_parts(norm: Any) -> None:
    class Pair(Field):
        def forward(self, t: Tensor, y: Any) -> Any:
            return super().forward(t, y[0]), y[0].sum() * torch.ones_like(y[1]) * t

    options = STARTED if norm is None else STARTED | {"norm": norm}
    given: Any = {"rtol": (1e-3, 1e-5), "atol": (1e-4, 1e-6), "options": options}
    y0 = c.start(2, 3), c.weights(1, 1)
    found = [value_and_gradients(f, Pair(), y0, times(0, 1, 3), **given) for f in (odeint, torchdiffeq.odeint)]
    assert_same(found[0], found[1])
    shapes = [y.shape for y in odeint(Pair(), y0, times(0, 1, 3), **given)]
    assert shapes == [(3, 2, 3), (3, 1, 1)]


def test_complex_and_single_precision_values_are_those_of_torchdiffeq() -> None:
    t = torch.linspace(0, 2, 4)
    for y0, field in (
        (torch.tensor([1 + 0.5j, -0.3j], dtype=torch.complex128), lambda t, y: 1j * y * (1 + t) - 0.1 * y.abs() * y),
        (torch.tensor([1.0, -0.5]), lambda t, y: torch.stack([y[1], -torch.sin(y[0])])),
        (torch.tensor(0.7), lambda t, y: -y * t),
    ):
        given: Any = {"rtol": 1e-5, "atol": 1e-6}
        ours, theirs = odeint(field, y0, t, **given), torchdiffeq.odeint(field, y0, t, **given)
        assert ours.dtype is y0.dtype
        torch.testing.assert_close(ours, theirs)


def test_an_event_is_found_where_torchdiffeq_finds_it_and_has_its_gradient() -> None:
    class Falling(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor(-9.81, dtype=torch.float64))

        def forward(self, t: Tensor, y: Any) -> Any:
            return y[1], self.weight + 0 * y[1]

    y0 = c.start(1).detach() + 10, torch.zeros(1, dtype=torch.float64)
    field, t = Falling(), torch.tensor([0.5, 9.0], dtype=torch.float64)
    hits = lambda t, y: torch.stack([y[0][0], y[0][0] + 5])
    ours, theirs = (f(field, y0, t, event_fn=hits) for f in (odeint, torchdiffeq.odeint))
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)
    slopes = []
    for interface in (odeint, torchdiffeq.odeint):
        time, (place, speed) = torchdiffeq.odeint_event(
            field, y0, t[0], event_fn=hits, odeint_interface=interface, atol=1e-9
        )
        slopes.append(torch.autograd.grad(time + speed[-1].sum() + place[-1].sum(), field.weight)[0])
    torch.testing.assert_close(*slopes, rtol=1e-7, atol=0)
    # From the height h the ball falls sqrt(2 h / g).
    assert abs(ours[0] - 0.5 - (2 * y0[0] / 9.81).sqrt()) < 1e-7
    backward = odeint(field, y0, t.flip(0), event_fn=lambda t, y: t - 8.25)
    assert abs(backward[0] - 8.25) < 1e-7


@pytest.mark.parametrize("checkpoints", [1, 3, "auto", dynloop.Memory("2KiB")], ids=str)
def test_the_gradient_is_the_same_whatever_is_kept(checkpoints: Any) -> None:
    given: Any = {"rtol": 1e-3, "atol": 1e-4, "method": "bosh3"}
    field, y0 = Field(), c.start(3)
    few = value_and_gradients(odeint, field, y0, times(0, 1, 3), checkpoints=checkpoints, **given)
    options = {"max_num_steps": 100}
    every = value_and_gradients(odeint, field, y0, times(0, 1, 3), checkpoints="all", options=options, **given)
    assert_same(few, every, 1e-12)


def test_a_compiled_solve_is_one_program_with_the_same_gradient() -> None:
    field = Field()
    given: Any = {"rtol": 1e-2, "atol": 1e-3, "method": "adaptive_heun", "options": STARTED}
    solve = c.compiled(lambda y0, t: odeint(field, y0, t, **given))
    for t in ((0.0, 1.5, 3), (1.0, -0.5, 3)):
        ours = value_and_gradients(lambda _, y0, t: solve(y0, t), field, c.start(2, 3), times(*t))
        assert_same(ours, value_and_gradients(torchdiffeq.odeint, field, c.start(2, 3), times(*t), **given))
    with pytest.raises(RuntimeError, match="did not reach its end"):
        solve(c.start(2, 3) * torch.nan, times(0, 1, 3))
    with pytest.raises(RuntimeError, match="must increase or decrease strictly"):
        solve(c.start(2, 3), torch.zeros(3, dtype=torch.float64))


BAD: dict[str, tuple[Any, str]] = {
    "no function": ({"func": 3}, "func must be a function"),
    "callback": ({"func": type("F", (), {"__call__": lambda *_: 0, "callback_step": 0})()}, "callback_step"),
    "list": ({"y0": [torch.ones(2)]}, "y0 must be a floating tensor"),
    "integers": ({"y0": torch.ones(2, dtype=torch.int64)}, "y0 must be a floating tensor"),
    "nothing": ({"y0": ()}, "empty tuple"),
    "number": ({"t": 1.0}, "t must be a floating tensor"),
    "integer times": ({"t": torch.arange(3)}, "t must be a floating tensor"),
    "one time": ({"t": torch.ones(1)}, "two times or more"),
    "zigzag": ({"t": torch.tensor([0.0, 2.0, 1.0])}, "strictly"),
    "repeated": ({"t": torch.tensor([0.0, 1.0, 1.0])}, "strictly"),
    "NaN time": ({"t": torch.tensor([0.0, torch.nan])}, "strictly"),
    "rtol": ({"rtol": 0.0}, "rtol must be a positive number"),
    "atol": ({"atol": -1e-3}, "atol must be a positive number"),
    "tensor atol": ({"atol": torch.tensor([1e-3, 0.0])}, "atol must be positive"),
    "tuple rtol": ({"rtol": (1e-3, 1e-3)}, "rtol is a tuple of 2"),
    "differentiated": ({"rtol": torch.tensor(1e-3, requires_grad=True)}, "rtol has no gradient"),
    "method": ({"method": "implicit_adams"}, "'implicit_adams' is not offered; give one of dopri5"),
    "option": ({"options": {"jump_t": 0}}, "no option jump_t; it has first_step"),
    "fixed option": ({"method": "rk4", "options": {"perturb": True}}, "no option perturb"),
    "both grids": ({"method": "rk4", "options": {"step_size": 1.0, "grid_constructor": max}}, "not both"),
    "interp": ({"method": "rk4", "options": {"interp": "spline"}}, "interp='spline'"),
    "step size": ({"method": "rk4", "options": {"step_size": -1.0}}, "step_size must be positive"),
    "event": ({"event_fn": lambda t, y: t, "t": torch.linspace(0, 1, 3)}, "two times"),
    "fixed event": ({"event_fn": lambda t, y: t, "method": "rk4"}, "adaptive method"),
    "not callable": ({"event_fn": 3}, "event_fn must be a function"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case: str) -> None:
    changed, message = BAD[case]
    given: Any = {"func": lambda t, y: -y, "y0": torch.ones(2), "t": torch.tensor([0.0, 1.0])} | changed
    with pytest.raises(dynloop.DynloopError, match=message):
        odeint(given.pop("func"), given.pop("y0"), given.pop("t"), **given)


STUCK: dict[str, tuple[Any, Any, str]] = {
    "blow-up": (lambda t, y: y**2, {}, "no step is short enough"),
    "NaN": (lambda t, y: y * torch.where(t > 0.5, torch.nan, 1.0), {}, "NaN or infinite"),
    "NaN at once": (lambda t, y: y * torch.nan, {}, "NaN or infinite"),
    "no more steps": (lambda t, y: -50 * y, {"options": {"max_num_steps": 5}}, "max_num_steps=5 attempts"),
    "no event": (lambda t, y: -y, {"event_fn": lambda t, y: y, "options": {"max_num_steps": 9}}, "max_num_steps=9"),
}


@pytest.mark.parametrize("case", STUCK)
def test_a_solve_that_cannot_go_on_says_why(case: str) -> None:
    field, given, message = STUCK[case]
    with pytest.raises(SolveError, match=message):
        odeint(field, torch.ones(1, requires_grad=True), torch.tensor([0.0, 2.0]), **given)
