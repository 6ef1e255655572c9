"""The statements of rewritten code: run as Python for as long as no array decides, then handed over.

`entry` makes the function by which the code calls one statement. What a loop that is not staged
does here, one call a step, happens in staged code only; elsewhere Python runs the loop itself.
"""

import builtins
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dynloop import debugging
from dynloop.errors import StagingError
from dynloop.syntax import session
from dynloop.syntax.arrays import Staging, is_array, is_compiling, is_staged, staging_of
from dynloop.syntax.eagerly import Course, Eager
from dynloop.syntax.refusals import refuse, scalar
from dynloop.syntax.settling import Body, Iteration, iteration
from dynloop.syntax.site import Site
from dynloop.syntax.staged_branches import stage_if
from dynloop.syntax.staged_loops import stage_range, stage_rows, stage_while
from dynloop.syntax.state import Leaf, Unassigned, packed, unpacked
from dynloop.syntax.truth import not_

Values = tuple[Any, ...]


def maybe(read: Callable[[], Any], name: str) -> Any:
    """The value of a name, which may have none."""
    try:
        return read()
    except NameError:
        return Unassigned(name)


# ---- what a `for` runs through


@dataclass(frozen=True)
class Staged:
    """What a staged `for` runs through: the bounds of a range, or arrays row by row.

    Iterated over it gives nothing, since what is not staged has nothing to do.
    """

    bounds: tuple[Any, Any, int] | None = None
    rows: Any = None
    is_backward: bool = False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    @property
    def array(self) -> Any:
        several = self.bounds if self.bounds else self.rows if isinstance(self.rows, tuple) else (self.rows,)
        return next(x for x in several if is_array(x))

    @property
    def count(self) -> int:
        return 0 if self.bounds else self.array.shape[0]

    @property
    def staging(self) -> Staging:
        return staging_of(self.array)


def items(iterable: Any) -> Any:
    return Staged(rows=iterable) if is_staged(iterable) and len(iterable.shape) > 0 else iterable


def items_of(function: Callable[..., Iterable[Any]], *arguments: Any) -> Any:
    """`function(*arguments)`, where it is range, enumerate, zip or reversed, as long as nobody has given it another
    meaning."""
    if not any(map(is_staged, arguments)):
        return function(*arguments) if function is builtins.range else items(function(*arguments))
    if function is builtins.range:
        start, stop, step = (0, *arguments, 1) if len(arguments) == 1 else (*arguments, 1)[:3]
        if is_array(step):
            raise StagingError("range() with an array as its step is not supported; count in steps of 1, and multiply")
        if step == 0:
            raise ValueError("range() arg 3 must not be zero")
        return Staged(bounds=(start, stop, step))
    rows = [x for x in arguments if is_staged(x) and len(x.shape) > 0]
    if function is builtins.zip and len(rows) == len(arguments):
        shortest = min(x.shape[0] for x in rows)
        return Staged(rows=tuple(x[:shortest] for x in rows))
    if function is builtins.reversed and len(rows) == 1:
        return Staged(rows=rows[0], is_backward=True)
    if function is builtins.enumerate and len(rows) == 1 and rows[0] is arguments[0]:
        start = arguments[1] if len(arguments) > 1 else 0
        return Staged(rows=(staging_of(rows[0]).numbers(start, rows[0]), rows[0]))
    return items(function(*arguments))


def iterator(iterable: Any) -> Iterator[Any]:
    return iter(iterable)


# ---- statements


@dataclass(frozen=True)
class Statement:
    """What runs one statement.   pieces: of an `if` its paths, of a `while` test and body, of a `for` its body."""

    site: Site
    pieces: tuple[Callable[..., Any], ...]
    options: dict[str, Any]

    def apart(self, values: Values) -> tuple[Values, tuple[Callable[..., Any], ...]]:
        """What is carried, and the pieces with what is only read."""
        carried, reads = values[: len(self.site.given)], values[len(self.site.given) :]
        return carried, tuple(_bound(piece, reads) for piece in self.pieces)

    def refuse(self, values: Values) -> None:
        refuse(self.site, values[len(self.site.given) :], self.pieces)

    def eagerly(self, staging: Staging, body: Body, course: Course, values: Values, given: Values) -> Values:
        refuse(self.site, given[len(self.site.given) :], self.pieces, is_traced=False)
        return Eager(staging, self.site, body, course, {"backend": staging.NAME, **self.options_now}).run(values)

    @property
    def options_now(self) -> dict[str, Any]:
        return {**self.options, **session.options_now()}


def _bound(piece: Callable[..., Any], reads: Values) -> Callable[..., Any]:
    return (lambda *values: piece(*values, *reads)) if reads else piece


def entry(site: Site, pieces: tuple[Callable[..., Any], ...], options: dict[str, Any]) -> Callable[..., Values]:
    """The function by which rewritten code runs a statement."""
    if site.kind == "if" and len(pieces) == 1:
        # Without an `else` what may be assigned stays what it is.
        kept = [site.given.index(name) for name in site.names]
        pieces = (*pieces, lambda *values: tuple(values[place] for place in kept))
    this = Statement(site, pieces, options)
    if site.kind == "if":
        return lambda condition, *values: run_if(this, condition, values)
    if site.kind == "while":
        return lambda *values: run_while(this, values)
    if site.kind == "for":
        return lambda iterable, rest, last, *values: run_for(this, iterable, rest, last, values)
    return lambda holds, message, *values: run_assert(site, holds, message, values)


def run_if(this: Statement, condition: Any, given: Values) -> Values:
    values, paths = this.apart(given)
    if not is_staged(condition):
        return (paths[0] if condition else paths[1])(*values)
    staging = staging_of(condition)
    if staging.is_eager(condition):
        return (paths[0] if scalar(staging, str(this.site), condition) else paths[1])(*values)
    this.refuse(given)
    return stage_if(staging_of(condition), this.site, condition, (paths[0], paths[1]), values)


def run_while(this: Statement, given: Values) -> Values:
    values, (test, body) = this.apart(given)
    is_first = True
    while True:
        condition = test(*values)
        if is_staged(condition) and staging_of(condition).is_eager(condition):
            return this.eagerly(staging_of(condition), body, Course(test=test), values, given)
        if is_staged(condition):
            this.refuse(given)
            return stage_while(staging_of(condition), this.site, test, body, values, this.options_now)
        if not condition:
            return values
        if is_first and this.site.flag >= 0 and condition is True:
            found = _ahead(this.site, body, values, [])
            if found:
                this.refuse(given)
                return stage_while(found[0], this.site, test, body, values, this.options_now, found[1])
        is_first = False
        values = body(*values)


def run_for(this: Statement, iterable: Any, rest: Any, last: Any, given: Values) -> Values:
    """rest, last: where Python has begun to run through the iterable, the iterator and the last item."""
    values, (body,) = this.apart(given)
    site, options = this.site, this.options_now
    if isinstance(iterable, Staged) and iterable.staging.is_eager(iterable.array):
        course = Course(None, iterable.bounds, iterable.rows, iterable.count, iterable.is_backward)
        return this.eagerly(iterable.staging, body, course, values, given)
    if isinstance(iterable, Staged):
        this.refuse(given)
        if iterable.bounds:
            return stage_range(iterable.staging, site, iterable.bounds, body, values, options)
        return stage_rows(iterable.staging, site, iterable.rows, iterable.is_backward, body, values, options)
    if rest is not None:
        this.refuse(given)
        return _rest(site, iterable, rest, last, body, values, options)
    if site.flag >= 0 and isinstance(iterable, range) and len(iterable) > 1:
        found = _ahead(site, body, values, [iterable.start])
        if found:
            this.refuse(given)
            return stage_range(found[0], site, _bounds(iterable), body, values, options, found[1])
    rest = iter(iterable)
    for item in rest:
        values = body(item, *values)
        if site.flag >= 0 and values[site.flag] is not False:
            if is_staged(values[site.flag]):
                this.refuse(given)
                return _rest(site, iterable, rest, item, body, values, options)
            return values
    return values


def _rest(
    site: Site,
    iterable: Any,
    rest: Iterator[Any],
    last: Any,
    body: Body,
    values: Values,
    options: dict[str, Any],
) -> Values:
    """What is left of a loop that a jump has left, perhaps: the rest of a range is staged, other items are tried."""
    if not is_staged(values[site.flag]):
        return values
    staging = staging_of(values[site.flag])
    if staging.is_eager(values[site.flag]):
        # A flag that Python may ask for.
        for item in () if bool(values[site.flag]) else rest:
            values = body(item, *values)
            if bool(values[site.flag]):
                break
        return values
    if isinstance(iterable, range):
        left = range(last + iterable.step, iterable.stop, iterable.step)
        return stage_range(staging, site, _bounds(left), body, values, options) if len(left) else values
    branch = site._replace(kind="if")
    for item in rest:
        if not is_staged(values[site.flag]):
            return values
        values = stage_if(
            staging, branch, not_(values[site.flag]), (lambda *v, item=item: body(item, *v), lambda *v: v), values
        )
    return values


def _bounds(numbers: range) -> tuple[int, int, int]:
    return numbers.start, numbers.stop, numbers.step


def _ahead(site: Site, body: Body, values: Values, extra: list[Any]) -> tuple[Staging, Iteration] | None:
    """Inside of a staged statement: the iteration traced, if a jump in it turns out to depend on an array.

    Otherwise the loop would run one iteration as Python to find out, and trace the next one again.
    """
    around = session.current()
    if around is None or values[site.flag] is not False or (extra and is_compiling()):
        # Dynamo cannot go back if a body needs a number that is one.
        return None
    if not is_compiling() and debugging.is_on():
        return None
    try:
        given = [around.staging.index(x, x)[0] for x in extra]
        one = iteration(around.staging, site.names, body, values, given)
    except Exception:  # the body needs a number that is one: then it is Python's loop, which raises again if it must
        return None
    flag = one.after[site.flag]
    is_array_now = flag is not None and isinstance(flag.parts[0], Leaf) and not one.run.is_constant(flag.parts[0].place)
    return (around.staging, one) if is_array_now else None


def run_assert(site: Site, holds: Any, message: Callable[[], Any], values: Values) -> Values:
    if not is_staged(holds):
        assert holds, message()
        return values
    staging = staging_of(holds)
    said = message()
    text = f"{site} failed" if said is None else f"{site} failed: {said}"
    leaves, forms = packed(staging, values)
    from_ = staging.require(staging.truth(holds), text, leaves)
    return unpacked(staging, site.names, forms, from_)
