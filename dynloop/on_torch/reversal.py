"""The gradient of a program: forward by a schedule for its number of steps, and back, one tape at a time."""

import torch
from torch import Tensor

import adjoint
from dynloop.errors import DerivativeError
from dynloop.on_torch import engine, schedules
from dynloop.on_torch.program import Course, Program, pick
from dynloop.on_torch.states import State
from dynloop.on_torch.stepping import added, cut_off, pulled_back, with_gradient
from dynloop.on_torch.structure import Tensors
from dynloop.on_torch.tiers import Kept, Shelves, back
from dynloop.on_torch.verifying import Check


def reversed_gradient(program: Program, run: Course, tensors: Tensors) -> list[Tensor]:
    """tensors: the program's arguments, and cotangents of its results."""
    own, seeds = program.with_seeds(tensors)
    work = Work(program, run, tuple(own), seeds)
    assert run.steps is not None, "the loop has been run"
    actions = schedule_for(program, program.state_bytes(work.init), run.steps).actions(run.steps)
    schedules.carry_out(actions, work.init, work.held, work.advance, work.snapshot, work.restore, work.turn)
    work.check.finish()
    return work.gradient(own)


def schedule_for(program: Program, state_bytes: int, steps: int) -> adjoint.Schedule:
    """The least evaluations in as many slots as the loop's own schedule has."""
    match program.storage.checkpoints:
        case adjoint.Periodic() | adjoint.Binomial(joined=True) as schedule:
            return schedule
    layout = program.storage.layout(state_bytes)
    return adjoint.Binomial(min(layout.slots + layout.leaf, max(steps, 1)), joined=True)


class Work:
    """Cotangents on their way back."""

    def __init__(self, program: Program, run: Course, tensors: Tensors, seeds: list[Tensor]) -> None:
        self.program = program
        self.run = run
        self.constants, self.init, self.xs = program.split(tensors)
        self.held: dict[int, tuple[int, Kept]] = {}
        self.shelves = Shelves.of(program.storage, program.state_bytes(self.init))
        self.leaves = with_gradient(self.constants)
        rest = iter(seeds)
        self.for_carry = [next(rest) if m else None for m in program.of_carry]
        self.for_ys = [next(rest) if m else None for m in program.ys_mask(run)]
        self.for_constants: list[Tensor | None] = [None] * len(self.constants)
        self.for_rows: list[dict[int, Tensor]] = [{} for _ in self.xs]
        self.check = Check(program.name, program.observers, run.last if run.lanes == program.lanes_at_once else None)

    def advance(self, i: int, carry: Tensors) -> Tensors:
        self.program.ask_again(self.run, self.constants, carry)
        with torch.no_grad():
            return cut_off(self.program.step(self.constants, i, carry, self.program.rows(i, self.xs))[0])

    def snapshot(self, carry: Tensors, index: int) -> Kept:
        state = State.of(carry, self.run.surroundings)
        return self.shelves.put(state, index, self.held.values()) if self.shelves else state

    def restore(self, kept: Kept) -> Tensors:
        state = back(kept)
        self.run.surroundings.set(state.moment)
        return state.carry

    def turn(self, i: int, state: Tensors) -> None:
        program = self.program
        program.ask_again(self.run, self.constants, state)
        since = engine.next_sequence_number()
        carry = with_gradient(state)
        row = program.row(i) if program.length is not None else 0
        rows = with_gradient([x[row] for x in self.xs])
        with torch.enable_grad():
            made, y = program.step(self.leaves, i, carry, rows)
            inputs = (*carry, *rows, *self.leaves)
            check_closed(program.name, (*made, *y), inputs, since)
            cotangents = [*self.for_carry, *[None if g is None else g[row] for g in self.for_ys]]
            found = pulled_back((*made, *y), cotangents, inputs)
        self.check.turned(state, made)
        n, m = len(carry), len(carry) + len(rows)
        self.for_carry = found[:n]
        for at, g in enumerate(found[n:m]):
            if g is not None:
                self.for_rows[at][row] = g
        for at, g in enumerate(found[m:]):
            self.for_constants[at] = added(self.for_constants[at], g)

    def gradient(self, tensors: list[Tensor]) -> list[Tensor]:
        """By every floating argument."""
        stacked = [stack_rows(rows, x) for rows, x in zip(self.for_rows, self.xs, strict=True)]
        found = pick([*self.for_constants, *self.for_carry, *stacked], self.program.inputs)
        several = zip(found, pick(tensors, self.program.inputs), strict=True)
        return [torch.zeros_like(x) if g is None else g for g, x in several]


def stack_rows(rows: dict[int, Tensor], x: Tensor) -> Tensor | None:
    """The gradient of a stacked array: zeros in rows that no step has read."""
    if not rows:
        return None
    nothing = torch.zeros_like(x[0])
    return torch.stack([rows.get(i, nothing) for i in range(x.shape[0])])


def check_closed(name: str, outputs: Tensors, inputs: Tensors, since: int) -> None:
    """Everything that the results depend on is among the inputs: nothing bypassed the substitution."""
    known = {id(x) for x in inputs}
    stack = [x.grad_fn for x in outputs if x.grad_fn is not None]
    seen = set(stack)
    while stack:
        for node, _ in stack.pop().next_functions:
            if node is None or node in seen:
                continue
            seen.add(node)
            variable = engine.variable_of(node)
            is_leaf = variable is not None
            if (is_leaf and id(variable) not in known) or (not is_leaf and engine.sequence_number(node) < since):
                raise DerivativeError(
                    f"{name}: a step hands a tensor that it closes over straight to a custom autograd.Function, where "
                    "a derivative of a gradient and the transformations of torch.func cannot follow it; put that "
                    "tensor into the carry, or give the Function its product with 1"
                )
            if not is_leaf:
                stack.append(node)
