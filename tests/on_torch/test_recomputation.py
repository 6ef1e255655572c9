"""Claims about steps that run again for a gradient: they draw, cast and find what they did the first time."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dynloop
from dynloop import DerivativeError

CHECKPOINTS = [1, 2, 3, "auto", "all"]
each_checkpoints = pytest.mark.parametrize("checkpoints", CHECKPOINTS)


def counted(n: int, body: Callable[[Tensor], Tensor], x: Tensor, **options: Any) -> Tensor:
    """The body n times."""
    start = (torch.tensor(0), x)
    options = {"max_steps": 64} | options
    return dynloop.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, body(c[1])), start, **options)[1]


def plain(n: int, body: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    for _ in range(n):
        x = body(x)
    return x


# ---- random numbers


@each_checkpoints
@pytest.mark.parametrize("n", [1, 3, 7])
def test_dropout_repeats(n: int, checkpoints: Any):
    # pytorch/pytorch#190758, #190717, #14253: the product of the masks is both the value and the gradient.
    v = torch.ones(64, requires_grad=True)
    torch.manual_seed(5)
    out = counted(n, lambda v: nn.functional.dropout(v, 0.5), v, checkpoints=checkpoints)
    (slope,) = torch.autograd.grad(out.sum(), v)
    assert torch.equal(slope, out.detach())
    torch.manual_seed(5)
    assert torch.equal(out.detach(), plain(n, lambda v: nn.functional.dropout(v, 0.5), v.detach()))


@each_checkpoints
def test_a_backward_pass_leaves_the_generator_as_it_was(checkpoints: Any):
    v = torch.ones(8, requires_grad=True)
    out = counted(5, lambda v: v * torch.rand(8), v, checkpoints=checkpoints)
    torch.rand(3)
    before = torch.get_rng_state()
    out.sum().backward()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_forward_pass_draws_what_the_plain_loop_draws():
    v = torch.ones(8, requires_grad=True)
    body = lambda v: v * torch.rand(8)
    states = []
    for loop in (lambda: counted(5, body, v), lambda: plain(5, body, v)):
        torch.manual_seed(3)
        loop()
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


@each_checkpoints
def test_a_generator_that_is_closed_over_repeats(checkpoints: Any):
    generator = torch.Generator().manual_seed(7)
    v = torch.ones(8, requires_grad=True)
    body = lambda v: v * torch.rand(8, generator=generator)
    out = counted(6, body, v, checkpoints=checkpoints)
    after = generator.get_state()
    (slope,) = torch.autograd.grad(out.sum(), v)
    assert torch.allclose(slope, out.detach(), rtol=1e-6)
    assert torch.equal(generator.get_state(), after)


def test_random_numbers_repeat_in_a_second_derivative():
    x = torch.tensor(1.1, dtype=torch.float64, requires_grad=True)
    body = lambda y: y * y * torch.rand((), dtype=torch.float64)
    slopes = []
    for loop in (lambda: counted(3, body, x, checkpoints=2), lambda: plain(3, body, x)):
        torch.manual_seed(1)
        (slope,) = torch.autograd.grad(loop(), x, create_graph=True)
        torch.manual_seed(9)
        slopes.append(torch.autograd.grad(slope, x)[0])
    assert abs(slopes[0] / slopes[1] - 1) < 1e-12


def test_random_numbers_repeat_under_func_grad():
    x, body = torch.ones(8), lambda v: v * torch.rand(8)
    torch.manual_seed(2)
    slope = torch.func.grad(lambda x: counted(4, body, x, checkpoints=1).sum())(x)
    after = torch.get_rng_state()
    torch.manual_seed(2)
    assert torch.allclose(slope, plain(4, body, x), rtol=1e-6)
    assert torch.equal(torch.get_rng_state(), after)


# ---- autocast


@each_checkpoints
def test_autocast_is_restored(checkpoints: Any):
    # pytorch/pytorch#141896, #105682: gradients are those of the plain loop under the same autocast, bit for bit. Its
    # cache of casts adds up the gradients of all steps in bfloat16, so it is off in both.
    lin = nn.Linear(4, 4)
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    found = []
    for loop in (lambda b, x: counted(4, b, x, checkpoints=checkpoints), lambda b, x: plain(4, b, x)):
        y = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            out = loop(lambda v: torch.tanh(lin(v)).float(), y)
        found.append([out.detach(), *torch.autograd.grad(out.sum(), [y, lin.weight, lin.bias])])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_autocast_with_its_cache_is_close():
    lin = nn.Linear(4, 4)
    x = torch.randn(3, 4, requires_grad=True)
    found = []
    for loop in (counted, plain):
        with torch.autocast("cpu", torch.bfloat16):
            out = loop(4, lambda v: torch.tanh(lin(v)).float(), x)
            assert torch.is_autocast_cache_enabled()
        found.append(torch.autograd.grad(out.sum(), [x, lin.weight, lin.bias]))
    assert all(torch.allclose(a, b, rtol=2e-2, atol=2e-2) for a, b in zip(*found, strict=True))


def test_a_body_without_autocast_runs_again_without_it():
    lin = nn.Linear(4, 4)
    x = torch.randn(3, 4, requires_grad=True)
    out = counted(4, lambda v: torch.tanh(lin(v)), x, checkpoints=1)
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.autograd.grad(out.sum(), lin.weight)[0]
    wanted = torch.autograd.grad(plain(4, lambda v: torch.tanh(lin(v)), x).sum(), lin.weight)[0]
    assert torch.allclose(found, wanted, rtol=1e-5)


# ---- what a step moves


@each_checkpoints
def test_batch_norm_moves_once_for_each_real_step(checkpoints: Any):
    found = []
    for loop in (lambda b, x: counted(5, b, x, checkpoints=checkpoints), lambda b, x: plain(5, b, x)):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Tanh()).double()
        x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
        out = loop(net, x)
        before = [b.clone() for b in net.buffers()]
        slopes = torch.autograd.grad(out.square().sum(), [x, *net.parameters()])
        assert all(torch.equal(a, b) for a, b in zip(before, net.buffers(), strict=True))
        found.append((before, slopes))
    assert all(torch.equal(a, b) for a, b in zip(found[0][0], found[1][0], strict=True))
    assert all(torch.allclose(a, b, rtol=1e-12, atol=1e-14) for a, b in zip(found[0][1], found[1][1], strict=True))


@each_checkpoints
def test_a_buffer_that_a_step_reads_and_moves_is_part_of_the_state(checkpoints: Any):
    # Spectral norm turns its vectors at every step, and what it computes depends on them.
    found = []
    for loop in (lambda b, x: counted(4, b, x, checkpoints=checkpoints), lambda b, x: plain(4, b, x)):
        torch.manual_seed(0)
        lin = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)).double()
        x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
        out = loop(lambda v, lin=lin: torch.tanh(lin(v)), x)
        found.append([out.detach(), *torch.autograd.grad(out.sum(), [x, *lin.parameters()])])
    assert all(torch.allclose(a, b, rtol=1e-12, atol=1e-14) for a, b in zip(*found, strict=True))


def test_a_counter_that_is_closed_over_counts_real_steps():
    steps = torch.zeros(())
    x = torch.tensor(1.0, requires_grad=True)

    def body(y: Tensor) -> Tensor:
        steps.add_(1)
        return 2 * y

    out = dynloop.while_loop(lambda y: y < 10, body, x, checkpoints=1)
    out.backward()
    assert (float(steps), float(x.grad or 0)) == (4, 16)


def test_what_moves_too_late_to_be_kept_is_an_error():
    log = torch.zeros(5000)
    x = torch.tensor(1.0, requires_grad=True)

    def body(y: Tensor) -> Tensor:
        log.add_(1)
        return 2 * y

    out = dynloop.while_loop(lambda y: y < 10, body, x)
    assert float(out.detach()) == 16
    with pytest.raises(DerivativeError, match=r"body changes what it closes over in place \(log\)"):
        out.backward()


@each_checkpoints
def test_a_captured_tensor_changed_before_the_backward_pass_is_an_error(checkpoints: Any):
    # firedrakeproject/firedrake#5082, dolfin-adjoint/pyadjoint#211.
    x, w = torch.tensor(1.0, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    out = dynloop.while_loop(lambda y: y < 10, lambda y: y * w, x, checkpoints=checkpoints, max_steps=64)
    with torch.no_grad():
        w.mul_(5)
    with pytest.raises(RuntimeError, match=r"while_loop: w \(float32\[\]\) was changed in place after the loop"):
        out.backward()


def test_a_parameter_changed_by_an_optimizer_is_named():
    lin = nn.Linear(2, 2)
    out = counted(3, lambda v: torch.tanh(lin(v)), torch.ones(2))
    torch.optim.SGD(lin.parameters(), lr=0.1)
    with torch.no_grad():
        lin.weight.add_(1)
    with pytest.raises(RuntimeError, match=r"lin\.weight"):
        out.sum().backward()


def test_a_start_changed_before_the_backward_pass_is_an_error():
    x = torch.tensor(1.0, requires_grad=True)
    out = dynloop.while_loop(lambda y: y < 10, lambda y: y * y * 2, x, checkpoints=1)
    with torch.no_grad():
        x.mul_(5)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation|changed in place"):
        out.backward()


# ---- grad mode


def test_nothing_is_recorded_without_grad_mode():
    lin = nn.Linear(2, 2)
    x = torch.ones(2, requires_grad=True)
    wanted = plain(3, lambda v: torch.tanh(lin(v)), x.detach())
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            out = counted(3, lambda v: torch.tanh(lin(v)), x)
        assert not out.requires_grad
        assert torch.equal(out, wanted)


def test_nothing_that_needs_no_gradient_gets_one():
    assert not counted(3, lambda v: v * 2, torch.ones(2)).requires_grad


def test_a_graph_is_run_backward_once_unless_it_is_kept():
    x = torch.tensor(1.5, requires_grad=True)
    out = dynloop.while_loop(lambda y: y < 10, lambda y: y * y, x, checkpoints=1)
    first = torch.autograd.grad(out, x, retain_graph=True)[0]
    assert torch.equal(torch.autograd.grad(out, x)[0], first)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(out, x)


def test_no_warning_is_given():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = torch.tensor(1.5, requires_grad=True)
        counted(3, lambda v: v * v, x).backward()
