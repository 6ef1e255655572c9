"""What a compiled loop's program is: without a gradient torch's own loop, and with one what copies nothing."""

import os
import re
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.testing import CompileCounterWithBackend
from torch._higher_order_ops import while_loop
from torch._inductor.utils import run_and_get_code

import adjoint
import dynloop
from tests.on_torch import compiled as c


def graphs_of(f: Any, *args: Tensor) -> str:
    """The program that reaches a compiler's backend, as text."""
    seen: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        seen.append(graph.print_readable(print_output=False, include_device=False))
        return graph.forward

    with torch.no_grad():
        c.compiled(f, aot_autograd(fw_compiler=backend))(*args)
    (text,) = seen
    return re.sub(r"#.*", "", text)


def test_without_a_gradient_the_program_is_that_of_torch() -> None:
    w = c.weights(4, 4)
    cond, body = lambda i, x: i < 9, lambda i, x: (i + 1, torch.tanh(w @ x))

    def ours(i: Tensor, x: Tensor) -> Any:
        return dynloop.while_loop(lambda k: cond(*k), lambda k: body(*k), (i, x))

    def theirs(i: Tensor, x: Tensor) -> Any:
        return while_loop(cond, body, (i, x))

    start = torch.tensor(0), c.start(4).detach()
    assert graphs_of(ours, *start) == graphs_of(theirs, *start)


@pytest.mark.parametrize("checkpoints", ["auto", 3])
@pytest.mark.parametrize("dynamic", [None, True])
def test_batch_sizes_cost_two_compiles_at_most(checkpoints: Any, dynamic: bool | None) -> None:
    w = c.weights(4, 4)
    counter = CompileCounterWithBackend("aot_eager")
    body = lambda k: (k[0] + 1, torch.tanh(k[1] @ w))

    def loop(x: Tensor, n: Tensor, tolerance: Tensor) -> Tensor:
        cond = lambda k: (k[0] < n) & (k[1].square().sum() > tolerance)
        return dynloop.while_loop(cond, body, (0, x), checkpoints=checkpoints)[1]

    f = c.compiled(loop, counter, dynamic=dynamic)
    for size in (2, 3, 4, 5, 6):
        x = c.start(size, 4)
        y = x
        for _ in range(size + 7):
            y = torch.tanh(y @ w)
        found = c.gradients(f(x, torch.tensor(size + 7), torch.tensor(1e-99 * size)), x, w)
        c.assert_close(found, c.gradients(y, x, w))
    assert counter.frame_count <= 2


def test_bounds_and_lengths_cost_two_compiles_at_most() -> None:
    x, w = c.start(4), c.weights(4, 4)
    counters = CompileCounterWithBackend("aot_eager"), CompileCounterWithBackend("aot_eager")
    f = c.compiled(lambda n, bound: c.loop(x, w, n, "all", bound), counters[0])
    for bound in (20, 30, 40, 100):
        c.assert_close(c.gradients(f(torch.tensor(7), bound), x, w), c.gradients(c.unrolled(x, w, 7), x, w))
    g = c.compiled(
        lambda rows: dynloop.scan(lambda k, row: (c.step(k, w) * row, k), x, rows, checkpoints=2), counters[1]
    )
    for length in (4, 5, 9, 12):
        found, _ = g(c.start(length, 4))
        assert found.shape == (4,)
    assert max(counter.frame_count for counter in counters) <= 2


def test_memory_is_that_of_the_slots_whatever_the_number_of_steps() -> None:
    """In a process of its own, whose allocations of a state's size go back to the system at once."""
    script = """
import resource, torch, dynloop
x = torch.ones(2**18).requires_grad_()
loop = lambda n: dynloop.while_loop(lambda k: k[0] < n, lambda k: (k[0] + 1, k[1].sin()), (0, x), checkpoints=4)[1]
f = torch.compile(loop, backend="aot_eager", fullgraph=True)
for n in (40, 40, 400):
    f(torch.tensor(n)).sum().backward()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    out = subprocess.run([sys.executable, "-c", script], env=env, check=True, capture_output=True, text=True).stdout
    _, short, long = map(int, out.split())
    assert long - short < 4 * 2**18


@pytest.fixture(scope="module")
def inductor_code() -> tuple[Tensor, Tensor, str]:
    """Value, gradient and generated code of a loop with slots and leaf rows, compiled by inductor."""
    x, a = c.start(5), c.weights(5)
    schedule = adjoint.Online(3, leaf=7)

    def loop(n: Tensor) -> Tensor:
        body = lambda k: (k[0] + 1, torch.sin(k[1] * a) + 0.1 * k[1])
        return dynloop.while_loop(lambda k: k[0] < n, body, (torch.tensor(0), x), checkpoints=schedule)[1]

    f = c.compiled(loop, "inductor")

    def both() -> Any:
        y = f(torch.tensor(45))
        return y, c.gradients(y, x, a)

    (y, found), code = run_and_get_code(both)
    z = x
    for _ in range(45):
        z = torch.sin(z * a) + 0.1 * z
    c.assert_close(found, c.gradients(z, x, a))
    return y.detach(), z.detach(), "\n".join(code)


def test_inductor_gives_the_same_value_and_gradient(inductor_code: Any) -> None:
    y, z, _ = inductor_code
    torch.testing.assert_close(y, z, rtol=1e-12, atol=0)


def test_inductor_copies_no_buffer_in_a_loop(inductor_code: Any) -> None:
    """The buffers have 3 + 1 + 7 rows of 5, and no function that is called in a loop makes a tensor of that size."""
    code = inductor_code[2]
    functions = re.findall(r"^def (storing_loop\w*)\(args\):\n(.*?)(?=^def |^class |\Z)", code, re.S | re.M)
    assert len(functions) > 8
    assert "empty_strided_cpu((11, 5), (5, 1)" in code
    assert not [name for name, text in functions if "empty_strided_cpu((11, 5)" in text]
    assert not [name for name, text in functions if "assert_size_stride" in text]


def test_an_exported_loop_is_read_without_dynloop(tmp_path: Any) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x: Tensor, n: Tensor) -> Any:
            y = dynloop.while_loop(lambda k: k[0] < n, lambda k: (k[0] + 1, torch.tanh(self.layer(k[1]))), (0, x))[1]
            return y, *dynloop.scan(lambda k, row: (torch.tanh(self.layer(k)) + row, 2 * k), x, torch.outer(x, x))

    model, given = Model(), (torch.ones(4), torch.tensor(5))
    with torch.no_grad():
        program = torch.export.export(model, given)
        expected = model(*given)
    assert "dynloop" not in str(program.graph)
    torch.export.save(program, tmp_path / "loop.pt2")
    torch.save((given, expected), tmp_path / "data.pt")
    script = (
        "import sys, torch; given, expected = torch.load('data.pt'); "
        "found = torch.export.load('loop.pt2').module()(*given); "
        "[torch.testing.assert_close(a, b) for a, b in zip(found, expected)]; assert 'dynloop' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
