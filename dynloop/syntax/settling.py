"""What a loop carries, brought into a form that its body keeps.

The body is run once, on the present state; that tells what each name is after an iteration. If a
number must become another one, or a name that has no value yet gets zeros, it is run once more.
"""

# What stands in a signature inside of a function is evaluated at each call, which `torch.compile` cannot follow.
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dynloop.errors import StagingError
from dynloop.syntax import session
from dynloop.syntax.arrays import Kind, Staging, Traced, is_compiling
from dynloop.syntax.merging import Merged, Sides, common, loop_sides, merged
from dynloop.syntax.site import Site
from dynloop.syntax.state import Form, Forms, Leaf, Static, Unassigned, label, packed, unpacked

Body = Callable[..., tuple[Any, ...]]
Carry = dict[str, Any] | tuple[Any, ...]


@dataclass(frozen=True)
class Iteration:
    """One iteration, traced.   values: what it began with.   forms: before it.   kinds: of its leaves before it.

    after: the forms of what it returned; their leaves are those of `run`.
    """

    values: tuple[Any, ...]
    leaves: list[Any]
    forms: Forms
    kinds: list[Kind]
    after: Forms
    run: Traced


def iteration(
    staging: Staging, names: Sequence[str], body: Body, values: tuple[Any, ...], extra: list[Any]
) -> Iteration:
    """Trace a body.   extra: what it takes before the values, such as the index, each a leaf or a pytree of them."""
    leaves, forms = packed(staging, values)
    given, extra_forms = packed(staging, extra)

    def flat(inputs: list[Any]) -> tuple[list[Any], Forms]:
        items = unpacked(staging, [""] * len(extra), extra_forms, inputs[: len(given)])
        out = body(*items, *unpacked(staging, names, forms, inputs[len(given) :]))
        return packed(staging, out)

    run = session.within(staging, lambda _: staging.trace(flat, [*given, *leaves]))
    return Iteration(values, leaves, forms, [staging.kind(x) for x in leaves], run.aside, run)


@dataclass(frozen=True)
class Settled:
    """An iteration that keeps the form of its state.   merged: of each name that has a value."""

    staging: Staging
    site: Site
    one: Iteration
    merged: list[Merged | None]

    @property
    def init(self) -> Carry:
        leaves = self.one.leaves
        if is_compiling():
            # Settled numbers need no step of the primitive's to become what they are to be. And a tensor that is read
            # from outside too is another one inside, or torch's gradient of a branch there would find it twice.
            leaves = [self.staging.of_kind(x, kind) for x, kind in zip(leaves, self.one.kinds, strict=True)]
        return self.carry(leaves)

    def carry(self, leaves: Sequence[Any]) -> Carry:
        """Leaves by the names that they belong to, as the primitive's messages and observers shall call them."""
        if is_compiling():
            # Dynamo follows no dicts of optree's, and nobody watches.
            return tuple(leaves)
        named: dict[str, Any] = {}
        for name, form in zip(self.site.names, self.one.forms, strict=True):
            own = [] if form is None else [leaves[p.place] for p in form.parts if isinstance(p, Leaf)]
            if own:
                whole = len(own) == 1 and form is not None and form.paths == [""]
                named[name] = own[0] if whole else tuple(own)
        return named

    def leaves(self, carry: Carry) -> list[Any]:
        if isinstance(carry, tuple):
            return list(carry)
        found: list[Any] = []
        for name, form in zip(self.site.names, self.one.forms, strict=True):
            if name in carry and form is not None:
                found += [carry[name]] if form.paths == [""] else carry[name]
        return found

    def values(self, carry: Carry) -> tuple[Any, ...]:
        return unpacked(self.staging, self.site.names, self.one.forms, self.leaves(carry))

    def body(self, carry: Carry, *extra: Any) -> Carry:
        given, _ = packed(self.staging, extra)
        return self._after(self.one.run([*given, *self.leaves(carry)]))

    def _after(self, out: Sequence[Any]) -> Carry:
        new: list[Any] = []
        for before, after in zip(self.one.forms, self.one.after, strict=True):
            if before is None or after is None:
                continue
            for old, part in zip(before.parts, after.parts, strict=True):
                if isinstance(old, Leaf):
                    value = out[part.place] if isinstance(part, Leaf) else part.value
                    new.append(self.staging.of_kind(value, self.one.kinds[old.place]))
        return self.carry(new)

    def tried(self) -> tuple[Any, ...]:
        """Values such as the loop gives: those after one iteration, of which a trial has kept the results."""
        return self.values(self._after(self.one.run([])))

    def flag(self, carry: Carry) -> Any:
        """Whether a jump has left the loop."""
        return self.staging.truth(self.values(carry)[self.site.flag])


def settled(
    staging: Staging, site: Site, body: Body, values: tuple[Any, ...], extra: list[Any], first: Iteration | None = None
) -> Settled:
    """Run the body until its state keeps its form: once, or once more for each number that has to become another."""
    is_inside = session.current() is not None

    def settle(here: session.Session) -> Settled:
        guessed = _with(staging, site, values, here.learnt if is_inside else {})
        try:
            return _settled(staging, site, body, guessed, extra, first, here.learnt)
        except StagingError:
            # What was learnt from another state of the loops around need not hold for this one.
            if all(a is b for a, b in zip(guessed, values, strict=True)):
                raise
            return _settled(staging, site, body, values, extra, None, here.learnt)

    return session.within(staging, settle)


def _with(staging: Staging, site: Site, values: tuple[Any, ...], learnt: dict[Any, Any]) -> tuple[Any, ...]:
    return tuple(
        learnt[site, name](staging, value) if (site, name) in learnt else value
        for name, value in zip(site.names, values, strict=True)
    )


def _settled(
    staging: Staging,
    site: Site,
    body: Body,
    values: tuple[Any, ...],
    extra: list[Any],
    first: Iteration | None,
    learnt: dict[Any, Any],
) -> Settled:
    sides = loop_sides(str(site))
    one = first or iteration(staging, site.names, body, values, extra)
    while True:
        found = [_name(staging, site, sides, one, place) for place in range(len(site.names))]
        changed = {place: change for place, (_, change) in enumerate(found) if change is not None}
        if not changed:
            return Settled(staging, site, one, [m for m, _ in found])
        for place, change in changed.items():
            learnt[site, site.names[place]] = change
        new = tuple(changed[i](staging, v) if i in changed else v for i, v in enumerate(one.values))
        one = iteration(staging, site.names, body, new, extra)


Change = Callable[[Staging, Any], Any]


def _name(
    staging: Staging, site: Site, sides: Sides, one: Iteration, place: int
) -> tuple[Merged | None, Change | None]:
    """The common form of one name, or how its first value has to change for there to be one."""
    name, before, after = site.names[place], one.forms[place], one.after[place]
    if before is None and after is None:
        return None, None
    if before is None and after is not None:
        if site.unsure[place]:
            shown = label(name, "")
            raise StagingError(
                f"{sides.what}: {shown} is first assigned inside the loop and used after it, so it has no value if "
                f"the loop runs zero times; give {shown} a value before the loop"
            )
        return None, _filling(after, one.run.kinds)
    if before is not None and after is None:
        raise StagingError(
            f"{sides.what}: {label(name, '')} has a value before the loop but none after one iteration; "
            "assign it on every path, and do not delete it"
        )
    assert before is not None
    assert after is not None
    found = merged(staging, sides, name, (before, after), (one.kinds, one.run.kinds))
    return _checked(staging, sides, name, found, before, one)


def _checked(
    staging: Staging, sides: Sides, name: str, found: Merged, before: Form, one: Iteration
) -> tuple[Merged, Change | None]:
    wanted: list[Kind | None] = []
    for part, kind in zip(before.parts, found.kinds, strict=True):
        is_other = isinstance(part, Leaf) and isinstance(kind, Kind) and kind.dtype != one.kinds[part.place].dtype
        wanted.append(kind if is_other and isinstance(kind, Kind) else None)
    return found, _promoting(wanted) if any(wanted) else None


def _promoting(wanted: list[Kind | None]) -> Change:
    """Give these parts of a value other dtypes, if they are still numbers."""

    def change(staging: Staging, value: Any) -> Any:
        if isinstance(value, Unassigned):
            return value
        parts, _, tree = staging.flatten(value)
        if len(parts) != len(wanted):
            return value
        new = [_promoted(staging, part, kind) for part, kind in zip(parts, wanted, strict=True)]
        return staging.unflatten(tree, new)

    return change


def _promoted(staging: Staging, part: Any, wanted: Kind | None) -> Any:
    if wanted is None or not staging.is_leaf(part) or not staging.kind(part).is_number:
        return part
    kind = common(staging, staging.kind(part), wanted)
    return staging.of_kind(part, kind) if kind else part


def _filling(after: Form, kinds: list[Kind]) -> Change:
    """Zeros, for a name that has no value yet and none of whose uses comes before an assignment."""

    def change(staging: Staging, value: Any) -> Any:
        if not isinstance(value, Unassigned):
            return value
        parts = [p.value if isinstance(p, Static) else staging.zeros(kinds[p.place]) for p in after.parts]
        return staging.unflatten(after.tree, parts)

    return change
