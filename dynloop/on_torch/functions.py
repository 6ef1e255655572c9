"""The user's functions as flat ones: called with trees, checked against the carry at every step.

Every check looks at what a tensor knows of itself without waiting for a device: dtype, shape, device, and the counter
of changes in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dynloop.carry import check_devices, check_leaves, check_structure, ran_with
from dynloop.errors import ArgumentTypeError, CarryError, described
from dynloop.on_torch import leaves as leaf
from dynloop.on_torch.structure import Tensors, name_of
from dynloop.on_torch.trees import flatten, in_words, paths_of, same, unflatten


@dataclass(frozen=True)
class Form:
    """What kind of loop it is.

    name: the public function.   labels: what it calls the condition and the body.
    stops: the condition says when to stop, not when to go on.
    has_index: body takes the index first.   rows: the tree of what body takes, row by row, after the carry.
    has_ys: body returns a pair (carry, y).
    """

    name: str
    labels: tuple[str, str]
    stops: bool = False
    has_index: bool = False
    rows: Any = None
    has_ys: bool = False


class Promotion(Exception):
    """The first step gave other dtypes to leaves that were numbers in init; the loop begins again with these."""

    def __init__(self, dtypes: list[torch.dtype]) -> None:
        self.dtypes = dtypes


class Ys:
    """The tree of what body returns to be stacked, known once it has run, and the kinds of its leaves."""

    def __init__(self) -> None:
        self.tree: Any = None
        self.kinds: list[tuple[torch.dtype, tuple[int, ...]]] | None = None

    def check(self, form: Form, tree: Any, y: Tensors) -> None:
        """Every step gives the same."""
        where, paths = f"{form.name}: what {form.labels[1]} returns to be stacked", paths_of(tree)
        if tree != self.tree:
            had = ", ".join(f"y{path}" for path in paths_of(self.tree))
            raise ArgumentTypeError(
                f"{where} changed its structure from one step to another: {had or 'None'} at first, then "
                f"{', '.join(f'y{path}' for path in paths) or 'None'}; return the same structure at every step"
            )
        kinds = [(x.dtype, tuple(x.shape)) for x in y]
        if self.kinds is None:
            self.kinds = kinds
        if kinds == self.kinds:
            return
        for path, x, (dtype, shape) in zip(paths, y, self.kinds, strict=True):
            if (x.dtype, tuple(x.shape)) != (dtype, shape):
                raise ArgumentTypeError(
                    f"{where} changed from one step to another: y{path} was {name_of(dtype)}{list(shape)} and is "
                    f"{leaf.in_words(x)}; give each leaf of it one dtype and one shape, such as by .to(torch."
                    f"{name_of(dtype)})"
                )


def flat_cond(form: Form, cond: Any, tree: Any) -> Callable[..., Tensor]:
    label = form.labels[0]

    def holds(*carry: Tensor) -> Tensor:
        try:
            found = cond(unflatten(tree, carry))
        except Exception as error:
            error.add_note(ran_with(form.name, label, unflatten(tree, [leaf.in_words(x) for x in carry])))
            raise
        if not isinstance(found, Tensor):
            found = _number(form.name, label, found)
        if found.dtype is not torch.bool or found.shape:
            raise ArgumentTypeError(
                f"{form.name}: {label} must return a boolean scalar; got {leaf.in_words(found)}. "
                "Reduce it with .any() or .all(), or compare it with something."
            )
        return ~found if form.stops else found

    return holds


def _number(name: str, label: str, found: Any) -> Tensor:
    if not isinstance(found, (bool, *leaf.ARRAYS)):
        raise ArgumentTypeError(
            f"{name}: {label} must return a boolean scalar; got {described(found)}. "
            "Return one comparison, such as `carry[0] < 10`."
        )
    return torch.as_tensor(found)


def flat_body(
    form: Form, body: Any, tree: Any, numbers: tuple[Any, ...], index: Any, ys: Ys
) -> Callable[[Any, Tensors, Tensors], Any]:
    """index: maps the number of steps taken to the index that body gets."""
    name, label = form.name, form.labels[1]
    has_numbers = any(number is not None for number in numbers)

    def step(i: Any, carry: Tensors, rows: Tensors) -> tuple[Tensors, Tensors]:
        is_first = has_numbers and isinstance(i, int) and i == 0
        given = unflatten(tree, carry)
        versions, versions_of_rows = versions_of(carry), versions_of(rows)
        try:
            if form.has_index:
                out = body(index(i), given)
            elif form.has_ys:
                out = body(given, unflatten(form.rows, rows))
            else:
                out = body(given)
        except Exception as error:
            error.add_note(ran_with(name, label, unflatten(tree, [leaf.in_words(x) for x in carry])))
            raise
        y = None
        if form.has_ys:
            out, y = pair(form, out)
        if versions != versions_of(carry):
            raise _changed_in_place(name, label, tree, carry, versions)
        if versions_of_rows != versions_of(rows):
            raise _row_changed(form, versions_of_rows, rows)
        after = _leaves_of(name, label, tree, carry, out)
        if is_first and (dtypes := _promoted(numbers, carry, after)):
            raise Promotion(dtypes)
        _check(name, label, tree, carry, after)
        if not form.has_ys:
            return after, ()
        found, structure = flatten(y)
        if ys.tree is None:
            # Once: a compiled loop may not change what lies outside of it.
            ys.tree = structure
        if not all(isinstance(x, Tensor) for x in found):
            device = leaf.device_of(after, rows)
            where = f" in what {label} returned"
            several = zip(paths_of(structure), found, strict=True)
            found = [leaf.as_tensor(name, f"y{p}", x, where, device) for p, x in several]
        if not torch.compiler.is_compiling():
            ys.check(form, structure, tuple(found))
        return after, tuple(found)

    return step


def pair(form: Form, out: Any) -> tuple[Any, Any]:
    """What body returned, as (carry, y)."""
    if isinstance(out, tuple | list) and len(out) == 2:
        return out[0], out[1]
    raise ArgumentTypeError(
        f"{form.name}: {form.labels[1]} must return a pair, the carry and what is stacked (None for nothing); "
        f"got {described(out)}"
    )


def versions_of(carry: Sequence[Tensor]) -> list[int]:
    """How often each was changed in place; nothing is known of tensors made in inference mode."""
    if torch.compiler.is_compiling():
        # There the operator sees what changes.
        return [0] * len(carry)
    try:
        return [x._version for x in carry]
    except RuntimeError:
        return []


def _changed_in_place(name: str, label: str, tree: Any, carry: Sequence[Tensor], versions: Sequence[int]) -> CarryError:
    several = zip(paths_of(tree), versions, versions_of(carry), strict=True)
    changed = ", ".join(f"carry{path}" for path, old, new in several if old != new)
    return CarryError(
        f"{name}: {label} changed {changed} in place; a state must stay as it is, since a gradient may read it again. "
        f"Return a tensor of its own, such as by x + 1 instead of x += 1, or begin {label} with a .clone()"
    )


def _row_changed(form: Form, versions: Sequence[int], rows: Sequence[Tensor]) -> CarryError:
    several = zip(paths_of(form.rows), versions, versions_of(rows), strict=True)
    changed = ", ".join(f"x{path}" for path, old, new in several if old != new)
    return CarryError(
        f"{form.name}: {form.labels[1]} changed {changed}, a row of xs, in place; a gradient may read it again. "
        "Return a tensor of its own, such as by x * 2 instead of x.mul_(2)"
    )


def _leaves_of(name: str, label: str, tree: Any, before: Tensors, out: Any) -> Tensors:
    """The leaves of the carry that body returned, each a tensor."""
    found, structure = flatten(out)
    if not same(structure, tree):
        check_structure(name, label, in_words(tree), in_words(structure), (paths_of(tree), paths_of(structure)))
    if all(isinstance(x, Tensor) for x in found):
        return tuple(found)
    several = zip(paths_of(tree), found, before, strict=True)
    return tuple(leaf.as_leaf(x, y, name, f"carry{path}", f" in what {label} returned") for path, x, y in several)


def _check(name: str, label: str, tree: Any, before: Tensors, after: Tensors) -> None:
    """Each leaf keeps its dtype, shape and device."""
    for x, y in zip(after, before, strict=True):
        if x.dtype is not y.dtype or x.shape != y.shape or x.device != y.device:
            break
    else:
        return
    paths = paths_of(tree)
    check_leaves(
        name,
        label,
        *[[leaf.described(p, x) for p, x in zip(paths, these, strict=True)] for these in (before, after)],
        cast=".to(torch.{})",
    )
    check_devices(name, label, paths, *[[str(x.device) for x in these] for these in (before, after)])


def _promoted(numbers: tuple[Any, ...], before: Tensors, after: Tensors) -> list[torch.dtype]:
    """The dtypes of the carry, if leaves that were numbers in init get another one; else nothing."""
    dtypes = [x.dtype for x in before]
    for at, (number, old, new) in enumerate(zip(numbers, before, after, strict=True)):
        if number is None or old.dtype is new.dtype or old.shape != new.shape:
            continue
        if torch.result_type(torch.empty(1, dtype=new.dtype), number) is new.dtype:
            dtypes[at] = new.dtype
    return dtypes if any(d is not x.dtype for d, x in zip(dtypes, before, strict=True)) else []
