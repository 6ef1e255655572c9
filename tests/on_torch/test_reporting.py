"""Claims about `dynloop.explain` on PyTorch: what it tells is what has run."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import adjoint
import dynloop


class Counted:
    """A body that counts its evaluations, in a log: a number would be set back after a reversal."""

    def __init__(self) -> None:
        self.log: list[None] = []

    @property
    def calls(self) -> int:
        return len(self.log)

    def __call__(self, carry: Any) -> Any:
        self.log.append(None)
        return carry[0] + 1, torch.sin(carry[1]) + 0.1 * carry[1]


def loop(body: Callable[[Any], Any], x: Any, steps: int, **options: Any) -> Any:
    return dynloop.while_loop(lambda c: c[0] < steps, body, (torch.tensor(0), x), **options)[1]


def differentiated(body: Callable[[Any], Any], steps: int, **options: Any) -> Any:
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    return dynloop.explain(lambda x: loop(body, x, steps, **options).sum().backward())(x)


@pytest.mark.parametrize("checkpoints", [1, 3, 16, "auto", adjoint.Periodic(4), adjoint.Online(2, leaf=4)], ids=str)
def test_executed_evaluations_are_those_counted(checkpoints: Any):
    body = Counted()
    (told,) = differentiated(body, 30, checkpoints=checkpoints, max_steps=32).loops
    assert (told.name, told.steps, told.runs, told.reversals) == ("while_loop", 30, 1, 1)
    assert told.executed == told.evaluations == body.calls


def test_a_known_number_of_steps_has_the_least_evaluations():
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    run = lambda x: dynloop.fori_loop(0, 40, lambda i, x: torch.sin(x), x, checkpoints=3).sum().backward()
    (told,) = dynloop.explain(run)(x).loops
    assert told.schedule == adjoint.Binomial(3)
    assert told.evaluations == told.least


def test_a_loop_without_a_gradient_tells_what_one_would_cost():
    body = Counted()
    with torch.no_grad():
        (told,) = dynloop.explain(lambda x: loop(body, x, 20, checkpoints=2))(torch.ones(3)).loops
    assert (told.executed, told.reversals, body.calls) == (20, 0, 20)
    assert told.evaluations == adjoint.Online(2).cost(20).evaluations
    assert told.state_bytes == 3 * 4 + 8


def test_every_run_of_a_loop_is_told_at_its_site():
    body = Counted()
    (told,) = dynloop.explain(lambda x: [loop(body, x, n) for n in (2, 5)])(torch.ones(3)).loops
    assert (told.runs, told.steps, dict(told.forward)) == (2, 7, {2: 1, 5: 1})


def test_forward_mode_alone_keeps_no_state():
    (told,) = dynloop.explain(lambda x: loop(Counted(), x, 4, checkpoints=0))(torch.ones(3)).loops
    assert (told.schedule, told.has_gradient, told.buffer_bytes) == (None, False, 0)


def test_a_transformation_is_refused():
    f = lambda x: torch.func.grad(lambda x: loop(Counted(), x, 4).sum())(x)
    with pytest.raises(dynloop.ArgumentError, match=r"explain: a loop runs inside of a transformation of torch\.func"):
        dynloop.explain(f)(torch.ones(3))


def test_nothing_is_told_when_nobody_asks():
    assert dynloop.explain(lambda x: x)(torch.ones(3)).loops == ()
    loop(Counted(), torch.ones(3), 3)
    assert dynloop.explain(lambda x: x)(torch.ones(3)).loops == ()
