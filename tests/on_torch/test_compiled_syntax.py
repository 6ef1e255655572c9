"""`@dynloop.loop` inside torch.compile, whole: the constructs, random programs, gradients, modules, items, refusals."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

import dynloop
from tests.on_torch.compiled import assert_close, compiled
from tests.syntax.constructs import FOUND, Construct
from tests.syntax.programs import defined, outcome, programs, within_staged

# Each takes seconds to compile; these have one of everything, the full matrix has them all.
FEW = {"factorial", "rows", "three_ways", "find", "while_else", "logic", "add_items", "asserting", "with_dict"}


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example, HealthCheck.filter_too_much]


def tensor(x: Any) -> Tensor:
    return torch.tensor(x, dtype=torch.float64 if isinstance(np.asarray(x).flat[0], np.floating) else torch.int64)


def is_few(one: Construct) -> bool:
    return one.function.__name__ in FEW


CASES = [pytest.param(one, marks=() if is_few(one) else pytest.mark.full, id=one.function.__name__) for one in FOUND]


@pytest.mark.parametrize("one", CASES)
def test_a_construct_equals_the_original(one: Construct) -> None:
    function = compiled(dynloop.loop(one.function))
    for arguments in one.arguments:
        expected = one.function(*copy.deepcopy(arguments))
        np.testing.assert_allclose(float(function(*map(tensor, arguments))), float(expected), rtol=1e-6)


@settings(max_examples=20, suppress_health_check=SLOW)
@given(text=programs(is_staged=True))
def test_a_program_means_what_it_meant(text: str) -> None:
    # Long ones take minutes, of which the most is torch's.
    assume(3 < text.count("\n") < 9)
    text = within_staged(text)
    original, function = defined(text), compiled(dynloop.loop(defined(text)))
    for numbers in [(0, 1, 2), (7, -3, 4)]:
        expected, _ = outcome(original, *numbers, [5, 6, 7])
        found = function(*map(torch.tensor, numbers), torch.tensor([5, 6, 7]), None)
        for x, y in zip(expected, found, strict=True):
            np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


class Settling(torch.nn.Module):
    """A fixed point of a layer, with a cheaper one first while the state is small."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = torch.nn.Parameter(0.3 * torch.randn(3, 3, dtype=torch.float64, generator=generator))
        self.bias = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))

    @dynloop.loop(checkpoints=3)
    def forward(self, x: Tensor, n: Tensor) -> tuple[Tensor, Any]:
        steps = 0
        while True:
            new = torch.tanh(self.weight @ x + self.bias)
            steps += 1
            if abs(new - x).max() < 1e-8:
                return new, steps
            if steps > n:
                new = 0.5 * (new + x)
            x = new


@pytest.mark.parametrize("backend", ["inductor", pytest.param("aot_eager", marks=pytest.mark.full)])
def test_a_module_has_the_gradients_of_eager_code(backend: str) -> None:
    x = torch.zeros(3, dtype=torch.float64)
    module, found = Settling(), []
    for call in (module, compiled(module, backend)):
        module.zero_grad()
        y, steps = call(x, torch.tensor(4))
        y.sum().backward()
        assert module.weight.grad is not None
        assert module.bias.grad is not None
        found.append([y.detach(), steps, module.weight.grad, module.bias.grad])
    assert int(found[0][1]) == int(found[1][1]) > 5
    assert_close(found[1][2:], found[0][2:])


@dataclass
class Point:
    """A state of two parts."""

    position: Tensor
    velocity: Tensor


@dynloop.loop
def bounce(height: Tensor, n: Tensor) -> tuple[Tensor, Any]:
    point, hits = Point(height, torch.zeros_like(height)), 0
    for _ in range(n):
        point = Point(point.position + 0.1 * point.velocity, point.velocity - 1)
        while point.position < 0:
            hits += 1
            point = Point(-0.5 * point.position, -0.5 * point.velocity)
            if hits > 3:
                break
    return point.position, hits


def test_nested_loops_over_a_dataclass_have_gradients_and_one_compilation() -> None:
    counts, counter = set(), CompileCounterWithBackend("aot_eager")
    function = compiled(bounce, counter)
    for start, n in ((2.0, 15), (0.5, 20), (1.0, 0)):
        heights = [torch.tensor(start, dtype=torch.float64, requires_grad=True) for _ in range(2)]
        results = [f(x, torch.tensor(n)) for f, x in zip((bounce, function), heights, strict=True)]
        assert int(results[0][1]) == int(results[1][1])
        slopes = [torch.autograd.grad(y, x)[0] for (y, _), x in zip(results, heights, strict=True)]
        assert_close([results[1][0], slopes[1]], [results[0][0], slopes[0]])
        counts.add(counter.frame_count)
    assert len(counts) == 1


PLACES: list[Callable[[Tensor, Tensor], Any]] = [
    lambda i, j: i,
    lambda i, j: -i,
    lambda i, j: (i, slice(1, 3)),
    lambda i, j: (slice(None), j, -i),
    lambda i, j: (..., j),
    lambda i, j: (None, i, ..., j),
    lambda i, j: (i, torch.tensor([0, 1]), j),
    lambda i, j: (0, j),
]


def test_items_at_places_that_are_tensors() -> None:
    def change(x: Tensor, places: Any) -> Tensor:
        k = torch.zeros((), dtype=torch.int64)
        while k < 2:
            for place in places:
                x[place] = x[place] * 2 + k
            k = k + 1
        return x

    staged = dynloop.loop(change)
    x, i, j = torch.arange(60.0).reshape(3, 4, 5), torch.tensor(1), torch.tensor(2)
    expected = change(x.clone(), [place(i, j) for place in PLACES])
    found = compiled(lambda x, i, j: staged(x, [place(i, j) for place in PLACES]))(x, i, j)
    assert torch.equal(found, expected)


def wrong_dtype(x: Tensor) -> Tensor:
    while x < 3:
        x = x.to(torch.int64) + 1
    return x


def wrong_path(x: Tensor) -> Tensor:
    if x > 0:
        y = x
    return y  # pyright: ignore[reportPossiblyUnboundVariable]


def growing(x: Tensor) -> Tensor:
    seen = []
    while x < 3:
        seen.append(x)
        x = x + 1
    return x


def printing(x: Tensor) -> Tensor:
    while x < 3:
        print(x)
        x = x + 1
    return x


def with_options(x: Tensor) -> Tensor:
    with dynloop.options(checkpoints=3):
        while x < 3:
            x = x + 1
    return x


REFUSED = {
    wrong_dtype: "'x' is float32\\[\\] before the loop but int64\\[\\] after one iteration; cast it explicitly",
    wrong_path: "'y' is used but may not have been assigned on every path; give 'y' a value before",
    printing: "calls 'print', which torch.compile does not trace; leave it out",
    with_options: "give the options to the decorator, as in @dynloop",
    growing: "calls 'seen.append'; use a local variable, or an array",
}


@pytest.mark.parametrize("function", REFUSED)
def test_what_cannot_be_staged_is_told(function: Callable[..., Any]) -> None:
    with pytest.raises(Exception, match=REFUSED[function]):
        compiled(dynloop.loop(function))(torch.tensor(0.0))
