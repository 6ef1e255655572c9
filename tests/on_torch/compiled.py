"""Loops for the tests of compiled PyTorch, their unrolled twins, and an operation that counts its runs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import dynloop

RUNS = [0]


@torch.library.custom_op("dynloop_tests::counted", mutates_args=())
def counted(x: Tensor) -> Tensor:
    """The identity, which no compiler leaves out where its result is used."""
    RUNS[0] += 1
    return x.clone()


counted.register_fake(torch.empty_like)
counted.register_autograd(lambda ctx, g: g)


def compiled(f: Callable[..., Any], backend: Any = "aot_eager", **options: Any) -> Callable[..., Any]:
    """The function compiled without graph breaks, in a compiler that remembers nothing."""
    torch._dynamo.reset()
    return torch.compile(f, fullgraph=True, backend=backend, **options)


def weights(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(*shape, dtype=torch.float64, generator=generator) * 0.4).requires_grad_()


def start(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def step(x: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(w @ counted(x)) + 0.1 * x


def loop(x: Tensor, w: Tensor, n: Tensor, checkpoints: Any = "auto", max_steps: int | None = None) -> Tensor:
    """n steps, counted by the carry."""
    return dynloop.while_loop(
        lambda c: c[0] < n,
        lambda c: (c[0] + 1, step(c[1], w)),
        (torch.zeros((), dtype=torch.int64), x),
        checkpoints=checkpoints,
        max_steps=max_steps,
    )[1]


def unrolled(x: Tensor, w: Tensor, n: int) -> Tensor:
    for _ in range(n):
        x = step(x, w)
    return x


def gradients(y: Tensor, *inputs: Tensor) -> list[Tensor]:
    """Of a weighted sum, zeros where nothing depends on an input."""
    seed = torch.linspace(1, 2, y.numel(), dtype=y.dtype).reshape(y.shape)
    found = torch.autograd.grad((y * seed).sum(), inputs, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def assert_close(found: list[Tensor], expected: list[Tensor]) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-300)
