"""A branch handed to `dynloop.cond`: both paths traced once, what they assign brought into one form."""

# What stands in a signature inside of a function is evaluated at each call, which `torch.compile` cannot follow.
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dynloop.syntax import session
from dynloop.syntax.arrays import Kind, Staging, Traced
from dynloop.syntax.merging import Merged, Sides, branch_sides, merged
from dynloop.syntax.refusals import scalar
from dynloop.syntax.site import Site
from dynloop.syntax.state import Form, Forms, Leaf, Static, Unassigned, packed

Path = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True)
class Traversed:
    """One path, traced: the forms of what it assigns. Numbers of Python are static in them."""

    forms: Forms
    run: Traced

    def part(self, name: int, part: int, leaves: Sequence[Any]) -> Any:
        form = self.forms[name]
        assert form is not None
        found = form.parts[part]
        return leaves[found.place] if isinstance(found, Leaf) else found.value


def stage_if(
    staging: Staging, site: Site, condition: Any, paths: tuple[Path, Path], values: tuple[Any, ...]
) -> tuple[Any, ...]:
    holds = scalar(staging, str(site), condition)
    both = _traversed(staging, paths[0], values), _traversed(staging, paths[1], values)
    sides = branch_sides(str(site))
    forms = [_joined(staging, sides, site, both, place) for place in range(len(site.names))]
    true, false = _branch(staging, both[0], forms), _branch(staging, both[1], forms)
    kinds = [kind for form in forms if form is not None for kind in form.kinds if isinstance(kind, Kind)]
    results = []
    if kinds or both[0].run.has_effects or both[1].run.has_effects:
        results = true() if staging.is_trying() else staging.cond(holds, true, false, kinds)
    named = zip(site.names, forms, strict=True)
    return tuple(Unassigned(name) if form is None else _value(staging, form, results) for name, form in named)


def choose(staging: Staging, where: str, condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """`then() if condition else otherwise()`."""
    site = Site("choice", where, ("its value",), (True,), -1)
    paths = (lambda: (then(),)), (lambda: (otherwise(),))
    return stage_if(staging, site, condition, paths, ())[0]


def _traversed(staging: Staging, path: Path, values: tuple[Any, ...]) -> Traversed:
    def flat(_: list[Any]) -> tuple[list[Any], Forms]:
        return packed(staging, path(*values), keep_numbers=True)

    run = session.within(staging, lambda _: staging.trace(flat, []))
    return Traversed(run.aside, run)


@dataclass(frozen=True)
class Result:
    """A name that has a value on a path at least.   only: the path that has it, or None if both do."""

    form: Form
    kinds: list[Kind | Static]
    only: int | None = None


def _joined(staging: Staging, sides: Sides, site: Site, both: tuple[Traversed, Traversed], place: int) -> Result | None:
    forms = both[0].forms[place], both[1].forms[place]
    if forms[0] is not None and forms[1] is not None:
        kinds = both[0].run.kinds, both[1].run.kinds
        found: Merged = merged(staging, sides, site.names[place], (forms[0], forms[1]), kinds)
        return Result(found.form, found.kinds)
    for path, form in enumerate(forms):
        if form is not None and not site.unsure[place]:
            kinds = [_kind(staging, part, both[path]) for part in form.parts]
            return Result(form, kinds, path)
    return None


def _kind(staging: Staging, part: Static | Leaf, path: Traversed) -> Kind | Static:
    if isinstance(part, Leaf):
        return path.run.kinds[part.place]
    return part


def _branch(staging: Staging, path: Traversed, results: Sequence[Result | None]) -> Callable[[], list[Any]]:
    def run() -> list[Any]:
        leaves, out = path.run([]), []
        for name, result in enumerate(results):
            for at, kind in enumerate(result.kinds if result is not None else ()):
                if isinstance(kind, Kind):
                    is_there = path.forms[name] is not None
                    value = path.part(name, at, leaves) if is_there else staging.zeros(kind)
                    out.append(staging.of_kind(value, kind))
        return out

    return run


def _value(staging: Staging, result: Result, leaves: list[Any]) -> Any:
    """Takes from the leaves what it needs."""
    parts = [leaves.pop(0) if isinstance(kind, Kind) else kind.value for kind in result.kinds]
    return staging.unflatten(result.form.tree, parts)
