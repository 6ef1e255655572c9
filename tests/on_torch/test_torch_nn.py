"""`dynloop.integrations.torch_nn.WhileLoop` is a module like any other, and has the numbers of its cell called in turn.

The oracle is the cell, unrolled in Python. That processes train it together is in `test_ranks.py`.
"""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dynloop
from dynloop.integrations.torch_nn import WhileLoop
from tests.on_torch import compiled as c

STEPS = 4


class Cell(nn.Module):
    """One step of a network that gets its input at each step, and counts the steps."""

    def __init__(self, normalized: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 3, dtype=torch.float64)
        self.norm = nn.BatchNorm1d(3, dtype=torch.float64) if normalized else nn.Identity()
        self.dropout = nn.Dropout(0.3)

    def forward(self, carry: Any, x: Tensor) -> Any:
        n, y = carry
        return n + 1, self.dropout(self.norm(torch.tanh(self.linear(y) + x)))


def short(carry: Any, x: Tensor) -> Tensor:
    return carry[0] < STEPS


def module(**options: Any) -> WhileLoop:
    return WhileLoop(short, Cell(**options), max_steps=9, checkpoints=2)


def unrolled(loop: WhileLoop) -> Any:
    def run(carry: Any, x: Tensor) -> Any:
        while short(carry, x):
            carry = loop.cell(carry, x)
        return carry

    return run


def numbers(run: Any, loop: WhileLoop) -> list[Tensor]:
    """The last y, its gradients by the carry, the input and the parameters, and the statistics behind it."""
    torch.manual_seed(1)
    y, x = c.start(5, 3), c.weights(5, 3)
    last = run((torch.tensor(0), y), x)[1]
    return [last.detach(), *c.gradients(last, y, x, *loop.parameters()), *loop.buffers()]


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_numbers_are_those_of_the_cell_called_in_turn(training: bool) -> None:
    """With dropout and statistics that move, which the gradient must repeat; `train` and `eval` reach the cell."""
    ours = module(normalized=True).train(training)
    theirs = copy.deepcopy(ours)
    c.assert_close(numbers(ours, ours), numbers(unrolled(theirs), theirs))
    assert (ours.cell.norm.num_batches_tracked == STEPS) == training


def test_compiled_numbers_are_those_of_the_cell_called_in_turn() -> None:
    """A hook in the cell, which changes what it returns, is compiled with it."""
    ours = module().eval()
    ours.cell.linear.register_forward_hook(lambda module, arguments, y: 0.5 * y)
    found = numbers(c.compiled(ours), ours)
    c.assert_close(found, numbers(unrolled(ours), ours))
    ours.cell.linear._forward_hooks.clear()
    assert not torch.allclose(found[0], numbers(ours, ours)[0])


def test_a_compiled_cell_whose_statistics_move_is_refused() -> None:
    loop = module(normalized=True)
    with pytest.raises(Exception, match="the statistics of a normalization, belongs into the carry"):
        numbers(c.compiled(loop), loop)


def test_what_walks_over_modules_finds_the_cell() -> None:
    loop, cell = module(normalized=True), Cell(normalized=True)
    assert list(loop.state_dict()) == [f"cell.{key}" for key in cell.state_dict()]
    with torch.no_grad():
        cell.linear.weight.add_(1)
    loop.load_state_dict({f"cell.{key}": value for key, value in cell.state_dict().items()})
    assert torch.equal(loop.cell.linear.weight, cell.linear.weight)
    loop.to(torch.float32)
    assert {p.dtype for p in loop.parameters()} == {torch.float32}
    assert [name for name, _ in loop.named_children()] == ["cell"]
    assert "max_steps=9, checkpoints=2" in repr(loop)


def test_a_condition_that_is_a_module_is_a_submodule() -> None:
    class Below(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.limit = nn.Parameter(torch.tensor(10.0))

        def forward(self, y: Tensor) -> Tensor:
            return y < self.limit

    class Doubled(nn.Module):
        def forward(self, y: Tensor) -> Tensor:
            return 2 * y

    loop = WhileLoop(Below(), Doubled(), full_output=True)
    y = torch.tensor(1.5, requires_grad=True)
    result = loop(y)
    result.carry.backward()
    assert (float(result.carry.detach()), int(result.steps), y.grad) == (12.0, 3, 8.0)
    assert list(loop.state_dict()) == ["cond.limit"]
    loop.load_state_dict({"cond.limit": torch.tensor(5.0)})
    assert loop(y).steps == 2


def test_hooks_of_the_loop_run_once_a_call() -> None:
    loop, calls = module().eval(), []
    loop.register_forward_hook(lambda *_: calls.append("forward"))
    loop.register_full_backward_hook(lambda *_: calls.append("backward"))
    numbers(loop, loop)
    assert calls == ["forward", "backward"]


def test_an_ensemble_is_one_batched_loop() -> None:
    """`functional_call` with stacked parameters under `vmap`: each lane's gradient is that of its own module."""
    loops = [module().eval(), module().eval()]
    with torch.no_grad():
        loops[1].cell.linear.weight.mul_(2)
    x, start = c.weights(5, 3).detach(), (torch.tensor(0), c.start(5, 3).detach())

    def loss(parameters: Any) -> Tensor:
        return torch.func.functional_call(loops[0], parameters, (start, x))[1].square().sum()

    stacked, _ = torch.func.stack_module_state(list[nn.Module](loops))
    slopes = torch.func.vmap(torch.func.grad(loss))(stacked)
    for i, loop in enumerate(loops):
        own = torch.autograd.grad(unrolled(loop)(start, x)[1].square().sum(), tuple(loop.parameters()))
        c.assert_close([slope[i] for slope in slopes.values()], list(own))


def test_an_optimiser_trains_it() -> None:
    """Fits a fixed target to a hundredth of the loss it starts with."""
    loop = module().eval()
    x, y = torch.full((5, 3), 0.1, dtype=torch.float64), torch.zeros(5, 3, dtype=torch.float64)
    optimiser, losses = torch.optim.Adam(loop.parameters(), lr=0.05), []
    for _ in range(60):
        optimiser.zero_grad()
        loss = loop((torch.tensor(0), y), x)[1].sub(0.3).square().sum()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.01 * losses[0]


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        ((short, torch.tanh), {}, "WhileLoop: cell must be a torch.nn.Module"),
        ((3, Cell()), {}, "WhileLoop: cond must be a function of the carry and the inputs; got an int"),
        ((short, Cell()), {"max_steps": -1}, "WhileLoop: max_steps must be between 0"),
        ((short, Cell()), {"on_max_steps": "nil"}, "WhileLoop: on_max_steps='nil' is unknown"),
    ],
    ids=["cell", "cond", "max_steps", "on_max_steps"],
)
def test_bad_arguments_are_named_when_the_module_is_made(arguments: Any, options: Any, says: str) -> None:
    with pytest.raises(dynloop.DynloopError, match=says):
        WhileLoop(*arguments, **options)
