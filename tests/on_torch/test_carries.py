"""Claims about carries that only PyTorch has: dataclasses, views, devices, changes in place, and numbers."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import Tensor

import dynloop
from dynloop import ArgumentError, BackendError, CarryError
from dynloop.on_torch.surroundings import check_devices
from tests.closeness import assert_close


@dataclass(frozen=True)
class Particle:
    """Two tensors and nothing, in a container of the user's own."""

    position: Tensor
    velocity: Tensor
    note: None = None


def test_a_dataclass_is_a_container():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    body = lambda p: Particle(p.position + p.velocity, 2 * p.velocity)
    out = dynloop.while_loop(lambda p: p.position.sum() < 20, body, Particle(x, x), checkpoints=1)
    assert isinstance(out, Particle)
    assert out.position.tolist() == [8, 16]
    assert torch.autograd.grad(out.position.sum(), x)[0].tolist() == [8, 8]
    with pytest.raises(CarryError, match=r"carry\.velocity is float32\[2\] before a step and float64\[2\] after it"):
        dynloop.while_loop(lambda p: True, lambda p: Particle(p.position, p.velocity.double()), Particle(x, x))


def test_leaves_that_are_views():
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    start = (torch.tensor(0), x.T, x[:, 1], x.expand(4, 2, 3))
    body = lambda c: (c[0] + 1, c[1] * 2, c[2] + c[1][0], c[3])
    _, a, b, c = dynloop.while_loop(lambda c: c[0] < 3, body, start, checkpoints=1)
    found = torch.autograd.grad(a.sum() + (b**2).sum() + c.sum(), x)[0]
    y = x.T, x[:, 1]
    for _ in range(3):
        y = y[0] * 2, y[1] + y[0][0]
    assert_close(found, torch.autograd.grad(y[0].sum() + (y[1] ** 2).sum() + x.expand(4, 2, 3).sum(), x)[0])


def test_a_body_that_returns_views_of_what_it_got():
    x = torch.arange(4.0).reshape(2, 2).requires_grad_()
    out = dynloop.fori_loop(0, 3, lambda i, c: (c[0].T, c[0][0]), (x, x[0]), checkpoints=1)
    assert torch.equal(out[0], x.T)
    assert out[0].data_ptr() != x.data_ptr()
    assert torch.autograd.grad(out[0].square().sum(), x)[0].tolist() == (2 * x).tolist()


@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad])
def test_a_change_in_place_is_an_error_that_names_the_leaf(context: Any):
    def body(c: Any) -> Any:
        c["x"] += 1
        return c

    with context(), pytest.raises(CarryError, match=r"body changed carry\['x'\] in place"):
        dynloop.while_loop(lambda c: c["i"].sum() < 3, body, {"i": torch.zeros(1), "x": torch.zeros(2)})


def test_what_the_body_makes_itself_may_be_changed_in_place():
    def body(y: Tensor) -> Tensor:
        z = y * 2
        z += 1
        return z

    x = torch.tensor(1.0, requires_grad=True)
    assert float(torch.autograd.grad(dynloop.while_loop(lambda y: y < 10, body, x), x)[0]) == 8


def test_a_leaf_that_moves_to_another_device_is_an_error():
    with pytest.raises(CarryError, match=r"carry\[1\] is on cpu before a step and on meta after it"):
        dynloop.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1].to("meta")), (torch.tensor(0), torch.ones(2)))


def test_an_array_of_jax_among_tensors_is_an_error():
    init = {"a": torch.ones(2), "b": jnp.ones(2)}
    with pytest.raises(BackendError, match="while_loop: init holds arrays of JAX and of PyTorch"):
        dynloop.while_loop(lambda c: False, lambda c: c, init)
    with pytest.raises(CarryError, match=r"carry\['b'\] in init is ArrayImpl.*torch\.from_dlpack"):
        dynloop.while_loop(lambda c: False, lambda c: c, init, backend="torch")


def test_numpy_arrays_become_tensors_of_their_own():
    given = np.ones(2)
    out = dynloop.while_loop(lambda c: c[0].sum() < 3, lambda c: (c[0] + c[1], c[1]), (given, torch.ones(2)))
    given[:] = 5
    assert [x.tolist() for x in out] == [[2, 2], [1, 1]]


def test_a_device_whose_random_numbers_cannot_be_repeated_is_refused():
    there: Any = SimpleNamespace(device=SimpleNamespace(type="xpu"))
    with pytest.raises(BackendError, match=r"while_loop: .* xpu is neither\. Run it under torch\.no_grad\(\) or"):
        check_devices("while_loop", [torch.ones(2), there])


def test_numbers_take_the_dtype_that_the_first_step_gives():
    two = torch.tensor(2.0, dtype=torch.float64)
    body = lambda c: (c[0] * two, c[1] + 1)
    out = dynloop.while_loop(lambda c: c[0] < 9, body, (0.3, 0), backend="torch")
    assert (out[0].dtype, out[1].dtype) == (torch.float64, torch.int64)
    assert float(out[0]) == 0.3 * 32


def test_a_first_step_taken_again_draws_what_it_drew():
    draws = []

    def body(y: Tensor) -> Tensor:
        draws.append(torch.rand((), dtype=torch.float64))
        return y + draws[-1]

    torch.manual_seed(0)
    dynloop.while_loop(lambda y: y < 1.5, body, 0.0, backend="torch")
    assert draws[0] == draws[1]
    assert draws[1] != draws[2]


def test_results_may_be_changed_in_place():
    x = torch.tensor([1.0], requires_grad=True)
    out = dynloop.while_loop(lambda y: y.sum() < 10, lambda y: 2 * y, x)
    out += 1
    assert torch.autograd.grad(out.sum(), x)[0].tolist() == [16]


def test_a_process_group_is_needed_for_sync():
    with pytest.raises(ArgumentError, match=r"processes that torch\.distributed has joined"):
        dynloop.while_loop(lambda y: y < 3, lambda y: y + 1, torch.tensor(0.0), sync="any")


def test_debug_is_the_plain_loop_on_one_tape():
    seen = []

    def body(y: Tensor) -> Tensor:
        seen.append(float(y.detach()))
        return y * y

    x = torch.tensor(1.5, requires_grad=True)
    with dynloop.debug():
        out = dynloop.while_loop(lambda y: y < 10, body, x, checkpoints=1, full_output=True)
        (slope,) = torch.autograd.grad(out.carry, x, create_graph=True)
        assert float(torch.autograd.grad(slope, x)[0]) == 637.875
    assert (len(seen), int(out.steps)) == (3, 3)


@pytest.mark.gpu
def test_a_loop_on_a_gpu_repeats_its_random_numbers():
    v = torch.ones(64, device="cuda", requires_grad=True)
    body = lambda c: (c[0] + 1, torch.nn.functional.dropout(c[1], 0.5))
    start = (torch.tensor(0, device="cuda"), v)
    out = dynloop.while_loop(lambda c: c[0] < 3, body, start, checkpoints=1)[1]
    assert torch.equal(torch.autograd.grad(out.sum(), v)[0], out.detach())


@pytest.mark.gpu
def test_numbers_go_to_the_device_of_the_tensors():
    out = dynloop.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, torch.ones(2, device="cuda")))
    assert [str(x.device) for x in out] == ["cuda:0", "cuda:0"]
    assert out[1].tolist() == [8, 8]
