"""Time, gradient error and memory of a neural ODE's training step, beside torchdiffeq's `odeint` and `odeint_adjoint`.

    python benchmarks/torchdiffeq_time.py

One thread; the programs take turns in one process, and each time is the least of several runs. An error is that of the
parameters' gradient, beside the gradient of a solve in float64 with tolerances of 1e-12; all the programs have the
tolerances that are printed. Memory is what one step adds to the most that a process ever held, each in its own process.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torchdiffeq
from torch import Tensor

from dynloop.integrations.torchdiffeq import odeint

RUNS, RTOL, ATOL = 7, 1e-5, 1e-6
PROBLEMS = {
    "small: state 2, hidden 16, 2 times": (1, 2, 16, 2),
    "small: state 2, hidden 50, 10 times": (1, 2, 50, 10),
    "medium: batch 64 of 2, hidden 64, 2 times": (64, 2, 64, 2),
    "medium: batch 256 of 2, hidden 64, 10 times": (256, 2, 64, 10),
}
SOLVES: dict[str, Any] = {
    "torchdiffeq.odeint": torchdiffeq.odeint,
    "torchdiffeq.odeint_adjoint": torchdiffeq.odeint_adjoint,
    "dynloop, compiled": odeint,
}


class Field(torch.nn.Module):
    def __init__(self, size: int, hidden: int) -> None:
        super().__init__()
        layers = torch.nn.Linear(size, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, size)
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        return self.layers(y**3)


def made(problem: str) -> tuple[Field, Tensor, Tensor]:
    batch, size, hidden, times = PROBLEMS[problem]
    torch.manual_seed(0)
    return Field(size, hidden), torch.randn(batch, size), torch.linspace(0, 6, times)


def training_step(solve: Any, field: Field, rtol: float = RTOL, atol: float = ATOL) -> Callable[..., Tensor]:
    def loss(y0: Tensor, t: Tensor) -> Tensor:
        return solve(field, y0, t, rtol=rtol, atol=atol, method="dopri5").square().mean()

    return torch.compile(loss, fullgraph=True) if solve is odeint else loss


def gradient(loss: Tensor, field: Field) -> Tensor:
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, tuple(field.parameters()))])


def compare(problem: str) -> None:
    field, y0, t = made(problem)
    exact = field.double()
    reference = gradient(training_step(torchdiffeq.odeint, exact, 1e-12, 1e-12)(y0.double(), t.double()), exact)
    field, y0, t = made(problem)
    print(f"{problem}, rtol {RTOL:g}", flush=True)
    steps = {name: training_step(solve, field) for name, solve in SOLVES.items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    errors = {}
    for name, step in steps.items():
        begin = time.perf_counter()
        found = gradient(step(y0, t), field)
        if name == "dynloop, compiled":
            print(f"  compiled in {time.perf_counter() - begin:.0f} s", flush=True)
        errors[name] = float((found - reference).norm() / reference.norm())
    for _ in range(RUNS):
        for name, step in steps.items():
            begin = time.perf_counter()
            gradient(step(y0, t), field)
            times[name].append(time.perf_counter() - begin)
    ours = min(times["dynloop, compiled"])
    for name, several in times.items():
        command = [sys.executable, __file__, problem, name]
        memory = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        took, error = min(several), errors[name]
        print(f"  {name:27s} {took * 1e3:8.2f} ms, {took / ours:5.1f} x, error {error:.1e}, {memory} MiB", flush=True)


def memory_of(problem: str, name: str) -> float:
    """MiB that a step adds to the peak that a much shorter one has left."""
    field, y0, t = made(problem)
    step = training_step(SOLVES[name], field)
    # What compilers and threads need once.
    gradient(step(y0, t / 100), field)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gradient(step(y0, t), field)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:]:
        print(f"{memory_of(*sys.argv[1:]):.1f}")
    else:
        for problem in PROBLEMS:
            compare(problem)
