"""Programs: loops as functions of explicit arguments, and what differentiation makes of them.

A program's arguments are constants, the first carry and stacked arrays, one flat list. Behind each part of the list of
a joint program (`joint`) stand the tangents of its floating entries.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dynloop.checkpoints import Storage
from dynloop.observers import Observer
from dynloop.on_torch.stacking import zeros_like_ys
from dynloop.on_torch.stepping import agreed
from dynloop.on_torch.structure import Loop, Tensors, bytes_of, is_differentiable
from dynloop.on_torch.substitution import Outsiders, Substitution
from dynloop.on_torch.surroundings import Surroundings
from dynloop.on_torch.verifying import Last

Mask = tuple[bool, ...]


@dataclass
class Course:
    """One run of a program, and those that derivatives make of it.

    steps: how many it took, once that is known; then no condition is asked again.   is_cut: the bound ended it.
    of_ys: which ys are floating, once a step has told.   is_first: what it does is seen from outside: it draws random
    numbers, moves statistics and tells observers, and no other run does.   is_trial: it is undone, and run again.
    last: the carry that the first run returned, in so many lanes; 0: it was no batch.
    """

    surroundings: Surroundings
    steps: int | None = None
    is_cut: bool = False
    of_ys: Mask = ()
    is_first: bool = True
    is_trial: bool = False
    last: Last | None = None
    lanes: int = 0


@dataclass(frozen=True)
class Lanes:
    """What a batched program was made of.

    constants, rows: which of them differ between lanes; those have the lanes as first axis.
    """

    base: "Program"
    size: int
    constants: Mask
    rows: Mask
    randomness: str


@dataclass(frozen=True)
class Program:
    """cond: maps (constants, carry) to a boolean 0-d tensor; None: always true.
    step: maps (constants, i, carry, rows) to (carry, ys).
    has_count: the first constant is the number of steps, or the most of them; otherwise `count` is, if there is one.
    of_constants, of_carry, of_xs: which of them are floating.
    primal: the program that this one is the joint program of.
    is_recorded: a step runs as where gradients are wanted.
    """

    name: str
    label: str
    cond: Callable[[Tensors, Tensors], Tensor] | None
    step: Callable[[Tensors, Any, Tensors, Tensors], tuple[Tensors, Tensors]]
    storage: Storage
    bound: int | None
    of_constants: Mask
    of_carry: Mask
    of_xs: Mask
    count: int | None = None
    has_count: bool = False
    length: int | None = None
    is_backward: bool = False
    is_synchronous: bool = False
    tell: Callable[[int, Sequence[Tensor]], None] | None = None
    observers: tuple[Observer, ...] = ()
    functions: tuple[Any, ...] = ()
    primal: "Program | None" = None
    lanes: Lanes | None = None
    is_recorded: bool = True

    # ---- running

    def goes_on(self, run: Course, constants: Tensors, i: int, carry: Tensors) -> bool:
        """Whether step i follows; notes in the run that the bound alone forbids it."""
        if run.steps is not None:
            if i < run.steps:
                self.ask_again(run, constants, carry)
            return i < run.steps
        count = int(constants[0]) if self.has_count else self.count
        if count is not None and i >= (agreed(count, torch.int64) if self.is_synchronous else count):
            return False
        if self.cond is not None:
            holds = bool(self.cond(constants, carry))
            if not (agreed(holds, torch.int32) if self.is_synchronous else holds):
                return False
        run.is_cut = self.bound is not None and i >= self.bound
        return not run.is_cut

    def ask_again(self, run: Course, constants: Tensors, carry: Tensors) -> None:
        """The condition, before a step that runs again: for what it draws and moves."""
        if self.cond is not None and run.surroundings.is_moving:
            with torch.no_grad():
                self.cond(constants, carry)

    def holds(self, constants: Tensors, i: int, carry: Tensors) -> Tensor:
        """The same for one lane, without the bound."""
        holds = torch.ones((), dtype=torch.bool, device=carry[0].device if carry else None)
        if self.has_count:
            holds = holds & (constants[0] > i).to(holds.device)
        elif self.count is not None:
            holds = holds & (self.count > i)
        return holds if self.cond is None else holds & self.cond(constants, carry).to(holds.device)

    def row(self, i: int) -> int:
        assert self.length is not None, "there are rows"
        return self.length - 1 - i if self.is_backward else i

    def rows(self, i: int, xs: Tensors) -> Tensors:
        return tuple([x[self.row(i)] for x in xs])

    def written(self, stacked: list[Tensor] | None, i: int, y: Tensors) -> list[Tensor] | None:
        if not y:
            return stacked
        if stacked is None:
            stacked = [x.new_zeros((self.length or 0, *x.shape)) for x in y]
        for buffer, x in zip(stacked, y, strict=True):
            buffer[self.row(i)] = x
        return stacked

    def nothing_stacked(self, constants: Tensors, init: Tensors, xs: Tensors) -> list[Tensor]:
        """The ys of no step: zeros, of shapes that a step without values tells."""
        if self.length is None:
            return []
        if self.lanes is not None:
            lanes = self.lanes
            one = [c[0] if m else c for c, m in zip(constants, lanes.constants, strict=True)]
            rows = [x[:, 0] if m else x for x, m in zip(xs, lanes.rows, strict=True)]
            ys = lanes.base.nothing_stacked(tuple(one), tuple(x[0] for x in init[2:]), tuple(rows))
            return [y.new_zeros((self.length, lanes.size, *y.shape[1:])) for y in ys]
        step = lambda carry, rows: self.step(constants, 0, carry, rows)
        return zeros_like_ys(self.name, self.label, self.length, step, init, xs, self.functions)

    # ---- arguments and results

    @property
    def inputs(self) -> Mask:
        return (*self.of_constants, *self.of_carry, *self.of_xs)

    def split(self, xs: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
        """Constants, carry, stacked arrays; what follows them is left out."""
        n, m = len(self.of_constants), len(self.of_constants) + len(self.of_carry)
        return tuple(xs[:n]), tuple(xs[n:m]), tuple(xs[m : m + len(self.of_xs)])

    def with_seeds(self, xs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The arguments, and what stands behind them."""
        n = len(self.inputs)
        return list(xs[:n]), list(xs[n:])

    def ys_mask(self, run: Course) -> Mask:
        """Which ys are floating."""
        if self.lanes is not None:
            return self.lanes.base.ys_mask(run)
        if self.primal is None:
            return run.of_ys
        primal = self.primal.ys_mask(run)
        return (*primal, *[True] * sum(primal))

    @property
    def lanes_at_once(self) -> int:
        """0: it is no batch."""
        return self.lanes.size if self.lanes else 0

    def state_bytes(self, init: Tensors) -> int:
        """Of one lane."""
        return bytes_of(init) // (self.lanes.size if self.lanes else 1)

    # ---- joint programs

    def dense(self, tensors: Sequence[Tensor], tangents: Sequence[Tensor | None]) -> list[Tensor]:
        """A tangent for every floating argument."""
        several = zip(tensors, tangents, self.inputs, strict=True)
        return [torch.zeros_like(x) if t is None else t for x, t, m in several if m]

    def joined(self, tensors: Sequence[Tensor], tangents: Sequence[Tensor]) -> list[Tensor]:
        """The joint program's arguments; a tangent for each floating one of these."""
        parts, rest, out = self.split(tensors), list(tangents), []
        for part, mask in zip(parts, (self.of_constants, self.of_carry, self.of_xs), strict=True):
            out += [*part, *rest[: sum(mask)]]
            rest = rest[sum(mask) :]
        return out

    def primal_inputs(self, gradient: Sequence[Tensor]) -> list[Tensor]:
        """Of the joint program's gradient, what belongs to this program's arguments."""
        rest, out = list(gradient), []
        for mask in (self.of_constants, self.of_carry, self.of_xs):
            out += rest[: sum(mask)]
            rest = rest[2 * sum(mask) :]
        return out

    def joint_seeds(self, primal: Sequence[Tensor], tangent: Sequence[Tensor]) -> list[Tensor]:
        """Cotangents of the joint program's results, from those of this program's results and of their tangents."""
        n = sum(self.of_carry)
        return [*primal[:n], *tangent[:n], *primal[n:], *tangent[n:]]

    def tangents_of(self, run: Course, out: Sequence[Tensor]) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """Tangents of the carry and of the ys among what running the joint program gave; None for what has none."""
        n, of_ys = len(self.of_carry), self.ys_mask(run)
        carry = out[n : n + sum(self.of_carry)]
        at = n + len(carry) + len(of_ys)
        return spread(self.of_carry, carry), spread(of_ys, out[at : at + sum(of_ys)])


def spread(mask: Mask, xs: Iterable[Tensor]) -> list[Tensor | None]:
    """The entries, in order, where the mask is true; None elsewhere."""
    rest = iter(xs)
    return [next(rest) if m else None for m in mask]


def pick(xs: Iterable[Any], mask: Iterable[bool]) -> list[Any]:
    return [x for x, m in zip(xs, mask, strict=True) if m]


def merge(mask: Mask, new: Iterable[Any], old: Iterable[Any]) -> tuple[Any, ...]:
    """`old` with the entries whose mask is true replaced, in order, by those of `new`."""
    fresh = iter(new)
    return tuple([next(fresh) if m else x for m, x in zip(mask, old, strict=True)])


def program_of(
    loop: Loop, originals: Sequence[Tensor], carry: Tensors, xs: Tensors, count: Any, outsiders: Outsiders | None
) -> tuple[Program, Tensors]:
    """The program of a loop that closes over `originals`, and its constants.

    outsiders: who deals with other tensors; None where all are known that matter.
    """
    has_count = isinstance(count, Tensor)
    constants = (*([count] if has_count else []), *originals)
    skipped = int(has_count)
    is_recorded = torch.is_grad_enabled()

    def step(constants: Tensors, i: Any, carry: Tensors, rows: Tensors) -> tuple[Tensors, Tensors]:
        substitution = Substitution(originals, constants[skipped:], (*carry, *rows), outsiders)
        # A step may ask for the grad mode, and finds that of the call; the operations around it switch it off.
        with torch.set_grad_enabled(is_recorded or torch.is_grad_enabled()), substitution:
            out = loop.body(i, carry, rows)
        # A tensor that is closed over may be returned as it is.
        return substitution.put(out)

    def cond(constants: Tensors, carry: Tensors) -> Tensor:
        assert loop.cond is not None, "it is left out otherwise"
        with Substitution(originals, constants[skipped:], carry, outsiders):
            return loop.cond(*carry)

    of_constants, of_carry, of_xs = (tuple(map(is_differentiable, these)) for these in (constants, carry, xs))
    program = Program(
        name=loop.name,
        label=loop.labels[1],
        cond=cond if loop.cond is not None else None,
        step=step,
        storage=loop.storage,
        bound=loop.bound,
        of_constants=of_constants,
        of_carry=of_carry,
        of_xs=of_xs,
        count=None if has_count else count,
        has_count=has_count,
        length=loop.length,
        is_backward=loop.is_backward,
        is_synchronous=loop.options.sync is not None,
        tell=loop.tell,
        observers=loop.options.observers,
        functions=loop.functions,
        is_recorded=is_recorded,
    )
    return program, constants
