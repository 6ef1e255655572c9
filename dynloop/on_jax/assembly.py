"""A loop made of the user's traced functions.

Where steps are counted, the counter rides along as one more carry. A leaf that the body returns as it
got it is no carry of the loop but a constant: it costs no checkpoint.
"""

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dynloop.observers import Verify, told
from dynloop.on_jax import internals, varying
from dynloop.on_jax.flat import Mask, cut, merge, pick
from dynloop.on_jax.form import Form, Setting
from dynloop.on_jax.leaves import is_differentiable, paths_of
from dynloop.on_jax.observing import Audience, watch
from dynloop.on_jax.structure import Loop, Observed
from dynloop.on_jax.traced import Traced


@dataclass(frozen=True)
class Assembly:
    """The loop's constants: what cond and body close over, invariant leaves, the number of steps, the first index, and
    stacked arrays. Its carry: the other leaves, and the counter.

    cond, body: closed jaxprs on all leaves (cond: None for a loop that only counts).   tree: of the carry.
    is_invariant, carry_avals: of every leaf.   extra: abstract values of what body takes beside the carry.
    names: axes of the mesh over which everything is made to vary.
    """

    form: Form
    cond: Any
    body: Any
    tree: Any
    is_invariant: Mask
    carry_avals: list[Any]
    extra: list[Any]
    setting: Setting
    names: frozenset[str]

    @property
    def count(self) -> Any:
        return internals.varied_aval(jax.typeof(jnp.zeros((), jnp.int32)), self.names)

    @property
    def is_carry(self) -> list[bool]:
        return [not i for i in self.is_invariant]

    @property
    def groups(self) -> list[list[Any]]:
        """Abstract values of the constants that are not stacked."""
        of_cond, of_body = (
            [jax.typeof(x) for x in constants_of(f, self.names)] if f else [] for f in (self.cond, self.body)
        )
        invariant = pick(self.carry_avals, self.is_invariant)
        return [of_cond, of_body, invariant, [self.count] * self.form.has_count, self.extra[: self.form.has_index]]

    @property
    def rows(self) -> list[Any]:
        return [] if self.form.has_index else self.extra

    @property
    def state(self) -> list[Any]:
        return pick(self.carry_avals, self.is_carry)

    @property
    def counters(self) -> list[Any]:
        return [self.count] * (self.form.has_count or self.setting.storage.is_counted)

    def leaves(self, invariant: list[Any], state: list[Any]) -> list[Any]:
        return merge(self.is_carry, state, merge(self.is_invariant, invariant, self.is_invariant))

    def loop(self) -> Loop:
        groups, rows, state, counters = self.groups, self.rows, self.state, self.counters
        sizes, bound = [len(g) for g in groups], self.setting.storage.bound
        constants = [a for g in groups for a in g]

        def cond(*flat: Any) -> list[Any]:
            c, _, invariant, n, _, k, i = cut(flat, *sizes, len(state), len(counters))
            holds = [] if self.cond is None else run(self.cond, self.names, c, self.leaves(invariant, k))
            if n:
                holds.append(i[0] < n[0])
            elif bound is not None:
                holds.append(i[0] < bound)
            return [varying.any_device(functools.reduce(operator.and_, holds), self.setting.sync)]

        def body(*flat: Any) -> list[Any]:
            _, c, invariant, _, first, xs, k, i = cut(flat, *sizes, len(rows), len(state), len(counters))
            given = [*[x + i[0].astype(x.dtype) for x in first], *xs, *self.leaves(invariant, k)]
            new, ys = cut(run(self.body, self.names, c, given), len(self.carry_avals), n_ys)
            return [*pick(new, self.is_carry), *[j + 1 for j in i], *ys]

        n_ys = len(self.body.out_avals) - len(self.carry_avals)
        is_stacked = (*[False] * len(constants), *[True] * len(rows))
        return Loop(
            Traced(cond, [*constants, *state, *counters]),
            Traced(body, [*constants, *rows, *state, *counters]),
            len(is_stacked),
            self.setting.storage,
            ys=n_ys,
            stacked=is_stacked if rows else (),
            length=self.setting.length,
            is_backward=self.setting.is_backward,
            count=sum(sizes[:3]) if self.form.has_count and self.cond is None else None,
            observed=self.observed([*constants, *state, *counters], sizes),
        )

    def observed(self, inputs: list[Any], sizes: list[int]) -> Observed | None:
        observers = self.setting.observers
        if not observers:
            return None
        watching = told(observers)
        reports = [o.report for o in observers if isinstance(o, Verify)]
        audience = Audience(self.form.name, watching, self.tree, tuple(paths_of(self.tree)))

        def tell(*flat: Any) -> list[Any]:
            groups = cut(flat, *sizes, len(self.state), len(self.counters), 1, 1)
            (step,), (is_live,) = groups[-2:]
            watch(audience, step, is_live, self.leaves(groups[2], groups[5]))
            return []

        is_live = internals.varied_aval(jax.typeof(jnp.asarray(True)), self.names)
        function = Traced(tell, [*inputs, self.count, is_live]) if watching else None
        return Observed(function, reports[0] if reports else None)


def constants_of(closed: Any, names: frozenset[str]) -> list[Any]:
    """What a traced function closes over: cast to vary, and as it was too where that is needed."""
    uncast = [jnp.asarray(x) for x in closed.consts]
    return [*varying.vary_all(uncast, names), *(uncast if names and varying.has_inner_types(closed) else [])]


def constants_of_cond(cond: Any, names: frozenset[str]) -> list[Any]:
    # What only cond reads gets no gradient; saying so here keeps it out of the sweep.
    return [lax.stop_gradient(x) if is_differentiable(x) else x for x in constants_of(cond, names)]


def run(closed: Any, names: frozenset[str], constants: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """A traced function on its `constants_of`, or what stands for them."""
    if not names:
        return internals.evaluate(closed.jaxpr, constants, args)
    n = len(closed.consts)
    return varying.vary_all(varying.evaluate(closed.jaxpr, constants[:n], constants[n:], args), names)
