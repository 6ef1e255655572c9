"""`@dynloop.loop` on PyTorch, eager: the constructs, gradients, modules, lanes, names with a late value."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

import dynloop
from tests.syntax.constructs import FOUND, Construct
from tests.syntax.programs import defined, outcome, programs

CASES = [(one, arguments) for one in FOUND for arguments in one.arguments]
IDS = [f"{one.function.__name__}-{i}" for one in FOUND for i, _ in enumerate(one.arguments)]


def tensor(x: Any) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64 if isinstance(np.asarray(x).flat[0], np.floating) else torch.int64)


@pytest.mark.parametrize(("one", "arguments"), CASES, ids=IDS)
def test_a_construct_equals_the_original(one: Construct, arguments: tuple[Any, ...]) -> None:
    expected = one.function(*copy.deepcopy(arguments))
    found = dynloop.loop(one.function)(*map(tensor, arguments))
    # A Python float is one of 64 bits; PyTorch's own is not, and what is computed with it neither.
    np.testing.assert_allclose(float(found), float(expected), rtol=1e-6)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(text=programs(is_staged=True))
def test_a_program_means_what_it_meant(text: str) -> None:
    original, rewritten = defined(text), dynloop.loop(defined(text))
    for numbers in [(0, 1, 2), (7, -3, 4)]:
        expected, _ = outcome(original, *numbers, [5, 6, 7])
        found = rewritten(*map(torch.tensor, numbers), torch.tensor([5, 6, 7]), None)
        for x, y in zip(expected, found, strict=True):
            np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


@dynloop.loop(checkpoints=3)
def root(a):
    x = a
    while abs(x * x - a) > 1e-9:
        x = 0.5 * (x + a / x)
    return x


def unrolled(a: torch.Tensor) -> torch.Tensor:
    x = a
    while abs(x * x - a) > 1e-9:
        x = 0.5 * (x + a / x)
    return x


def test_values_and_gradients_are_bit_for_bit_those_of_the_plain_loop() -> None:
    given = [torch.tensor(2.0, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    found, expected = root(given[0]), unrolled(given[1])
    found.backward()
    expected.backward()
    assert found.item() == expected.item()
    torch.testing.assert_close(given[0].grad, given[1].grad, rtol=1e-14, atol=0)


def test_a_loop_keeps_no_more_states_than_it_may() -> None:
    class Step(torch.autograd.Function):
        """Counts how many tapes of steps are alive."""

        alive, most = 0, 0

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.held = Held()
            return x * 1.01

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            return grads[0] * 1.01

    class Held:
        def __init__(self) -> None:
            Step.alive += 1
            Step.most = max(Step.most, Step.alive)

        def __del__(self) -> None:
            Step.alive -= 1

    @dynloop.loop(checkpoints=4)
    def grow(x, n):
        for _ in range(n):
            x = Step.apply(x)
        return x

    x = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    grow(x, torch.tensor(200)).backward()
    torch.testing.assert_close(x.grad, torch.tensor(1.01**200, dtype=torch.float64))
    assert Step.most <= 4


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    @dynloop.loop
    def forward(self, x, tolerance):
        steps = 0
        while x.norm() > tolerance:
            x = 0.5 * torch.tanh(self.layer(x))
            steps += 1
        return x, steps


def test_a_module_gets_its_gradient() -> None:
    torch.manual_seed(0)
    model = Model()
    with torch.no_grad():
        model.layer.bias.zero_()
    out, steps = model(torch.ones(2), 0.01)
    out.sum().backward()
    found = model.layer.weight.grad
    model.zero_grad()
    x = torch.ones(2)
    for _ in range(int(steps)):
        x = 0.5 * torch.tanh(model.layer(x))
    x.sum().backward()
    torch.testing.assert_close(found, model.layer.weight.grad)


def test_a_value_that_comes_late_is_the_one_returned() -> None:
    runs: list[int] = []

    @dynloop.loop
    def first_above(xs, bound):
        for i, x in enumerate(xs):
            tick()
            y = x * x
            if y > bound:
                return y, i
        return xs[0] * 0.0, -1

    def tick() -> None:
        runs.append(1)

    xs = torch.arange(1.0, 9.0, requires_grad=True)
    found, place = first_above(xs, 10.0)
    assert (found.item(), int(place)) == (16.0, 3)
    found.backward()
    assert xs.grad is not None
    assert xs.grad.tolist() == [0, 0, 0, 8, 0, 0, 0, 0]


def test_random_numbers_are_those_of_the_plain_loop() -> None:
    def noisy(x, n):
        for i in range(n):
            x = torch.nn.functional.dropout(x, 0.5)
            if x.sum() > 1e6:
                return x, i
        return x, -1

    results = []
    for function in (noisy, dynloop.loop(noisy)):
        torch.manual_seed(3)
        x = torch.ones(64, requires_grad=True)
        y, _ = function(x, torch.tensor(4))
        y.sum().backward()
        results.append((y.detach(), x.grad, torch.rand(1)))
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def test_lanes_stop_by_themselves() -> None:
    roots = torch.vmap(root)(torch.tensor([2.0, 9.0, 16.0], dtype=torch.float64))
    np.testing.assert_allclose(roots, [2**0.5, 3, 4], rtol=1e-9)


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacfwd, torch.func.jacrev])
def test_transformations(transform: Callable[..., Any]) -> None:
    slope = transform(root)(torch.tensor(2.0, dtype=torch.float64))
    np.testing.assert_allclose(slope, 0.5 / 2**0.5, rtol=1e-9)


ERRORS = {
    "dtype": (lambda x: x.to(torch.int64), "'x' is float32[] before the loop but int64[] after one iteration; cast it"),
    "shape": (lambda x: x.repeat(2), "'x' has shape () before the loop but (2,) after one iteration; shapes must not"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_a_changed_type_is_told(case: str) -> None:
    change, words = ERRORS[case]

    @dynloop.loop
    def wrong(x):
        while x.sum() < 3:
            x = change(x + 1)
        return x

    with pytest.raises(dynloop.StagingError) as caught:
        wrong(torch.tensor(0.0))
    assert words in str(caught.value)


def test_a_condition_with_several_values_is_told() -> None:
    @dynloop.loop
    def wrong(x):
        if x > 0:
            x = 2 * x
        return x

    with pytest.raises(
        dynloop.StagingError, match=r"the condition must be a scalar, got bool\[3\] \(use where, or vmap\)"
    ):
        wrong(torch.ones(3))
