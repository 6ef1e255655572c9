"""The public loops on PyTorch: the way in.

Trees become leaves, functions and options become a `Loop`, and what running it gives becomes trees again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dynloop.checkpoints import Memory, Storage, storage
from dynloop.errors import ArgumentError, ArgumentTypeError, described
from dynloop.location import location
from dynloop.on_torch import eager, observing
from dynloop.on_torch.engine import is_at_hand
from dynloop.on_torch.functions import Form, Promotion, Ys, flat_body, flat_cond
from dynloop.on_torch.leaves import ARRAYS, NUMBERS, as_tensor, device_of, in_words
from dynloop.on_torch.searching import search
from dynloop.on_torch.structure import Loop, Outcome, Tensors, bytes_of, is_differentiable, name_of
from dynloop.on_torch.surroundings import Surroundings
from dynloop.on_torch.trees import flatten, paths_of, unflatten
from dynloop.result import Result, StoppedBecause
from dynloop.rows import MOST, agreed_length
from dynloop.settings import Options

INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64)


def while_loop(cond: Any, body: Any, init: Any, options: Options) -> Any:
    """See `dynloop.while_loop`, which has checked the options."""
    if wants_dynamo():
        return under_dynamo(lambda: while_loop(cond, body, init, options))
    return run(Form(options.name, ("cond", "body")), cond, body, init, options)


def fori_loop(lower: Any, upper: Any, body: Any, init: Any, options: Options) -> Any:
    """See `dynloop.fori_loop`."""
    if wants_dynamo():
        return under_dynamo(lambda: fori_loop(lower, upper, body, init, options))
    first, last = (_as_index(options.name, label, x) for label, x in (("lower", lower), ("upper", upper)))
    dtype = _index_dtype(options.name, first, last)
    form = Form(options.name, ("", "body"), has_index=True)
    device = device_of([first, last])
    # Known before a step runs, to the plan as well; but a bound on them only where they are the program's own.
    is_static = isinstance(first, int) and isinstance(last, int)
    first, last = (int(x) if isinstance(x, Tensor) and is_at_hand(x) else x for x in (first, last))
    if isinstance(first, int) and isinstance(last, int):
        steps = max(last - first, 0)
        if steps > MOST:
            raise ArgumentError(f"{options.name}: upper - lower is {steps}; at most 2**31 - 1 steps can be counted")

        def index(i: Any) -> Tensor:
            if isinstance(i, Tensor):
                return (i + first).to(dtype)
            return torch.full((), first + i, dtype=dtype, device=device)

        return run(form, None, body, init, options, steps, index, steps if is_static else None)
    first, last = (torch.as_tensor(x, dtype=torch.int64, device=device) for x in (first, last))
    count = torch.clamp(last - first, 0, MOST)
    return run(form, None, body, init, options, count, lambda i: (first + i).to(dtype))


def scan(step: Any, init: Any, xs: Any, length: int | None, until: Any, reverse: bool, options: Options) -> Any:
    """See `dynloop.scan`."""
    if wants_dynamo():
        return under_dynamo(lambda: scan(step, init, xs, length, until, reverse, options))
    leaves, tree = flatten(xs)
    paths = paths_of(tree)
    device = device_of(leaves, flatten(init)[0])
    stacked = tuple(as_tensor(options.name, f"xs{p}", x, " in xs", device) for p, x in zip(paths, leaves, strict=True))
    length = agreed_length(options.name, [(p, tuple(x.shape)) for p, x in zip(paths, stacked, strict=True)], length)
    form = Form(options.name, ("until", "step"), stops=True, rows=tree, has_ys=True)
    return run(form, until, step, init, options, length, None, length, stacked, length, reverse)


def wants_dynamo() -> bool:
    """Whether torch is tracing without Dynamo, as an export may, which needs it for each loop all the same."""
    return torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling()


def under_dynamo(call: Any) -> Any:
    from dynloop.on_torch import compiled

    return compiled.under_dynamo(call)


def run(
    form: Form,
    cond: Any,
    body: Any,
    init: Any,
    options: Options,
    count: Any = None,
    index: Any = None,
    most: int | None = None,
    xs: Tensors = (),
    length: int | None = None,
    is_backward: bool = False,
) -> Any:
    """count: the number of steps, or the most.   most: the same, where it is known whatever the data are."""
    given, tree = flatten(init)
    bounds = [n for n in (options.max_steps, most) if n is not None]
    is_counted = options.max_steps is not None or options.full_output
    is_known = count is not None and cond is None
    store = storage(
        form.name,
        options.checkpoints,
        bounds[0] if len(bounds) == 1 else min(*bounds) if bounds else None,
        is_known=is_known,
        is_counted=is_counted,
        where="" if torch.compiler.is_compiling() else location(body),
        has_files=not torch.compiler.is_compiling(),
    )
    if store.has_host and torch.compiler.is_compiling():
        raise ArgumentError(
            f"{form.name}: checkpoints={options.checkpoints!r} names memory of the host, which a loop inside of "
            "torch.compile cannot use; give a number of slots or dynloop.Memory(...), or run the loop outside"
        )
    carry, numbers = tuple(given), (None,) * len(given)
    if not all(isinstance(x, Tensor) for x in given):
        carry, numbers = _converted(form.name, given, paths_of(tree), device_of(given, xs))
    _check_memory(store, carry)
    ys = Ys()
    loop = Loop(
        flat_cond(form, cond, tree) if cond is not None else None,
        flat_body(form, body, tree, numbers, index, ys),
        options,
        form.labels,
        store,
        tree,
        numbers,
        length,
        is_backward,
        observing.teller(options, tree),
        (cond, body),
    )
    if torch.compiler.is_compiling():
        # Loaded late: it brings torch's compiler, which takes seconds.
        from dynloop.on_torch import compiled

        _check_compiled(options)
        outcome = compiled.run(loop, carry, xs, count)
    else:
        outcome = _begun_again_for_numbers(loop, carry, xs, count)
    return _finished(form, options, tree, ys, outcome)


def _check_compiled(options: Options) -> None:
    """What a compiled loop would leave out is refused: nobody outside of its program sees a step of it."""
    if options.observers:
        raise ArgumentError(
            f"{options.name}: observe= is not supported inside torch.compile, where Python sees no step of a loop; "
            "leave it out, or call the loop outside of torch.compile"
        )
    if options.sync:
        raise ArgumentError(
            f"{options.name}: sync={options.sync!r} is not supported inside torch.compile, where a loop asks no other "
            "process; leave it out, or call the loop outside of torch.compile"
        )


def _begun_again_for_numbers(loop: Loop, carry: Tensors, xs: Tensors, count: Any) -> Outcome:
    has_numbers = any(n is not None for n in loop.numbers)
    surroundings = Surroundings(search(loop.functions)) if has_numbers else None
    while True:
        try:
            return eager.run(loop, carry, xs, count)
        except Promotion as promotion:
            assert surroundings is not None, "only numbers are promoted"
            # The first step runs again, and draws and moves the same.
            surroundings.set(surroundings.first)
            several = zip(carry, loop.numbers, promotion.dtypes, strict=True)
            carry = tuple(x if x.dtype is d else torch.tensor(n, dtype=d, device=x.device) for x, n, d in several)


def _converted(name: str, given: list[Any], paths: list[str], device: Any) -> tuple[Tensors, tuple[Any, ...]]:
    several = zip(given, paths, strict=True)
    carry = tuple(as_tensor(name, f"carry{path}", x, " in init", device) for x, path in several)
    return carry, tuple(x if isinstance(x, NUMBERS) and not isinstance(x, ARRAYS) else None for x in given)


def _check_memory(store: Storage, carry: Tensors) -> None:
    """A Memory that is too small fails at the call, not at the gradient."""
    is_symbolic = torch.compiler.is_compiling() and not isinstance(store.checkpoints, Memory)
    if store.counts_bytes and not store.is_forward_only and not is_symbolic:
        store.layout(bytes_of(carry))


def _finished(form: Form, options: Options, tree: Any, ys_of: Ys, outcome: Outcome) -> Any:
    """What the bound makes of the results, as the user's trees."""
    carry, ys, steps, is_cut, is_nan = outcome
    if options.max_steps is not None and options.on_max_steps == "nan":
        carry, ys = (tuple(_nan_where(is_cut, x) for x in these) for these in (carry, ys))
    carry = unflatten(tree, carry)
    stacked = unflatten(ys_of.tree, ys) if form.has_ys else None
    if not options.full_output:
        return (carry, stacked) if form.has_ys else carry
    assert is_nan is not None, "asked for with full_output"
    is_cut = is_cut.to(is_nan.device)
    status = torch.where(is_cut, StoppedBecause.BOUND.value, StoppedBecause.CONDITION.value)
    status = torch.where(is_nan, StoppedBecause.NONFINITE.value, status)
    return Result(carry, steps.to(torch.int32), status.to(torch.int32), stacked)


def _nan_where(is_cut: Tensor, x: Tensor) -> Tensor:
    """A product rather than a choice, so that cotangents become NaN too."""
    if not is_differentiable(x):
        return x
    factor = torch.where(is_cut, torch.nan, 1.0).to(device=x.device)
    if x.dtype.is_complex:
        # By parts: a complex product with 1 would turn inf + 0j into inf + nan j.
        return torch.view_as_complex(torch.view_as_real(x.resolve_conj()) * factor.to(x.real.dtype))
    return x * factor.to(x.dtype)


def _as_index(name: str, label: str, x: Any) -> Any:
    """A bound of a `fori_loop`: an int or an integer 0-d tensor."""
    if isinstance(x, ARRAYS) and x.shape == () and x.dtype.kind in "iu":
        return torch.as_tensor(x)
    if isinstance(x, int) and not isinstance(x, bool):
        if not -(2**63) <= x < 2**63:
            raise ArgumentError(f"{name}: {label}={x} is not an integer that PyTorch can hold: 64 bits are too few")
        return x
    if not isinstance(x, Tensor) or x.shape or x.dtype not in INTEGERS:
        given = in_words(x) if isinstance(x, Tensor) else described(x)
        raise ArgumentTypeError(f"{name}: {label} must be an integer scalar; got {given}")
    return x


def _index_dtype(name: str, first: Any, last: Any) -> torch.dtype:
    """The dtype of both bounds; a number takes that of the other one."""
    dtypes = [x.dtype for x in (first, last) if isinstance(x, Tensor)]
    if not dtypes:
        return torch.int64
    if dtypes[0] is dtypes[-1]:
        return dtypes[0]
    # By NumPy's rules, since torch.promote_types knows none for uint16, uint32 and uint64.
    joined = np.promote_types(*[name_of(dtype) for dtype in (dtypes[0], dtypes[-1])])
    if joined.kind in "iu":
        return getattr(torch, joined.name)
    raise ArgumentTypeError(
        f"{name}: lower is {name_of(dtypes[0])} and upper is {name_of(dtypes[1])}, and no integer dtype holds both; "
        "give them the same dtype"
    )
