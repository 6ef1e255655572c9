"""Lanes: a batch of loops as one program, in which each lane stops by itself.

Behind a flag and a count for each lane stands the batched carry. A step takes the lanes that are still on, and those
alone: the body, batched by `torch.vmap`, never sees the state of another one, so what would be undefined there does no
harm, in a value or in a gradient. When every lane is on nothing is copied.
A batch of batches is one batch of all the lanes, since what a step does depends on which of them are on.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dynloop.errors import BatchingError
from dynloop.on_torch.program import Lanes, Mask, Program
from dynloop.on_torch.structure import Tensors


def in_lanes(base: Program, size: int, constants: Mask, rows: Mask, randomness: str) -> Program:
    """The batched program; constants, rows: which of the base's differ between lanes."""
    if base.is_synchronous:
        raise BatchingError(
            f'{base.name}: sync="any" and torch.vmap do not go together: processes agree on one condition, and lanes '
            "have one each; put the batch into the carry"
        )

    def take(xs: Sequence[Tensor], differ: Sequence[bool], on: Tensor | None) -> Tensors:
        return tuple([x.index_select(0, on) if m and on is not None else x for x, m in zip(xs, differ, strict=True)])

    def step(constants_of: Tensors, i: Any, carry: Tensors, rows_of: Tensors) -> tuple[Tensors, Tensors]:
        is_on, taken, *state = carry
        on = None if bool(is_on.all()) else is_on.nonzero().squeeze(1)

        def one(constants: Tensors, carry: Tensors, rows: Tensors) -> tuple[Tensors, Tensors, Tensor]:
            after, y = base.step(constants, i, carry, rows)
            return after, y, base.holds(constants, i + 1, after)

        every = [True] * len(state)
        given = (take(constants_of, constants, on), take(state, every, on), take(rows_of, rows, on))
        after, y, holds = batched(one, (constants, every, rows), randomness)(*given)
        if on is not None:
            after = tuple([x.index_copy(0, on, new) for x, new in zip(state, after, strict=True)])
            y = tuple([x.new_zeros((size, *x.shape[1:])).index_copy(0, on, x) for x in y])
            holds = torch.zeros_like(is_on).index_copy(0, on, holds)
        return (holds, taken + is_on, *after), y

    def tell(i: int, carry: Sequence[Tensor]) -> None:
        assert base.tell is not None, "it is left out otherwise"
        for lane in (carry[1] == i + 1).nonzero().flatten().tolist():
            base.tell(i, [x[lane] for x in carry[2:]])

    return replace(
        base,
        cond=lambda constants, carry: carry[0].any(),
        step=step,
        of_carry=(False, False, *base.of_carry),
        count=None,
        has_count=False,
        tell=tell if base.tell is not None else None,
        primal=None,
        lanes=Lanes(base, size, constants, rows, randomness),
    )


def batched(f: Callable[..., Any], differ: tuple[Sequence[bool], ...], randomness: str) -> Callable[..., Any]:
    in_dims = tuple([tuple([0 if m else None for m in mask]) for mask in differ])
    return torch.vmap(f, in_dims=in_dims, randomness=randomness)


class Batch:
    """A program's arguments with a batch axis at any place, or none, made into those of its lanes."""

    def __init__(self, program: Program, info: Any, is_differentiated: bool) -> None:
        """is_differentiated: every lane has gradients of its own, so every floating argument is to differ."""
        self.program = program
        self.size: int = info.batch_size
        self.randomness: str = info.randomness
        self.is_differentiated = is_differentiated
        # The lanes that the program has already.
        self.inner = program.lanes

    def given(self, dims: Sequence[int | None], tensors: Sequence[Tensor]) -> tuple[Program, list[Tensor]]:
        """The program of all lanes, and its arguments."""
        program, inner = self.program, self.inner
        parts, at = program.split(tensors), program.split(dims)
        kept = (len(parts[0]), len(parts[1]), len(parts[2]))
        differ = (inner.constants, (True,) * kept[1], inner.rows) if inner else ((False,) * n for n in kept)
        every = zip(parts, at, differ, (program.of_constants, (True,) * kept[1], program.of_xs), strict=True)
        self.differ, out = [], []
        for part, (these, dims_of, was, floating) in enumerate(every):
            must = [part == 1 or (self.is_differentiated and f) for f in floating]
            now = [m or d is not None or w for m, d, w in zip(must, dims_of, was, strict=True)]
            self.differ.append(tuple(now))
            several = zip(these, dims_of, was, now, strict=True)
            out.append([self.moved(x, d, w, int(part == 2)) if n else x for x, d, w, n in several])
        base = inner.base if inner else program
        size = self.size * inner.size if inner else self.size
        lanes = in_lanes(base, size, self.differ[0], self.differ[2], self.randomness)
        if not inner:
            out[1] = [*self.begin(base, out[0], out[1]), *out[1]]
        return lanes, [x for part in out for x in part]

    def begin(self, base: Program, constants: Sequence[Tensor], carry: Sequence[Tensor]) -> list[Tensor]:
        """Which lanes take a first step, and that none has been taken."""
        every = [True] * len(carry)
        holds = lambda constants, carry: base.holds(constants, 0, carry)
        is_on = batched(holds, (self.differ[0], every), self.randomness)(tuple(constants), tuple(carry))
        return [is_on, torch.zeros(self.size, dtype=torch.int64, device=is_on.device)]

    def moved(self, x: Tensor, dim: int | None, is_inner: bool, place: int) -> Tensor:
        """With one axis for all lanes at this place; is_inner: it has one for the lanes that there were."""
        x = (
            x.unsqueeze(place).expand(*x.shape[:place], self.size, *x.shape[place:])
            if dim is None
            else x.movedim(dim, place)
        )
        if self.inner is None:
            return x
        if not is_inner:
            x = x.unsqueeze(place + 1)
            x = x.expand(*x.shape[: place + 1], self.inner.size, *x.shape[place + 2 :])
        return x.flatten(place, place + 1)

    def seeds(self, dims: Sequence[int | None], cotangents: Sequence[Tensor]) -> list[Tensor]:
        """Cotangents of the carry and of the ys."""
        carries = sum(self.program.of_carry)
        several = zip(cotangents, dims, strict=True)
        return [self.moved(x, d, self.inner is not None, int(at >= carries)) for at, (x, d) in enumerate(several)]

    def parted(self, x: Tensor, place: int) -> Tensor:
        """All lanes as the batch of what there was."""
        return x if self.inner is None else x.unflatten(place, (self.size, self.inner.size))

    def results(self, out: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[Any, ...]]:
        """Of running all lanes, what the program gives, and where its batch axes are."""
        carries = len(self.program.of_carry) + (0 if self.inner else 2)
        carry, ys, steps, is_cut = out[:carries], out[carries:-2], out[-2], out[-1]
        if self.inner is None:
            found = (*carry[2:], *ys, carry[1], carry[0])
            return found, (*[0] * (carries - 2), *[1] * len(ys), 0, 0)
        found = (*[self.parted(x, 0) for x in carry], *[self.parted(x, 1) for x in ys], steps, is_cut)
        return found, (*[0] * carries, *[1] * len(ys), None, None)

    def gradients(self, found: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """The gradient by the program's arguments, and where its batch axes are."""
        program, inner, out = self.program, self.inner, []
        masks = (program.of_constants, program.of_carry, program.of_xs)
        was = (inner.constants, (True,) * len(masks[1]), inner.rows) if inner else ((True,) * len(m) for m in masks)
        places = [int(part == 2) for part, m in enumerate(masks) for f in m if f]
        is_inner = [w for m, these in zip(masks, was, strict=True) for w, f in zip(these, m, strict=True) if f]
        for x, place, w in zip(found, places, is_inner, strict=True):
            x = self.parted(x, place)
            # What the lanes that there were share gets the sum of their gradients.
            out.append(x if w else x.sum(place + 1))
        return tuple(out), tuple(places)
