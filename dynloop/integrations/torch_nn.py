"""A loop as a module of PyTorch: a cell that is applied to its own result while a condition holds.

A recurrent cell with adaptive computation time (Graves 2016) and an equilibrium layer (Bai et al. 2019) are of this
kind. The loop is `dynloop.while_loop`; what the module adds is the place of the parameters. The cell is a submodule, so
whatever walks over modules finds it: optimisers, `state_dict`, `train`, `eval`, `to`, hooks, DDP and `torch.compile`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import nn

from dynloop.checkpoints import Checkpoints
from dynloop.errors import ArgumentTypeError, described
from dynloop.loops import while_loop
from dynloop.observers import Observer
from dynloop.settings import OnMaxSteps, check_function, checked

__all__ = ["WhileLoop"]

NAME = "WhileLoop"


class WhileLoop(nn.Module):
    """A module that runs `carry = cell(carry, *inputs)` while `cond(carry, *inputs)` holds.

    Args:
        cond: takes the carry and the inputs, returns a boolean scalar tensor. A module is registered as the submodule
            `cond`, and nothing in it is differentiated; a function is an attribute, and no part of `state_dict`.
        cell: a module that takes the carry and the inputs, and returns a carry of the same structure, shapes and
            dtypes. It is the submodule `cell`, whose parameters are the keys `cell.…` of `state_dict`.
        max_steps: the largest number of steps; None, no bound, is the default, as in `dynloop.while_loop`.
        checkpoints: how many states a gradient keeps, as in `dynloop.while_loop`; `"auto"` is what 4 MiB hold.
        on_max_steps, full_output, sync, observe: as in `dynloop.while_loop`. A cell that communicates, such as one with
            `SyncBatchNorm`, wants `sync="any"`.

    Returns:
        Called with the first carry, a pytree of tensors, and with the inputs, which each step gets unchanged, the
        module returns the last carry; with `full_output` a `dynloop.Result`. The carry, the inputs
        and the parameters get gradients.

    Raises:
        ArgumentError, ArgumentTypeError: when the module is made, an argument is out of its range or kind.
        When it is called, as `dynloop.while_loop`.

    Cost:
        That of `dynloop.while_loop`. A gradient runs steps again, and with them the forward hooks of the cell and of
        what lies in it; hooks of the loop itself run once a call. Random numbers repeat, and running statistics move
        once a step.

    An equilibrium layer, which settles at another point for another input:

    >>> import torch
    >>> from dynloop.integrations.torch_nn import WhileLoop
    >>> class Settle(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.weight = torch.nn.Parameter(torch.tensor(0.5))
    ...     def forward(self, carry, x):
    ...         y, _ = carry
    ...         return torch.cos(self.weight * y) + x, y
    >>> moves = lambda carry, x: (carry[0] - carry[1]).abs() > 1e-6
    >>> layer = WhileLoop(moves, Settle(), max_steps=100, checkpoints=8)
    >>> y, _ = layer((torch.tensor(0.0), torch.tensor(1.0)), torch.tensor(0.1))
    >>> y.backward()
    >>> print(f"{y:.4f} {layer.cell.weight.grad:.4f}", list(layer.state_dict()))
    0.9819 -0.3746 ['cell.weight']
    """

    def __init__(
        self,
        cond: Callable[..., Any],
        cell: nn.Module,
        *,
        max_steps: int | None = None,
        checkpoints: Checkpoints = "auto",
        on_max_steps: OnMaxSteps = "raise",
        full_output: bool = False,
        sync: Literal["any"] | None = None,
        observe: Observer | Sequence[Observer] | None = None,
    ) -> None:
        super().__init__()
        check_function(NAME, "cond", cond, "the carry and the inputs")
        if not isinstance(cell, nn.Module):
            # A function's parameters would be in no state_dict and get no optimiser, silently.
            raise ArgumentTypeError(
                f"{NAME}: cell must be a torch.nn.Module, so that its parameters are found; got {described(cell)}; "
                "a function without parameters goes to dynloop.while_loop"
            )
        checked(NAME, checkpoints, max_steps, on_max_steps, full_output, sync, observe)
        # Any: a cell has attributes of its own, which its user reaches through the loop.
        self.cell: Any = cell
        self.cond = cond
        self.max_steps, self.full_output, self.observe = max_steps, full_output, observe
        self.checkpoints: Checkpoints = checkpoints
        self.on_max_steps: OnMaxSteps = on_max_steps
        self.sync: Literal["any"] | None = sync

    def forward(self, carry: Any, *inputs: Any) -> Any:
        """The last carry of the loop that starts at `carry`; the class says what else."""
        return while_loop(
            lambda carry: self.cond(carry, *inputs),
            lambda carry: self.cell(carry, *inputs),
            carry,
            max_steps=self.max_steps,
            checkpoints=self.checkpoints,
            on_max_steps=self.on_max_steps,
            full_output=self.full_output,
            sync=self.sync,
            observe=self.observe,
            backend="torch",
        )

    def extra_repr(self) -> str:
        """What `print` shows of the options, beside the submodules."""
        return f"max_steps={self.max_steps}, checkpoints={self.checkpoints!r}, on_max_steps={self.on_max_steps!r}"
