"""What PyTorch offers to `@dynloop.loop`, beside its loops: leaves and their kinds, truth values, items.

Outside of `torch.vmap` a tensor knows its truth, so nothing is traced there: a branch is Python's, and a loop
is handed over with a body that runs at every step (`dynloop.syntax.eagerly`). Under `torch.vmap` a piece is run once on
all lanes to learn what it gives, without a gradient and with the random numbers put back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dynloop import branches
from dynloop.on_torch import engine, followed, trees
from dynloop.syntax.arrays import Kind, Late

NAME = "torch"

_NUMBERS = (bool, int, float, complex)
ARRAYS = (np.ndarray, np.generic)
_ONE = trees.flatten(torch.zeros(()))[1]


def is_eager(array: Any) -> bool:
    return not torch.compiler.is_compiling() and not engine.is_wrapped(array)


def is_leaf(value: Any) -> bool:
    if isinstance(value, ARRAYS):
        return value.dtype.kind in "biufc"
    return isinstance(value, (Tensor, *_NUMBERS))


def flatten(value: Any) -> tuple[list[Any], list[str], Any]:
    if isinstance(value, Tensor) and not torch.compiler.is_compiling():
        return [value], [""], _ONE
    parts, tree = trees.flatten(value)
    return parts, trees.paths_of(tree), tree


def unflatten(tree: Any, parts: Sequence[Any]) -> Any:
    return parts[0] if tree is _ONE else trees.unflatten(tree, parts)


def is_same_tree(one: Any, other: Any) -> bool:
    return one is other or trees.same(one, other)


def kind(leaf: Any) -> Kind:
    if isinstance(leaf, _NUMBERS):
        return Kind((), _dtype(leaf), True)
    tensor = leaf if isinstance(leaf, Tensor) else torch.as_tensor(leaf)
    return Kind(tuple(tensor.shape), tensor.dtype, False)


def _dtype(number: Any) -> torch.dtype:
    if isinstance(number, bool):
        return torch.bool
    if isinstance(number, int):
        return torch.int64
    real = torch.get_default_dtype()
    return real if isinstance(number, float) else torch.promote_types(real, torch.complex64)


def joined(number: Kind, other: Kind) -> Kind:
    """As PyTorch promotes: a number changes a tensor's dtype only if it is of a greater category."""
    if other.is_number:
        return Kind(number.shape, torch.promote_types(number.dtype, other.dtype), True)
    dtype = other.dtype if _category(number.dtype) <= _category(other.dtype) else number.dtype
    return Kind(number.shape, dtype, False)


def _category(dtype: torch.dtype) -> int:
    return 0 if dtype is torch.bool else 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1


def of_kind(leaf: Any, kind: Kind, like: Any = None) -> Any:
    """like: a tensor, on whose device a number goes."""
    device = like.device if isinstance(like, Tensor) else None
    if isinstance(leaf, Tensor):
        # What a compiled body returns may be nothing that it was given.
        return leaf.to(kind.dtype).clone() if torch.compiler.is_compiling() else leaf.to(kind.dtype)
    return torch.as_tensor(leaf, dtype=kind.dtype, device=device)


def zeros(kind: Kind) -> Any:
    return torch.zeros(kind.shape, dtype=kind.dtype)


@dataclass(frozen=True)
class Trial:
    """A function of leaves that was run once, to see what it gives; it runs again wherever it is wanted.

    constants: whether a result was a number.   found: the results, where Dynamo is inside of a probe all the while.
    """

    function: Callable[[list[Any]], tuple[list[Any], Any]]
    kinds: list[Kind]
    constants: list[bool]
    aside: Any
    found: list[Any] | None = None

    has_effects = True

    def is_constant(self, place: int) -> bool:
        return self.constants[place]

    def __call__(self, leaves: Sequence[Any]) -> list[Any]:
        return self.function(list(leaves))[0] if self.found is None else self.found


def trace(function: Callable[[list[Any]], tuple[list[Any], Any]], leaves: Sequence[Any]) -> Trial:
    def learn() -> tuple[list[Kind], list[bool], Any]:
        found, aside = function(list(leaves))
        return [kind(x) for x in found], [not isinstance(x, Tensor) for x in found], aside

    if is_trying():
        found, aside = function(list(leaves))
        return Trial(function, [kind(x) for x in found], [not isinstance(x, Tensor) for x in found], aside, found)
    if torch.compiler.is_compiling():
        # Loaded late: it brings torch's compiler.
        from dynloop.on_torch import compiled

        learnt: Any = compiled.probe(learn)
        return Trial(function, *learnt)
    with torch.no_grad(), torch.random.fork_rng():
        return Trial(function, *learn())


def is_trying() -> bool:
    if not torch.compiler.is_compiling():
        return False
    from dynloop.on_torch import trying

    return trying.is_trying()


def cond(holds: Any, true: Late, false: Late, kinds: Sequence[Kind]) -> list[Any]:
    if torch.compiler.is_compiling():
        from dynloop.on_torch import compiled_cond

        return compiled_cond.chosen(holds, true, false, [kind.dtype for kind in kinds])
    return list(branches.cond(holds, true, false))


def truth(array: Any) -> Any:
    return array if array.dtype is torch.bool else array != 0


def negation(truth: Any) -> Any:
    return ~truth


def junction(left: Any, right: Late, is_and: bool) -> Any:
    if is_eager(left) and left.numel() == 1:
        # Python's own rule; a tensor all the same, so that what depends on it is staged.
        found = right() if bool(left) == is_and else left
        return found if isinstance(found, Tensor) else torch.as_tensor(found, device=left.device)
    other = torch.as_tensor(right(), device=left.device)
    if left.dtype is torch.bool and other.dtype is torch.bool:
        return left & other if is_and else left | other
    return torch.where(truth(left), other, left) if is_and else torch.where(truth(left), left, other)


def item(array: Any, index: Any) -> Any:
    found = followed.place_in(array, index) if torch.compiler.is_compiling() else None
    if found is None:
        return array[index]
    return item(array.index_select(found.axis, found.place), found.rest)


def with_item(array: Any, index: Any, value: Any) -> Any:
    new = torch.as_tensor(array)
    found = followed.place_in(new, index) if torch.compiler.is_compiling() else None
    if found is None:
        new = new.clone()
        new[index] = value
        return new
    row = with_item(new.index_select(found.axis, found.place), found.rest, value)
    return new.index_copy(found.axis, found.place, row)


def index(start: Any, stop: Any) -> tuple[Any, Any]:
    like = next((x for x in (start, stop) if isinstance(x, Tensor)), None)
    dtype = like.dtype if like is not None else torch.int64
    device = like.device if like is not None else None
    several = (torch.as_tensor(x, dtype=dtype, device=device) for x in (start, stop))
    return next(several), next(several)


def numbers(start: int, rows: Any) -> Any:
    return torch.arange(start, start + rows.shape[0], device=rows.device)


def row(rows: Any) -> Any:
    return rows[0] if rows.shape[0] else rows.new_zeros(rows.shape[1:])


def require(holds: Any, message: str, leaves: Sequence[Any]) -> list[Any]:
    if torch.compiler.is_compiling():
        # Inductor writes the text into a program in C++, between double quotes.
        torch._assert_async(holds, message.replace('"', "'"))  # pyright: ignore[reportPrivateImportUsage]
        return list(leaves)
    if not is_eager(holds):
        raise RuntimeError(f"{message}: an assert has no truth inside of torch.vmap; leave it out there")
    if not bool(holds):
        raise AssertionError(message)
    return list(leaves)


def random_state() -> Any:
    """That of the generators, to be put back by `restore`."""
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []


def restore(state: Any) -> None:
    torch.set_rng_state(state[0])
    if state[1]:
        torch.cuda.set_rng_state_all(state[1])
