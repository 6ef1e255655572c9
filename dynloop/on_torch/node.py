"""A loop that ran step by step, as one node of the graph: forward it hands out what the steps made, backward it runs
them again from the states that were kept, one tape at a time.

The steps have run before the node exists, since only they tell which tensors they close over, and a node must know
its inputs when it is made. First derivatives are taken here; a derivative of the gradient is taken of the loop as a
function of explicit arguments (`whole`).
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import adjoint
from dynloop.errors import DerivativeError
from dynloop.on_torch import engine, schedules, transformed
from dynloop.on_torch.reversal import check_closed, stack_rows
from dynloop.on_torch.states import State
from dynloop.on_torch.stepping import Walk, added, cut_off, pulled_back, with_gradient
from dynloop.on_torch.structure import Loop, Tensors, is_differentiable
from dynloop.on_torch.substitution import Substitution, Witness
from dynloop.on_torch.surroundings import Surroundings
from dynloop.on_torch.tiers import Kept, Shelves, back
from dynloop.on_torch.verifying import Check, Last

# A tensor with its name and its version.
Versioned = tuple[str, Tensor, int]


@dataclass
class Past:
    """What one run of a loop leaves for its gradient.

    read, fixed: tensors closed over, with names and with the versions after the run: captured ones that steps have
    read, and others that they may have read, which no edge of a graph tells.
    trouble: why its steps cannot be run again, if they cannot.   count_reversal: see `reporting.count_run`.
    last: the carry that it returned.   shelves: where kept states lie; None: on the device.
    """

    loop: Loop
    walk: Walk
    surroundings: Surroundings
    schedule: adjoint.Schedule | None
    steps: int
    held: dict[int, tuple[int, Kept]]
    read: list[Versioned]
    fixed: list[Versioned]
    trouble: str | None
    count_reversal: Callable[[int], None] | None
    last: Last
    shelves: Shelves | None = None

    def check(self) -> None:
        """The steps can be run again as they were."""
        name = self.loop.name
        if self.loop.storage.is_forward_only:
            self.loop.storage.layout(1)
        if self.trouble:
            raise DerivativeError(f"{name}: {self.trouble}")
        for label, x, version in self.read:
            if x._version != version:
                raise self.changed(label)

    def changed(self, label: str) -> RuntimeError:
        return RuntimeError(
            f"{self.loop.name}: {label} was changed in place after the loop ran and before its gradient was taken, so "
            "its steps cannot be run again as they were; change it after the backward pass"
        )

    def suspects(self) -> dict[int, str]:
        """The names, by ids, of what has changed since and is an error if a step reads it."""
        return {id(x): label for label, x, version in self.fixed if x._version != version}

    def kept(self) -> dict[int, tuple[int, Kept]]:
        """The states, which are used up unless the graph is kept."""
        if engine.is_graph_kept():
            return dict(self.held)
        held, self.held = self.held, {}
        return held


class Backward:
    """One reversal: the cotangents on their way back."""

    def __init__(self, past: Past, xs: Tensors, captured: Tensors, cotangents: list[Tensor | None]) -> None:
        self.past = past
        self.loop = past.loop
        self.xs = xs
        self.captured = captured
        # On copies of what is captured, a step is taped where one of them may depend on another one, and where hooks
        # would see the gradient of every step; and on the tensors themselves elsewhere, which is faster.
        self.is_apart = any(not x.is_leaf or x._backward_hooks for x in captured)
        self.leaves = with_gradient(captured) if self.is_apart else captured
        carries = len(cotangents) - (len(past.walk.stacked or ()))
        self.cotangents, self.for_ys = cotangents[:carries], cotangents[carries:]
        self.for_captured: list[Tensor | None] = [None] * len(captured)
        self.for_rows: list[dict[int, Tensor]] = [{} for _ in xs]
        self.check = Check(self.loop.name, self.loop.options.observers, past.last)
        self.suspects = past.suspects()

    def run(self) -> None:
        past = self.past
        assert past.schedule is not None, "it is not for forward mode alone"
        self.held = past.kept()
        if past.count_reversal is not None:
            past.count_reversal(past.steps)
        with past.surroundings.again():
            schedules.reverse(
                past.schedule, past.steps, self.held, self.advance, self.snapshot, self.restore, self.turn
            )
        self.check.finish()

    def advance(self, i: int, carry: Tensors) -> Tensors:
        # As the step ran at first: with a graph, which a step may ask about, and which is dropped.
        with torch.enable_grad():
            after = cut_off(self.loop.body(i, carry, self.past.walk.rows(i))[0])
            if self.loop.cond is not None and self.past.surroundings.is_moving and i + 1 < self.past.steps:
                # For what it draws and moves; the states were kept after the condition had been asked.
                self.loop.cond(*after)
        return after

    def snapshot(self, carry: Tensors, index: int) -> Kept:
        state = State.of(carry, self.past.surroundings)
        return self.past.shelves.put(state, index, self.held.values()) if self.past.shelves else state

    def restore(self, kept: Kept) -> Tensors:
        state = back(kept)
        if any(x._version != version for x, version in zip(state.carry, state.versions, strict=True)):
            raise RuntimeError(
                f"{self.loop.name}: a state that the loop kept was changed in place before its gradient was taken; "
                "what a loop starts from, and what it returns, must stay as it is until then"
            )
        self.past.surroundings.set(state.moment)
        return state.carry

    def turn(self, i: int, state: Tensors) -> None:
        since = engine.next_sequence_number()
        carry = with_gradient(state)
        row = self.loop.row(i) if self.loop.length is not None else 0
        rows = tuple([x[row].detach().requires_grad_(x.requires_grad or self.asks_of(x)) for x in self.xs])
        inputs = (*carry, *rows, *self.leaves)
        cotangents = [*self.cotangents, *[None if g is None else g[row] for g in self.for_ys]]
        with torch.enable_grad(), Witness() if self.suspects else nullcontext() as witness:
            if self.is_apart:
                # The pull-back stays inside: a loop in the body runs its steps again there.
                with Substitution(self.captured, self.leaves) as substitution:
                    made, y = substitution.put(self.loop.body(i, carry, rows))
                    check_closed(self.loop.name, (*made, *y), inputs, since)
                    found = pulled_back((*made, *y), cotangents, inputs)
            else:
                made, y = self.loop.body(i, carry, rows)
                found = pulled_back((*made, *y), cotangents, inputs)
        if witness is not None:
            for key in self.suspects.keys() & witness.seen.keys():
                raise self.past.changed(self.suspects[key])
        self.check.turned(state, made)
        n, m = len(carry), len(carry) + len(rows)
        self.cotangents = found[:n]
        for at, g in enumerate(found[n:m]):
            if g is not None:
                self.for_rows[at][row] = g
        for at, g in enumerate(found[m:]):
            self.for_captured[at] = added(self.for_captured[at], g)

    def asks_of(self, x: Tensor) -> bool:
        """Whether a step may take a gradient by a row of it."""
        return self.loop.is_asking and is_differentiable(x)

    def gradient(self) -> list[Tensor | None]:
        """By the first carry, the stacked arrays and what is closed over."""
        stacked = [stack_rows(rows, x) for rows, x in zip(self.for_rows, self.xs, strict=True)]
        return [*self.cotangents, *stacked, *self.for_captured]


class Node(torch.autograd.Function):
    """inputs: the first carry, the stacked arrays, what is closed over."""

    @staticmethod
    def forward(past: Past, outputs: Tensors, *inputs: Tensor) -> Any:
        return outputs

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensors) -> None:
        past, _, *tensors = inputs
        ctx.past = past
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[x for x in output if not is_differentiable(x)])
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
        past: Past = ctx.past
        past.check()
        tensors = ctx.saved_tensors
        carries = len(past.loop.numbers)
        carry, xs = tensors[:carries], tensors[carries : carries + len(past.walk.xs)]
        captured = tensors[carries + len(xs) :]
        if torch.is_grad_enabled():
            for label in past.suspects().values():
                raise past.changed(label)
            found = transformed.gradient_of(past, carry, xs, captured, cotangents)
        else:
            work = Backward(past, xs, captured, list(cotangents))
            work.run()
            found = work.gradient()
        wanted = zip(found, tensors, ctx.needs_input_grad[2:], strict=True)
        return None, None, *[(torch.zeros_like(x) if g is None else g) if w else None for g, x, w in wanted]
