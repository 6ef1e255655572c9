"""A loop handed to `dynloop.while_loop`, `dynloop.fori_loop` or `dynloop.scan`, by what it runs through.

A `while` is the first. A `for` over `range` is the second, or the first if a jump may leave it. A `for`
over the rows of arrays is the third, and a jump ends it.
"""

# What stands in a signature inside of a function is evaluated at each call, which `torch.compile` cannot follow.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynloop import loops
from dynloop.syntax import session
from dynloop.syntax.arrays import Staging
from dynloop.syntax.refusals import scalar
from dynloop.syntax.settling import Body, Carry, Iteration, settled
from dynloop.syntax.site import Site


def stage_while(
    staging: Staging,
    site: Site,
    test: Callable[..., Any],
    body: Body,
    values: tuple[Any, ...],
    options: dict[str, Any],
    first: Iteration | None = None,
) -> tuple[Any, ...]:
    options = {"backend": staging.NAME, **options}
    state = settled(staging, site, body, values, [], first)
    if staging.is_trying():
        return state.tried()

    def holds(carry: Carry) -> Any:
        return session.within(staging, lambda _: scalar(staging, str(site), test(*state.values(carry))))

    return state.values(loops.while_loop(holds, state.body, state.init, **options))


def stage_range(
    staging: Staging,
    site: Site,
    bounds: tuple[Any, Any, int],
    body: Body,
    values: tuple[Any, ...],
    options: dict[str, Any],
    first: Iteration | None = None,
) -> tuple[Any, ...]:
    """bounds: start, stop and step of the range."""
    options = {"backend": staging.NAME, **options}
    start, stop = staging.index(bounds[0], bounds[1])
    step = bounds[2]
    state = settled(staging, site, body, values, [start], first)
    if staging.is_trying():
        return state.tried()
    if site.flag < 0 and step == 1:
        final = loops.fori_loop(start, stop, lambda i, carry: state.body(carry, i), state.init, **options)
        return state.values(final)
    if site.flag < 0:
        away = stop - start + (step - 1 if step > 0 else step + 1)
        steps = staging.index(away // step, 0)[0]
        final = loops.fori_loop(0, steps, lambda k, carry: state.body(carry, start + k * step), state.init, **options)
        return state.values(final)

    def holds(carry: tuple[Any, Carry]) -> Any:
        i, names = carry
        return staging.junction(i < stop if step > 0 else i > stop, lambda: staging.negation(state.flag(names)), True)

    def advance(carry: tuple[Any, Carry]) -> tuple[Any, Carry]:
        i, names = carry
        return i + step, state.body(names, i)

    return state.values(loops.while_loop(holds, advance, (start, state.init), **options)[1])


def stage_rows(
    staging: Staging,
    site: Site,
    rows: Any,
    is_backward: bool,
    body: Body,
    values: tuple[Any, ...],
    options: dict[str, Any],
) -> tuple[Any, ...]:
    """rows: a pytree of arrays, of which each iteration takes a row."""
    options = {"backend": staging.NAME, **options}
    parts, _, tree = staging.flatten(rows)
    one = staging.unflatten(tree, [staging.row(part) for part in parts])
    state = settled(staging, site, body, values, [one])
    if staging.is_trying():
        return state.tried()
    until = state.flag if site.flag >= 0 else None
    step = lambda carry, row: (state.body(carry, row), None)
    return state.values(loops.scan(step, state.init, rows, until=until, reverse=is_backward, **options)[0])
