"""One of two processes that train together; `python -m tests.on_torch.ranks RANK PORT` prints what it saw, as JSON."""

import json
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import dynloop
from dynloop.integrations.torch_nn import WhileLoop


class Times(nn.Module):
    """One step: y times w."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(2.0))

    def forward(self, y: Tensor) -> Tensor:
        return y * self.w


def averaged(y: Tensor) -> Tensor:
    """A body with a collective: every process must take every step."""
    total = y.clone()
    dist.all_reduce(total)
    return 2 * y + 0 * total


def main(rank: int) -> dict[str, Any]:
    cell = Times()
    model = WhileLoop(lambda y: y < 10, cell, checkpoints=1)
    trained = DistributedDataParallel(model)
    seen: dict[str, Any] = {"slopes": []}
    for start in (20.0 if rank == 0 else 1.0, 1.0):
        trained(torch.tensor(start)).backward()
        assert cell.w.grad is not None
        seen["slopes"].append(float(cell.w.grad))
    start = torch.tensor(9.0 if rank == 0 else 1.0, requires_grad=True)
    result = dynloop.while_loop(lambda y: y < 10, averaged, start, sync="any", full_output=True, checkpoints=1)
    (slope,) = torch.autograd.grad(result.carry, start)
    seen["together"] = [int(result.steps), float(result.carry.detach()), float(slope)]
    counted = dynloop.fori_loop(0, 1 + 2 * rank, lambda i, y: averaged(y), torch.tensor(1.0), sync="any")
    seen["counted"] = float(counted)
    return seen


if __name__ == "__main__":
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[2], "WORLD_SIZE": "2", "RANK": sys.argv[1]}
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    print(json.dumps(main(int(sys.argv[1]))))
    dist.destroy_process_group()
