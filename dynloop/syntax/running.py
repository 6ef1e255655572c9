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
from dynloop.syntax.arrays import Staging, is_array, is_staged, library, staging_of
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
    def staging(self) -> Staging:
        several = self.bounds if self.bounds else self.rows if isinstance(self.rows, tuple) else (self.rows,)
        return next(staging_of(x) for x in several if is_array(x))


def items(iterable: Any) -> Any:
    return Staged(rows=iterable) if is_staged(iterable) and len(iterable.shape) > 0 else iterable


def items_of(function: Callable[..., Iterable[Any]], *arguments: Any) -> Any:
    """`function(*arguments)`, where it is range, enumerate, zip or reversed, as long as nobody has given it another
    meaning."""
    if not any(map(is_staged, arguments)):
        return items(function(*arguments))
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


def entry(site: Site, options: dict[str, Any]) -> Callable[..., Values]:
    """The function by which rewritten code runs a statement."""
    if site.kind == "if":
        return lambda condition, true, false, *values: run_if(site, condition, (true, false), values)
    if site.kind == "while":
        return lambda test, body, *values: run_while(site, test, body, values, options)
    if site.kind == "for":
        return lambda given, rest, last, body, *values: run_for(site, (given, rest, last), body, values, options)
    return lambda holds, message, *values: run_assert(site, holds, message, values)


def run_if(site: Site, condition: Any, paths: tuple[Body, Body], values: Values) -> Values:
    if not is_staged(condition):
        return (paths[0] if condition else paths[1])(*values)
    return stage_if(staging_of(condition), site, condition, paths, values)


def run_while(
    site: Site, test: Callable[..., Any], body: Body, values: Values, options: dict[str, Any]
) -> Values:
    is_first = True
    while True:
        condition = test(*values)
        if is_staged(condition):
            chosen = {**options, **session.options_now()}
            return stage_while(staging_of(condition), site, test, body, values, chosen)
        if not condition:
            return values
        if is_first and site.flag >= 0 and condition is True:
            found = _ahead(site, body, values, [])
            if found:
                staging, one = found
                chosen = {**options, **session.options_now()}
                return stage_while(staging, site, test, body, values, chosen, one)
        is_first = False
        values = body(*values)


def run_for(
    site: Site, given: tuple[Any, Any, Any], body: Body, values: Values, options: dict[str, Any]
) -> Values:
    """given: what the loop runs through; and where Python has begun to, the iterator and the last item."""
    iterable, rest, last = given
    chosen = {**options, **session.options_now()}
    if isinstance(iterable, Staged):
        if iterable.bounds:
            return stage_range(iterable.staging, site, iterable.bounds, body, values, chosen)
        return stage_rows(iterable.staging, site, iterable.rows, iterable.is_backward, body, values, chosen)
    if rest is not None:
        return _rest(site, iterable, rest, last, body, values, chosen)
    if site.flag >= 0 and isinstance(iterable, range) and len(iterable) > 1:
        found = _ahead(site, body, values, [iterable.start])
        if found:
            return stage_range(found[0], site, _bounds(iterable), body, values, chosen, found[1])
    rest = iter(iterable)
    for item in rest:
        values = body(item, *values)
        if site.flag >= 0 and values[site.flag] is not False:
            if is_staged(values[site.flag]):
                return _rest(site, iterable, rest, item, body, values, chosen)
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
    if around is None or around.staging is None or debugging.is_on() or values[site.flag] is not False:
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
