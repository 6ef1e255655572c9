"""The engine of loops inside torch.compile: a flat loop becomes one call of the operator."""

from collections.abc import Callable
from typing import Any

import torch

from dynloop.checkpoints import Storage
from dynloop.on_torch import forward_mode, internals, lowering, tracing
from dynloop.on_torch.functions import Promotion
from dynloop.on_torch.operator import Static, loop_operator, probe
from dynloop.on_torch.structure import Loop, Outcome
from dynloop.settings import bound_message

__all__ = ["forward_mode", "lowering", "run", "tracing", "under_dynamo"]


def under_dynamo(function: Callable[[], Any]) -> Any:
    """Call a function as Dynamo traces it, which an export without Dynamo needs for each loop, torch's own too."""
    return internals._hop_compile_and_call(lambda: function(), ())


def run(loop: Loop, carry: Any, xs: Any, count: Any) -> Outcome:
    """See `structure.Run`. Dynamo traces this function."""
    carry = promoted(loop, carry, xs)
    bound, n = loop.bound, len(carry)
    is_counted = count is not None or bound is not None or loop.length is not None or loop.options.full_output
    device = carry[0].device if carry else None
    zero = torch.zeros((), dtype=torch.int64, device=device)
    limit: Any = None
    if count is not None:
        limit = count.to(torch.int64) if isinstance(count, torch.Tensor) else torch.full_like(zero, count)
        if bound is not None:
            limit = torch.clamp(limit, max=bound)
    elif bound is not None:
        limit = torch.full_like(zero, bound)
    is_known = loop.cond is None and limit is not None

    def cond(*flat: Any) -> Any:
        i, state = (flat[0], flat[1:]) if is_counted else (None, flat)
        holds = None if loop.cond is None else loop.cond(*state)
        if limit is None:
            return holds
        return i < limit if holds is None else (i < limit) & holds

    def body(*flat: Any) -> Any:
        i, rest = (flat[0], flat[1:]) if is_counted else (zero, flat)
        state, ys = loop.body(i, rest[:n], rest[n:])
        counter = (i + 1,) if is_counted else ()
        return (*counter, *state, *ys)

    carries = [zero, *carry] if is_counted else [*carry]
    if loop.is_backward:
        xs = [x.flip(0) for x in xs]
    most = loop.storage.bound
    counts: Any = [limit] if is_known else []
    sizes = (0 if loop.length is None else loop.length, -1 if most is None else most)
    store = loop.storage
    store = Storage(store.name, store.checkpoints, None, store.is_counted)
    static = Static(store, is_counted, loop.length is not None)
    out = loop_operator(cond, body, carries, list(xs), counts, sizes, [], static=static)
    *out, is_nan = out
    steps, out = (out[0], out[1:]) if is_counted else (zero, out)
    final, ys = out[:n], out[n:]
    if loop.is_backward:
        ys = [y.flip(0) for y in ys]
    is_cut = torch.zeros((), dtype=torch.bool, device=device)
    if bound is not None:
        is_cut = steps >= bound
        if loop.cond is not None:
            is_cut = is_cut & loop.cond(*final)
        if count is not None:
            is_cut = is_cut & (count > bound)
    if bound is not None and loop.options.on_max_steps == "raise":
        # Inductor writes the text into a program in C++, between double quotes.
        internals.assert_async(~is_cut, bound_message(loop.name, None).replace('"', "'"))
    return Outcome(tuple(final), tuple(ys), steps, is_cut, is_nan)


def promoted(loop: Loop, carry: Any, xs: Any) -> Any:
    """The carry, its leaves that were numbers having the dtypes that a step gives them.

    Entry learns the tree of the ys from the same call of the body, of which nothing is left in the program.
    """
    if loop.length is None and all(number is None for number in loop.numbers):
        return carry

    def learn(carry: Any) -> list[torch.dtype]:
        try:
            loop.body(0, carry, tuple(x.new_zeros(x.shape[1:]) for x in xs))
        except Promotion as promotion:
            return promotion.dtypes
        return []

    while True:
        dtypes = probe(learn, carry)
        if not dtypes:
            return carry
        several = zip(carry, loop.numbers, dtypes, strict=True)
        carry = tuple(x if x.dtype is d else torch.tensor(n, dtype=d, device=x.device) for x, n, d in several)
