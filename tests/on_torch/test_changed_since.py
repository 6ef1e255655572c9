"""A step that makes something else of its carry when a gradient runs it again is found out, whatever the reason.

Each body reads what no search can see and no counter of changes tells of; the gradient of the second run would be a
wrong number, so there is none.
"""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import dynloop

DOUBLE = torch.float64
Case = tuple[Callable[[Any], Any], Callable[[], Any]]


def number(x: float) -> Tensor:
    return torch.tensor(x, dtype=DOUBLE)


def a_list_that_it_appends_to() -> Case:
    log: list[Tensor] = []

    def body(y: Tensor) -> Tensor:
        log.append(y.detach())
        return y * (1.5 + 0.1 * len(log))

    return body, lambda: None


def random_numbers_of_python() -> Case:
    return lambda y: y * (1.5 + random.random()), lambda: None


def default_arguments() -> Case:
    two = number(2.0)

    def body(y: Tensor, k: Tensor = two) -> Tensor:
        return y * k

    return body, lambda: setattr(body, "__defaults__", (number(3.0),))


def an_attribute_of_a_class() -> Case:
    class Setting:
        k = number(2.0)

    return lambda y: y * Setting.k, lambda: setattr(Setting, "k", number(3.0))


def what_lies_many_attributes_deep() -> Case:
    first = inner = SimpleNamespace()
    for _ in range(12):
        inner.next = SimpleNamespace()
        inner = inner.next
    inner.k = number(2.0)

    def body(y: Tensor) -> Tensor:
        at = first
        for _ in range(12):
            at = at.next
        return y * at.k

    return body, lambda: setattr(inner, "k", number(3.0))


def what_is_written_through_data() -> Case:
    k = number(2.0)
    return lambda y: y * k, lambda: k.data.mul_(2)


def memory_of_numpy() -> Case:
    memory = np.array(2.0)
    k = torch.from_numpy(memory)
    return lambda y: y * k, lambda: memory.fill(3.0)


CASES = [
    a_list_that_it_appends_to,
    random_numbers_of_python,
    default_arguments,
    an_attribute_of_a_class,
    what_lies_many_attributes_deep,
    what_is_written_through_data,
    memory_of_numpy,
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("how", ["backward", "create_graph", "func"])
@pytest.mark.parametrize("checkpoints", [1, "auto"])
def test_a_step_that_is_another_one_now_is_refused(case: Callable[[], Case], how: str, checkpoints: Any):
    body, change = case()
    run = lambda x: dynloop.while_loop(lambda y: y < 100, body, x, checkpoints=checkpoints)
    x = number(1.0)
    if how == "func":
        pull = torch.func.vjp(run, x)[1]
        slope = lambda: pull(number(1.0))
    else:
        y = run(x.requires_grad_())
        slope = lambda: torch.autograd.grad(y, x, create_graph=how == "create_graph")
    change()
    with pytest.raises(dynloop.DerivativeError, match="made something else of its carry than at first"):
        slope()


def test_states_that_are_not_numbers_are_the_same_state():
    x = torch.tensor([1.0, torch.nan, torch.inf], dtype=DOUBLE, requires_grad=True)
    y = dynloop.fori_loop(0, 5, lambda i, y: y * 2, x)
    assert torch.autograd.grad(y[0], x)[0].tolist() == [32, 0, 0]


def test_what_a_loop_returned_may_be_changed_in_place():
    x = number(1.0).requires_grad_()
    y = dynloop.while_loop(lambda y: y < 10, lambda y: y * 2, x)
    y.add_(1)
    assert float(torch.autograd.grad(y, x)[0]) == 16


def test_the_default_dtype_is_that_of_the_run():
    x = torch.ones(3, dtype=DOUBLE, requires_grad=True)
    before = torch.get_default_dtype()
    torch.set_default_dtype(DOUBLE)
    try:
        y = dynloop.fori_loop(0, 3, lambda i, y: y * torch.linspace(0.1, 1, 3), x)
    finally:
        torch.set_default_dtype(before)
    slope = torch.autograd.grad(y.sum(), x)[0]
    assert torch.equal(slope, torch.linspace(0.1, 1, 3, dtype=DOUBLE) ** 3)


def test_statistics_that_move_after_the_first_step_only_are_refused():
    mean, variance = torch.zeros(1, dtype=DOUBLE), torch.ones(1, dtype=DOUBLE)
    x = torch.arange(4, dtype=DOUBLE).reshape(4, 1).requires_grad_()

    def body(i: Tensor, y: Tensor) -> Tensor:
        return y if i < 1 else y + torch.nn.functional.batch_norm(y, mean, variance, training=True)

    y = dynloop.fori_loop(0, 3, body, x)
    with pytest.raises(dynloop.DerivativeError, match="mean, variance, though not in the first step"):
        y.sum().backward()
