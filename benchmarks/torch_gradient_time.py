"""Time of a compiled loop with its gradient on PyTorch, beside torch.while_loop's own backward pass and a Python loop.

    python benchmarks/torch_gradient_time.py [state size] [steps] [--cpp]

One thread; the programs take turns in one process, and each number is the least of several runs. With `--cpp` the
loops of dynloop are compiled with inductor's `cpp_wrapper`, with which torch.while_loop cannot be trained.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops import while_loop

import adjoint
import dynloop

RUNS = 5


def step(x: Tensor, a: Tensor) -> Tensor:
    return torch.sin(x * a) * 0.9 + torch.cos(x) * 0.1 * a + 0.01 * x


def peer(x: Tensor, a: Tensor, n: Tensor) -> Tensor:
    start = torch.zeros((), dtype=torch.int64), x
    return while_loop(lambda i, x: i < n, lambda i, x: (i + 1, step(x, a)), start)[1].sum()


def plain(x: Tensor, a: Tensor, n: Tensor) -> Tensor:
    i = torch.zeros((), dtype=torch.int64)
    while i < n:
        i, x = i + 1, step(x, a)
    return x.sum()


def ours(checkpoints: Any, max_steps: int | None = None) -> Callable[..., Tensor]:
    def loop(x: Tensor, a: Tensor, n: Tensor) -> Tensor:
        body = lambda c: (c[0] + 1, step(c[1], a))
        start = torch.zeros((), dtype=torch.int64), x
        out = dynloop.while_loop(lambda c: c[0] < n, body, start, checkpoints=checkpoints, max_steps=max_steps)
        return out[1].sum()

    return loop


def main(size: int, steps: int, is_cpp: bool) -> None:
    torch.set_num_threads(1)
    programs = {
        "torch.while_loop": peer,
        'checkpoints="all"': ours("all", steps),
        'checkpoints="auto"': ours("auto"),
        "16 slots, leaf 64": ours(adjoint.Online(16, leaf=64)),
        "64 slots, leaf 64": ours(adjoint.Online(64, leaf=64)),
    }
    x, a = torch.linspace(0, 1, size).requires_grad_(), torch.linspace(0.1, 0.9, size).requires_grad_()
    compiled: dict[str, Callable[..., Tensor]] = {"Python loop, eager": plain}
    for name, program in programs.items():
        options: Any = {"cpp_wrapper": True} if is_cpp and program is not peer else None
        compiled[name] = torch.compile(program, fullgraph=True, options=options)
        begin = time.perf_counter()
        compiled[name](x, a, torch.tensor(steps)).backward()
        print(f"{name:20s} compiled in {time.perf_counter() - begin:.1f} s", flush=True)
    times: dict[str, list[float]] = {name: [] for name in compiled}
    for _ in range(RUNS):
        for name, program in compiled.items():
            begin = time.perf_counter()
            torch.autograd.grad(program(x, a, torch.tensor(steps)), (x, a))
            times[name].append(time.perf_counter() - begin)
    beside = min(times["torch.while_loop"])
    for name, several in times.items():
        print(f"{name:20s} {min(several) / steps * 1e6:9.2f} us a step, {min(several) / beside:.2f} of torch's")


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:] if text.isdigit()]
    main(*(numbers + [8, 10_000][len(numbers) :]), is_cpp="--cpp" in sys.argv)
