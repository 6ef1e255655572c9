"""Loops outside of `torch.compile`: a Python loop, and what a gradient will need of it.

Where gradients are wanted each step runs with its graph, which tells what the step closes over and is dropped then.
Inside of the transformations of `torch.func` the loop is a function of explicit arguments instead (`whole`).
"""

from dataclasses import replace
from functools import partial
from typing import Any

import torch

import adjoint
from dynloop import debugging
from dynloop.errors import ArgumentError
from dynloop.on_torch import engine, schedules, transformed, unrecorded
from dynloop.on_torch.asking import asking, is_asking
from dynloop.on_torch.captured import Captured
from dynloop.on_torch.leaving import refuse_gradients
from dynloop.on_torch.node import Node, Past, Versioned
from dynloop.on_torch.reporting import count_run, is_listening, refuse_transformations
from dynloop.on_torch.searching import Found, search
from dynloop.on_torch.stacking import nothing_stacked
from dynloop.on_torch.states import State
from dynloop.on_torch.status import nan_of
from dynloop.on_torch.stepping import Walk, apart, check_bound, cut_off, with_gradient
from dynloop.on_torch.structure import Loop, Outcome, Tensors, bytes_of
from dynloop.on_torch.substitution import entered, kept_at_work, note_results, resolved
from dynloop.on_torch.surroundings import Surroundings, check_devices, without_autocast_cache
from dynloop.on_torch.tiers import Shelves
from dynloop.on_torch.verifying import last_of


def run(loop: Loop, carry: Tensors, xs: Tensors, count: Any) -> Outcome:
    """See `structure.Run`."""
    carry, xs, count = entered((carry, xs, count))
    if debugging.is_on():
        return taped(loop, carry, xs, count)
    if engine.is_transforming():
        refuse_transformations()
        found = transformed.run(loop, carry, xs, count)
        if unrecorded.is_cutting():
            # Whoever watches sees operations, and a loop is none.
            carry, ys = (tuple([x.clone() for x in these]) for these in (found.carry, found.ys))
            found = found._replace(carry=carry, ys=ys)
    else:
        found = run_here(loop, carry, xs, count)
    note_results((*found.carry, *found.ys))
    return found


def run_here(loop: Loop, carry: Tensors, xs: Tensors, count: Any) -> Outcome:
    """Where no transformation is at work."""
    walk = Walk(loop, cut_off(xs), None if count is None else int(count))
    if torch.is_grad_enabled():
        # A gradient may run the body again where no substitution is at work any more.
        loop = replace(loop, body=kept_at_work(loop.body))
        with without_autocast_cache():
            return remembered(loop, carry, xs, walk)
    return untaped(loop, carry, xs, walk)


def untaped(loop: Loop, init: Tensors, xs: Tensors, walk: Walk) -> Outcome:
    """Without a gradient there is nothing but the loop."""
    carry, i = init, 0
    while walk.goes_on(i, carry):
        carry, y = loop.body(i, carry, walk.rows(i))
        walk.write(i, y)
        if loop.tell is not None:
            loop.tell(i, carry)
        i += 1
    check_bound(loop, walk.is_cut)
    if is_listening():
        count_run(loop, schedule_of(loop, init, walk), bytes_of(init), i)
    ys = walk.stacked or (nothing_stacked(loop, init, xs) if i == 0 else [])
    return outcome(loop, walk, apart((*carry, *ys), init), i)


def remembered(loop: Loop, init: Tensors, xs: Tensors, walk: Walk) -> Outcome:
    """With what a gradient will need of it."""
    found = search(loop.functions)
    found.tensors = [(name, resolved(x)) for name, x in found.tensors]
    check_devices(loop.name, init)
    captured, surroundings = Captured(loop.name, found), Surroundings(found)
    before = [(name, x, x._version) for name, x in found.tensors if not x.is_inference()]
    schedule = schedule_of(loop, init, walk)
    shelves = Shelves.of(loop.storage, bytes_of(init))
    put = shelves.put if shelves is not None else None
    keeper = schedules.Keeper(schedule, *how_many(loop, walk), put) if schedule is not None else None
    begun = with_gradient if loop.is_asking else cut_off
    carry, i = begun(init), 0
    while walk.goes_on(i, carry):
        if keeper is not None:
            keeper.see(i, partial(State.of, carry, surroundings))
        since = engine.next_sequence_number()
        rows = walk.rows(i)
        if loop.is_asking:
            rows = with_gradient(rows)
            captured.given = {id(x) for x in (*carry, *rows)}
        try:
            after, y = loop.body(i, carry, rows)
        except RuntimeError as error:
            if not is_asking(loop, error):
                raise
            surroundings.set(surroundings.first)
            return remembered(asking(loop, told=i), init, xs, Walk(loop, walk.xs, walk.count))
        captured.look((*after, *y), since, partial(once_more, loop, surroundings, i, carry, rows))
        carry = begun(after)
        if i == 0:
            surroundings.settle()
        walk.write(i, y)
        if loop.tell is not None:
            loop.tell(i, carry)
        i += 1
    surroundings.finish()
    check_bound(loop, walk.is_cut)
    count_reversal = count_run(loop, schedule, bytes_of(init), i)
    if i == 0:
        walk.stacked = nothing_stacked(loop, init, xs)
    ys = tuple(walk.stacked or ())
    inputs = (*init, *xs, *captured.tensors)
    outputs = apart((*carry, *ys), inputs)
    if any(x.requires_grad for x in inputs):
        refuse_gradients(loop.name, found.containers)
        held = keeper.held if keeper is not None else {}
        closed_over = after_run(found, captured, surroundings, before)
        last = last_of(outputs[: len(init)])
        past = Past(loop, walk, surroundings, schedule, i, held, *closed_over, count_reversal, last, shelves)
        outputs = Node.apply(past, outputs, *inputs)
    return outcome(loop, walk, outputs, i)


def once_more(loop: Loop, surroundings: Surroundings, i: int, carry: Tensors, rows: Tensors) -> None:
    with surroundings.untouched():
        loop.body(i, carry, rows)


def is_known(loop: Loop, walk: Walk) -> bool:
    """The number of steps is given when the loop starts."""
    return walk.count is not None and loop.cond is None


def schedule_of(loop: Loop, init: Tensors, walk: Walk) -> adjoint.Schedule | None:
    """What its gradient follows; None for forward mode alone."""
    if loop.storage.is_forward_only:
        return None
    return schedules.schedule_of(loop.storage, bytes_of(init), is_known(loop, walk))


def how_many(loop: Loop, walk: Walk) -> tuple[int | None, int | None]:
    """The number of steps, if it is known; and the most of them, if there is such a number."""
    bounds = [n for n in (walk.count, loop.bound, loop.storage.bound) if n is not None]
    most = min(bounds, default=None)
    return (most if is_known(loop, walk) else None), most


def after_run(
    found: Found, captured: Captured, surroundings: Surroundings, before: list[Versioned]
) -> tuple[list[Versioned], list[Versioned], str | None]:
    """What the steps have read, what they may have read, and why they cannot be run again, if they cannot."""
    moving = {id(x) for x in surroundings.movers}
    fixed = [(name, x, v) for name, x, v in before if not x.requires_grad and id(x) not in moving]
    changed = [name for name, x, version in fixed if x._version != version]
    read = [(found.name_of(x), x, x._version) for x in captured.tensors if id(x) in captured.read]
    trouble = (
        f"body changes what it closes over in place ({', '.join(changed)}), so its steps cannot be run again for a "
        "gradient; put that into the carry"
    )
    return read, fixed, trouble if changed else surroundings.trouble


def taped(loop: Loop, init: Tensors, xs: Tensors, count: Any) -> Outcome:
    """The plain Python loop, for `dynloop.debug()`: every step on one tape."""
    if loop.options.sync:
        raise ArgumentError(f"{loop.name}: dynloop.debug() runs in one process; leave sync={loop.options.sync!r} out")
    walk = Walk(loop, xs, None if count is None else int(count))
    carry, i, made = init, 0, dict[int, Tensors]()
    while walk.goes_on(i, carry):
        rows = walk.rows(i)
        carry, y = loop.body(i, carry, rows)
        made[loop.row(i) if loop.length is not None else i] = y
        if loop.tell is not None:
            loop.tell(i, carry)
        i += 1
    check_bound(loop, walk.is_cut)
    ys = nothing_stacked(loop, init, xs) if not made else []
    if made and loop.length is not None:
        nothing = [torch.zeros_like(x) for x in next(iter(made.values()))]
        rows_of = [made.get(row, nothing) for row in range(loop.length)]
        ys = [torch.stack([row[at] for row in rows_of]) for at in range(len(nothing))]
    return outcome(loop, walk, (*carry, *ys), i)


def outcome(loop: Loop, walk: Walk, outputs: Tensors, steps: int) -> Outcome:
    carry, ys = outputs[: len(loop.numbers)], outputs[len(loop.numbers) :]
    is_nan = nan_of(loop, carry) if loop.options.full_output else None
    return Outcome(carry, ys, torch.tensor(steps), torch.tensor(walk.is_cut), is_nan)
