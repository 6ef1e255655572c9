"""PyTorch as a backend of this suite: op by op, with gradients by its own tape or, inside of a transformation, by
`torch.func`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tests.dynloop.adapter import Backend


@dataclass(frozen=True)
class TorchEager(Backend):
    """PyTorch without a compiler."""

    @property
    def name(self) -> str:
        return "torch-eager"

    @property
    def library(self) -> str:
        return "torch"

    @property
    def xp(self) -> Any:
        return torch

    @property
    def eager(self) -> Backend:
        return TORCH_EAGER

    @property
    def forward_mode(self) -> str:
        return "torch.func.jvp"

    @property
    def traces_branches(self) -> bool:
        return False

    @contextmanager
    def in_double_precision(self) -> Iterator[None]:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(before)

    def asarray(self, x: Any, dtype: str = "float64") -> Any:
        if torch.compiler.is_compiling():
            # What the compiler traces makes no array of NumPy first.
            return torch.as_tensor(x, dtype=getattr(torch, dtype))
        return torch.tensor(np.asarray(x), dtype=getattr(torch, dtype))

    def cast(self, x: Any, dtype: str) -> Any:
        return x.to(getattr(torch, dtype))

    def casting(self, dtype: str) -> str:
        return f".to(torch.{dtype})"

    def put(self, array: Any, index: Any, value: Any) -> Any:
        return array.index_put((torch.as_tensor(index),), value)

    def dtype(self, x: Any) -> str:
        return str(x.dtype).removeprefix("torch.")

    def run(self, f: Callable[..., Any]) -> Callable[..., Any]:
        return f

    def step(self, f: Callable[..., Any]) -> Callable[..., Any]:
        return f

    def grad(self, f: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
        def gradient(*args: Any) -> Any:
            if torch._C._are_functorch_transforms_active():
                return torch.func.grad(f, argnums)(*args)
            places = (argnums,) if isinstance(argnums, int) else argnums
            is_inner = any(args[at].requires_grad for at in places)
            given = list(args)
            for at in places:
                given[at] = args[at].view_as(args[at]) if is_inner else args[at].detach().requires_grad_()
            with torch.enable_grad():
                out = f(*given)
            wanted = [given[at] for at in places]
            found = torch.autograd.grad(out, wanted, create_graph=is_inner, allow_unused=True)
            whole = [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=True)]
            return whole[0] if isinstance(argnums, int) else tuple(whole)

        return gradient

    def jvp(self, f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        value, tangent = torch.func.jvp(f, tuple(primals), tuple(tangents))[:2]
        return value, tangent


TORCH_EAGER = TorchEager()


@dataclass(frozen=True)
class TorchAot(TorchEager):
    """PyTorch under `torch.compile` without graph breaks; the compiler's own backend is left out for its time."""

    @property
    def name(self) -> str:
        return "torch-aot"

    @property
    def orders_refused(self) -> frozenset[str]:
        # PyTorch's compiled programs have no second gradient; test_compiled_gradients says what dynloop says.
        return frozenset({"forward over reverse", "reverse over reverse"})

    @property
    def traces_branches(self) -> bool:
        return True

    def run(self, f: Callable[..., Any]) -> Callable[..., Any]:
        torch._dynamo.reset()
        return torch.compile(f, backend="aot_eager", fullgraph=True)

    def grad(self, f: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
        return TORCH_EAGER.grad(self.run(f), argnums)

    def jvp(self, f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        return self.run(lambda *args: torch.func.jvp(f, args[: len(primals)], args[len(primals) :]))(
            *primals, *tangents
        )


TORCH_AOT = TorchAot()
