"""Random numbers in a compiled step: drawn from a counter, so that a step run again draws the same.

A step's draws follow from a seed, which the loop draws once, from the number of the step, the place of the draw in the
step and that of the entry in the tensor: two rounds of a mixing of 32 bits that multiplies and shifts (in the manner of
Salmon et al. 2011, whose generators are counters too). So nothing is stored, and the stream is not the one that
torch's generators give outside of a compiled loop.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dynloop.errors import DerivativeError
from dynloop.on_torch.step import Body

aten = torch.ops.aten
MASK, FACTOR = 2**32 - 1, 0x45D9F3B


def mixed(x: Tensor) -> Tensor:
    """32 bits from 32 bits, in a dtype of 64, in which no product overflows."""
    for _ in range(3):
        x = ((x >> 16) ^ x) * FACTOR & MASK
    return (x >> 16) ^ x


class Drawing(torch.fx.Interpreter):
    """Runs the graph of a step with draws of its own."""

    def __init__(self, graph: torch.fx.GraphModule, seed: Tensor, step: Tensor) -> None:
        super().__init__(graph)
        self.key, self.draws = mixed(seed ^ mixed(step & MASK)), 0

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if not is_random(target):
            return super().call_function(target, args, kwargs)
        self.draws += 1
        return RULES[target](self.uniform, *args, **kwargs)

    def uniform(self, shape: Sequence[Any], like: Tensor) -> Tensor:
        """Numbers in (0, 1) of the dtype of `like`; again for another call."""
        size = math.prod(shape)
        entries = torch.arange(size, device=like.device, dtype=torch.int64).reshape(tuple(shape))
        self.draws += 1
        high = mixed((entries + mixed(self.key + 2 * self.draws)) & MASK)
        low = mixed((entries ^ mixed(self.key + 2 * self.draws + 1)) & MASK)
        # 52 bits, and a half, so that neither end is met; rounding to fewer bits may still give 1.
        exact = ((high << 20) + (low >> 12)).to(torch.float64) + 0.5
        return torch.clamp((exact * 2.0**-52).to(like.dtype), max=1 - torch.finfo(like.dtype).eps / 2)


def empty(size: Any, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    return torch.empty(tuple(size), dtype=dtype, device=device)


def normal(uniform: Callable[..., Tensor], like: Tensor) -> Tensor:
    """Two uniform numbers make a normal one (Box & Muller 1958)."""
    radius, angle = uniform(like.shape, like), uniform(like.shape, like)
    return torch.sqrt(-2 * torch.log(radius)) * torch.cos(2 * math.pi * angle)


def integers(uniform: Callable[..., Tensor], low: Any, high: Any, size: Any, **options: Any) -> Tensor:
    like = torch.empty((), dtype=torch.float64, device=options.get("device"))
    drawn = torch.floor(uniform(tuple(size), like) * (high - low)) + low
    return drawn.to(options.get("dtype") or torch.int64)


def of_dtype(x: Tensor, dtype: Any = None, **_: Any) -> Tensor:
    return x if dtype is None else x.to(dtype)


def dropout(uniform: Callable[..., Tensor], x: Tensor, p: float, train: Any = True) -> tuple[Tensor, Tensor]:
    mask = uniform(x.shape, x) >= p if train is None or train else torch.ones_like(x, dtype=torch.bool)
    return x * mask.to(x.dtype) * (1 / (1 - p) if p < 1 and (train is None or train) else 1.0), mask


RULES: dict[Any, Callable[..., Any]] = {
    aten.bernoulli.default: lambda u, p, generator=None: (u(p.shape, p) < p).to(p.dtype),
    aten.bernoulli.p: lambda u, x, p, generator=None: (u(x.shape, x) < p).to(x.dtype),
    aten.bernoulli_.float: lambda u, x, p=0.5, generator=None: x.copy_((u(x.shape, x) < p).to(x.dtype)),
    aten.bernoulli_.Tensor: lambda u, x, p, generator=None: x.copy_((u(x.shape, x) < p).to(x.dtype)),
    aten.rand.default: lambda u, size, **o: u(tuple(size), empty((), **o)),
    aten.rand_like.default: lambda u, x, **o: u(x.shape, of_dtype(x, **o)),
    aten.uniform_.default: lambda u, x, low=0.0, high=1.0, generator=None: x.copy_(u(x.shape, x) * (high - low) + low),
    aten.uniform.default: lambda u, x, low=0.0, high=1.0, generator=None: u(x.shape, x) * (high - low) + low,
    aten.randn.default: lambda u, size, **o: normal(u, empty(size, **o)),
    aten.randn_like.default: lambda u, x, **o: normal(u, of_dtype(x, **o)),
    aten.normal_.default: lambda u, x, mean=0.0, std=1.0, generator=None: x.copy_(normal(u, x) * std + mean),
    aten.normal_functional.default: lambda u, x, mean=0.0, std=1.0, generator=None: normal(u, x) * std + mean,
    aten.normal.Tensor_float: lambda u, mean, std=1.0, generator=None: normal(u, mean) * std + mean,
    aten.normal.Tensor_Tensor: lambda u, mean, std, generator=None: normal(u, mean) * std + mean,
    aten.randint.default: lambda u, high, size, **o: integers(u, 0, high, size, **o),
    aten.randint.low: lambda u, low, high, size, **o: integers(u, low, high, size, **o),
    aten.native_dropout.default: dropout,
}


def is_random(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


def random_operations(graph: torch.fx.GraphModule) -> list[Any]:
    """The random operations of a step."""
    return [node.target for node in graph.graph.nodes if is_random(node.target)]


def check(name: str, graph: torch.fx.GraphModule) -> None:
    """Raises a `DerivativeError` where a draw could not be repeated."""
    unknown = [op for op in random_operations(graph) if op not in RULES]
    inner = [m for _, m in graph.named_modules() if m is not graph and isinstance(m, torch.fx.GraphModule)]
    unknown += [op for m in inner for op in random_operations(m)]
    if unknown:
        raise DerivativeError(
            f"{name}: a gradient runs steps again, and what {unknown[0]} draws there could not be repeated inside of "
            "torch.compile. Draw the numbers before the loop and give them as xs, or call the loop outside of the "
            "compiled function."
        )


class DrawingBody(Body):
    """A body whose draws can be repeated; the last of its constants is the seed."""

    def __init__(self, body: Body, graph: torch.fx.GraphModule) -> None:
        super().__init__(body.cond, body.body, body.signature)
        self.graph = graph

    def holds(self, i: Tensor, state: Sequence[Tensor], constants: Sequence[Any]) -> Tensor:
        return super().holds(i, state, constants[:-1])

    def __call__(
        self, i: Tensor, state: Sequence[Tensor], rows: Sequence[Tensor], constants: Sequence[Any]
    ) -> tuple[list[Tensor], list[Tensor]]:
        *constants, seed = constants
        out = Drawing(self.graph, seed, i).run(i, *state, *rows, *constants)
        return list(out[: self.signature.leaves]), list(out[self.signature.leaves :])
