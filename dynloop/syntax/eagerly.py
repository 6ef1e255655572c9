"""Loops of a library that does not trace: PyTorch, eager. The primitive runs the user's body at every step.

A number of Python, or a name that has no value yet, becomes what it is to be in the first iteration, which
Python runs by itself. A name may get its first value later still, as the value of a `return` does. Then the
step gives its state back as it was and says so, the loop ends there, Python runs that one step, and what is
left is handed over again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dynloop import loops
from dynloop.syntax.arrays import Kind, Staging
from dynloop.syntax.merging import loop_sides, merged
from dynloop.syntax.refusals import scalar
from dynloop.syntax.settling import Body
from dynloop.syntax.site import Site
from dynloop.syntax.state import Form, Forms, Leaf, Static, is_number, packed, unpacked

Values = tuple[Any, ...]


@dataclass(frozen=True)
class Course:
    """What a loop runs through.   test: of a `while`.   bounds: of a range.   rows: arrays of `count` rows."""

    test: Callable[..., Any] | None = None
    bounds: tuple[Any, Any, int] | None = None
    rows: Any = None
    count: int = 0
    is_backward: bool = False

    def steps(self) -> int:
        if self.bounds:
            return len(range(*map(int, self.bounds)))
        return self.count

    def item(self, staging: Staging, k: Any) -> list[Any]:
        """What the body takes at step k, before the state."""
        if self.test:
            return []
        if self.bounds:
            start = staging.index(self.bounds[0], self.bounds[1])[0]
            return [start + k * self.bounds[2]]
        parts, _, tree = staging.flatten(self.rows)
        place = self.count - 1 - k if self.is_backward else k
        return [staging.unflatten(tree, [part[place] for part in parts])]


@dataclass(frozen=True)
class Eager:
    """One loop, as it stands after some iterations."""

    staging: Staging
    site: Site
    body: Body
    course: Course
    options: dict[str, Any]

    def run(self, values: Values) -> Values:
        done, is_first = 0, True
        while self.goes_on(done, values):
            leaves, forms = packed(self.staging, values)
            if is_first and (None in forms or any(map(is_number, leaves))):
                values, done = self.body(*self.course.item(self.staging, done), *values), done + 1
            else:
                values, done, is_over = self.hand_over(values, leaves, forms, done)
                if is_over:
                    break
                values, done = self.body(*self.course.item(self.staging, done), *values), done + 1
            is_first = False
        return values

    def goes_on(self, done: int, values: Values) -> bool:
        if self.course.test:
            return bool(scalar(self.staging, str(self.site), self.course.test(*values)))
        return done < self.course.steps() and not (self.site.flag >= 0 and bool(values[self.site.flag]))

    def hand_over(self, values: Values, leaves: list[Any], forms: Forms, done: int) -> tuple[Values, int, bool]:
        """The state at the end, the iterations done, and whether it is the end of the loop."""
        like = next((x for x in leaves if not is_number(x)), None)
        kinds = [self.staging.kind(x) for x in leaves]
        tensors = [self.staging.of_kind(x, kind, like) for x, kind in zip(leaves, kinds, strict=True)]
        form = Shape(self.staging, self.site, forms, [kind._replace(is_number=False) for kind in kinds])
        named = form.carry(tensors)
        step = lambda carry, item: form.after(carry, self.body(*item, *form.values(carry)), like)[0]
        if None not in forms and not self.course.test and (self.site.flag < 0 or self.course.bounds is None):
            return form.values(self.known(form, step, named, done)), self.course.steps(), True
        return self.unknown(form, named, like, done)

    def known(self, form: "Shape", step: Callable[..., Any], named: dict[str, Any], done: int) -> dict[str, Any]:
        if self.course.bounds:
            advance = lambda k, carry: step(carry, self.course.item(self.staging, k))
            return loops.fori_loop(done, self.course.steps(), advance, named, **self.options)
        parts, _, tree = self.staging.flatten(self.course.rows)
        left = slice(None, self.course.count - done) if self.course.is_backward else slice(done, None)
        rows = self.staging.unflatten(tree, [part[left] for part in parts])
        until = (lambda carry: self.flag(form, carry)) if self.site.flag >= 0 else None
        advance = lambda carry, row: (step(carry, [row]), None)
        return loops.scan(advance, named, rows, until=until, reverse=self.course.is_backward, **self.options)[0]

    def flag(self, form: "Shape", carry: dict[str, Any]) -> Any:
        return self.staging.truth(form.values(carry)[self.site.flag])

    def unknown(self, form: "Shape", named: dict[str, Any], like: Any, done: int) -> tuple[Values, int, bool]:
        """A loop whose number of steps nobody knows, or in which a name may get its first value."""
        staging, course = self.staging, self.course
        is_open = None in form.forms
        first, no = staging.index(done, done)[0], staging.negation(staging.truth(staging.index(1, 1)[0]))

        def holds(state: tuple[Any, dict[str, Any], Any]) -> Any:
            k, carry, is_stopped = state
            if course.test:
                more = scalar(staging, str(self.site), course.test(*form.values(carry)))
            else:
                more = k < course.steps()
                if self.site.flag >= 0:
                    more = staging.junction(more, lambda: staging.negation(self.flag(form, carry)), True)
            return staging.junction(staging.negation(is_stopped), lambda: more, True) if is_open else more

        def advance(state: tuple[Any, dict[str, Any], Any]) -> tuple[Any, dict[str, Any], Any]:
            k, carry, is_stopped = state
            before = staging.random_state() if is_open else None
            new, is_other = form.after(carry, self.body(*course.item(staging, k), *form.values(carry)), like)
            if is_other:
                staging.restore(before)
                return k, carry, staging.negation(is_stopped)
            return k + 1, new, is_stopped

        k, carry, is_stopped = loops.while_loop(holds, advance, (first, named, no), **self.options)
        return form.values(carry), int(k), not bool(is_stopped)


@dataclass(frozen=True)
class Shape:
    """The form that a state keeps, checked at every step."""

    staging: Staging
    site: Site
    forms: Forms
    kinds: list[Kind]

    def carry(self, leaves: Sequence[Any]) -> dict[str, Any]:
        """The leaves by name."""
        several = zip(self.site.names, self.forms, strict=True)
        named = {n: [leaves[p.place] for p in form.parts if isinstance(p, Leaf)] for n, form in several if form}
        return {n: own[0] if len(own) == 1 else tuple(own) for n, own in named.items() if own}

    def values(self, carry: dict[str, Any]) -> Values:
        leaves: list[Any] = []
        for name in self.site.names:
            if name in carry:
                leaves += carry[name] if isinstance(carry[name], tuple) else [carry[name]]
        return unpacked(self.staging, self.site.names, self.forms, leaves)

    def after(self, carry: dict[str, Any], out: Values, like: Any) -> tuple[dict[str, Any], bool]:
        """What a step returned as a carry; or that a name has its first value in it."""
        leaves, forms = packed(self.staging, out)
        kinds = [self.staging.kind(x) for x in leaves]
        new: list[Any] = []
        for name, before, found in zip(self.site.names, self.forms, forms, strict=True):
            if before is None:
                if found is not None:
                    return carry, True
                continue
            new += self.parts(name, before, found, leaves, kinds, like)
        return self.carry(new), False

    def parts(
        self, name: str, before: Form, found: Form | None, leaves: list[Any], kinds: list[Kind], like: Any
    ) -> list[Any]:
        assert found is not None
        sides = loop_sides(str(self.site))
        both = merged(self.staging, sides, name, (before, found), (self.kinds, kinds))
        new = []
        for old, part, kind in zip(before.parts, found.parts, both.kinds, strict=True):
            if isinstance(old, Leaf) and isinstance(kind, Kind):
                value = part.value if isinstance(part, Static) else leaves[part.place]
                new.append(self.staging.of_kind(value, kind, like))
        return new
