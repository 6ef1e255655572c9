"""Substitution: a function runs with other tensors in the place of those that it closes over.

Transformations of `torch.func` and derivatives of derivatives need the closed-over tensors as arguments. Python code
cannot be given arguments that it does not take, but every operation on a tensor passes a torch-function mode first; so
one that stands in for the arguments (`Substitution`) does the same. It knows what was made inside of it, so a tensor
that was not, and that a derivative or a transformation might reach, is found out: the loop begins again with that one
among its constants, rather than with a gradient that lacks it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dynloop.on_torch import engine


class Foreign(Exception):
    """A step has met a tensor that is no argument, seems not to have been made inside, and matters to a derivative."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__("a tensor that is not closed over visibly")
        self.tensor = tensor


class Outsiders:
    """What becomes of tensors that a substitution meets and knows nothing of.

    The first one ends the run (`Foreign`), to begin again with it as an argument. If it isn't met then, it was made
    inside by something that no mode sees, such as a transformation in the step: then they are collected, in runs of the
    whole loop, and those that two runs meet come from outside. When that is settled they pass.
    """

    def __init__(self) -> None:
        self.met: dict[int, Tensor] = {}
        self.used: set[int] = set()
        self.is_collecting = False
        self.is_settled = False

    def meet(self, x: Tensor) -> None:
        if self.is_collecting:
            self.met[id(x)] = x
        elif not self.is_settled:
            raise Foreign(x)


class Substitution(TorchFunctionMode):
    """Inside of it `others` stand in the place of `originals`.

    given: the function's other arguments.   outsiders: who deals with other tensors from outside; None where all are
    known that matter.
    """

    def __init__(
        self,
        originals: Sequence[Tensor],
        others: Sequence[Tensor],
        given: Iterable[Tensor] = (),
        outsiders: Outsiders | None = None,
    ) -> None:
        super().__init__()
        self.others = {id(x): y for x, y in zip(originals, others, strict=True)}
        self.originals = originals
        self.outsiders = outsiders
        self.muted = 0
        # By id, and kept alive so that no id is given twice.
        self.inside: dict[int, Tensor] = {id(x): x for x in (*others, *given)}

    def resolve(self, x: Tensor) -> Tensor:
        """What stands for this tensor."""
        return self.others.get(id(x), x)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = self.put(args), self.put(kwargs or {})
        out = func(*args, **kwargs)
        if self.outsiders is not None and not self.muted:
            self.note(out)
        return out

    def __enter__(self) -> "Substitution":
        self.depth = engine.depth()
        self.since = engine.next_sequence_number()
        self.outside = at_work()
        for mode in self.outside:
            # What is made inside of this one, another one outside cannot tell from what is foreign.
            mode.muted += 1
        super().__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        super().__exit__(*failure)
        for mode in self.outside:
            mode.muted -= 1

    def is_foreign(self, x: Tensor) -> bool:
        if id(x) in self.inside or not matters(x):
            return False
        if not engine.is_wrapped(x):
            return x.grad_fn is None or engine.sequence_number(x.grad_fn) < self.since
        # Inside of a transformation that the step itself makes, what was made inside is wrapped.
        while engine.depth() > self.depth and engine.is_wrapped(x):
            x = engine.unwrapped(x)
            if id(x) in self.inside:
                return False
        return True

    def put(self, value: Any) -> Any:
        """A value, or a container of values, with the substitutes in it."""
        if isinstance(value, Tensor):
            if id(value) in self.others:
                if self.outsiders is not None:
                    self.outsiders.used.add(id(value))
                return self.others[id(value)]
            if self.outsiders is not None and not self.muted and self.is_foreign(value):
                self.outsiders.meet(value)
            return value
        if type(value) in (tuple, list):
            return type(value)(map(self.put, value))
        if type(value) is dict:
            return {key: self.put(x) for key, x in value.items()}
        return value

    def note(self, value: Any) -> None:
        """What was made inside."""
        if isinstance(value, Tensor):
            self.inside[id(value)] = value
        elif isinstance(value, tuple | list):
            for x in value:
                self.note(x)


def at_work() -> list[Substitution]:
    """The substitutions at work, the innermost last."""
    return [mode for mode in engine.modes() if isinstance(mode, Substitution)]


def kept_at_work(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which wherever it is called finds the substitutions that are at work here."""
    here = at_work()
    if not here:
        return f
    originals = [x for mode in here for x in mode.originals]
    others = [resolved(x) for x in originals]

    def again(*args: Any) -> Any:
        with Substitution(originals, others) as substitution:
            out = f(*args)
        return substitution.put(out)

    return again


def entered(value: Any) -> Any:
    """The arguments of a loop as an operation would get them: with what stands for them."""
    for mode in reversed(at_work()):
        value = mode.put(value)
    return value


def note_results(xs: Iterable[Tensor]) -> None:
    """What a loop inside of a substitution gives was made inside."""
    for mode in at_work():
        mode.note(tuple(xs))


def matters(x: Tensor) -> bool:
    """Whether a derivative or a transformation may reach this tensor."""
    return x.requires_grad or engine.is_wrapped(x) or engine.has_tangent(x)


def resolved(x: Tensor) -> Tensor:
    """What the substitutions at work, the innermost first, put in the place of a tensor."""
    for mode in reversed(at_work()):
        x = mode.resolve(x)
    return x


class Witness(TorchFunctionMode):
    """Sees every tensor that an operation is given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.look((args, kwargs or {}))
        return func(*args, **(kwargs or {}))

    def look(self, value: Any) -> None:
        if isinstance(value, Tensor):
            self.seen[id(value)] = value
        elif isinstance(value, tuple | list):
            for x in value:
                self.look(x)
        elif isinstance(value, dict):
            for x in value.values():
                self.look(x)


def read_by(cond: Any, carry: Sequence[Tensor]) -> list[Tensor]:
    """The leaves of the carry that the condition reads."""
    with torch.no_grad(), Witness() as witness:
        cond(*carry)
    return [x for x in carry if id(x) in witness.seen]
