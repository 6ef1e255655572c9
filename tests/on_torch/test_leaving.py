"""A tensor that a step leaves outside of the loop can be looked at, and a gradient through it is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import dynloop

Log = Callable[[Tensor], Any]


def a_list() -> tuple[Log, Callable[[], list[Tensor]]]:
    log: list[Tensor] = [torch.ones(())]
    return log.append, lambda: log[1:]


def pairs_in_a_list() -> tuple[Log, Callable[[], list[Tensor]]]:
    log: list[tuple[str, Tensor]] = []
    return lambda x: log.append(("x", x)), lambda: [x for _, x in log]


def a_dict_of_an_object() -> tuple[Log, Callable[[], list[Tensor]]]:
    class Holder:
        def __init__(self) -> None:
            self.log: dict[int, Tensor] = {}

    holder = Holder()
    return lambda x: holder.log.update({len(holder.log): x}), lambda: list(holder.log.values())


@pytest.mark.parametrize("kept", [a_list, pairs_in_a_list, a_dict_of_an_object])
def test_a_gradient_through_what_a_step_left_is_refused(kept: Any) -> None:
    log, left = kept()
    w = torch.tensor(2.0, requires_grad=True)

    def body(y: Tensor) -> Tensor:
        log(y * w)
        return y * w

    out = dynloop.while_loop(lambda y: y < 9, body, torch.tensor(1.0))
    found = left()
    assert [float(x.detach()) for x in found] == [2.0, 4.0, 8.0, 16.0]
    for total in (found[-1], torch.stack(found).sum(), out + found[0]):
        with pytest.raises(dynloop.DerivativeError, match="while_loop: a gradient goes through a tensor that body has"):
            torch.autograd.grad(total, w, retain_graph=True)
    assert float(torch.autograd.grad(out, w)[0]) == 4 * 2.0**3


def test_a_parameter_that_a_step_left_keeps_its_gradient() -> None:
    log: list[Tensor] = []
    w = torch.tensor(2.0, requires_grad=True)

    def body(y: Tensor) -> Tensor:
        log.append(w)
        return y * w

    out = dynloop.while_loop(lambda y: y < 9, body, torch.tensor(1.0))
    assert float(torch.autograd.grad(out + log[0], w)[0]) == 33.0
