"""Everything dynloop takes from JAX beyond its documented surface.

JAX documents how to define a primitive, but not every table in which a primitive's rules are
entered, nor the names by which a rule asks about tracers and abstract values. Each of them is
reached from this file only, under a name of ours, and `tests/on_jax/test_internals.py` exercises
each, so that a JAX that moves one is found by one failing test and mended in one place.
No module of `jax._src` is used. The tests run on every version in `TESTED`, the oldest and the newest.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp

# With the Python that each was tested on.
TESTED = {"0.10.2": "3.11", "0.12.0.1": "3.12"}

try:
    from jax.extend import core as extend
    from jax.interpreters import ad, batching, mlir
    from jax.interpreters import partial_eval as pe

    _JVPS = ad.primitive_jvps
    _TRANSPOSES = ad.primitive_transposes
    _BATCHERS = batching.fancy_primitive_batchers
    _PARTIAL_EVALS = pe.custom_partial_eval_rules
    _DEAD_CODE = pe.dce_rules
    _CHECKPOINTS = pe.partial_eval_jaxpr_custom_rules
    _HAS_NAMED_AXES = vars(extend)["nonempty_axis_env_DO_NOT_USE"]
    DEVICE, HOST = jax.memory.Space.Device, jax.memory.Space.Host
except (ImportError, AttributeError, KeyError) as error:
    works = " and ".join(f"jax {version} (Python {python})" for version, python in TESTED.items())
    raise ImportError(
        f"dynloop's JAX backend needs what jax {jax.__version__} does not have where it is looked for ({error}). "
        f"It works with {works}: pip install 'jax=={next(iter(TESTED))}'"
    ) from error

Primitive = extend.Primitive
Var = extend.Var
Aval = Any
Tracer = jax.core.Tracer
JITTED = type(jax.jit(lambda: None))


def new_primitive(name: str) -> Any:
    """A primitive with several results."""
    primitive = Primitive(name)
    primitive.multiple_results = True
    return primitive


# ---- entering rules

set_jvp = _JVPS.__setitem__
set_transpose = _TRANSPOSES.__setitem__
set_batching = _BATCHERS.__setitem__
set_partial_eval = _PARTIAL_EVALS.__setitem__


def set_checkpoint(
    primitive: Any, primal_part: Callable[[Any], tuple[Sequence[bool], Sequence[bool], Any] | None]
) -> None:
    """`jax.checkpoint` knows the primal half of an equation, and stages the whole of it for later.

    `primal_part(equation)` gives the masks of its primal inputs and outputs and the parameters of that half; None if it
    has no such half.
    """

    def rule(saveable: Any, unknown: Sequence[bool], inst: Sequence[bool], eqn: Any) -> Any:
        n = len(eqn.outvars)
        residuals = [v for v, i in zip(eqn.invars, inst, strict=True) if not i and isinstance(v, Var)]
        if not any(unknown):
            return eqn, eqn, [False] * n, [True] * n, residuals
        parts = primal_part(eqn)
        if parts is None or any(u for u, is_primal in zip(unknown, parts[0], strict=True) if is_primal):
            return None, eqn, [True] * n, [True] * n, residuals
        inputs, outputs, params = parts
        known = eqn.replace(
            invars=[v for v, m in zip(eqn.invars, inputs, strict=True) if m],
            outvars=[v for v, m in zip(eqn.outvars, outputs, strict=True) if m],
            params=params,
        )
        return known, eqn, [not o for o in outputs], [True] * n, residuals

    _CHECKPOINTS[primitive] = rule


def set_dead_code(primitive: Any, rule: Callable[[Sequence[bool], Any], tuple[list[bool], Any]]) -> None:
    """`rule(used results, equation)` gives the used inputs and what is left of the equation."""
    # Newer versions of JAX tell the live inputs too, in between.
    _DEAD_CODE[primitive] = lambda used, *rest: rule(used, rest[-1])


def set_lowering(primitive: Any, function: Callable[..., Any]) -> None:
    """`function(*args, **params)` is the primitive's meaning, lowered by tracing it."""
    lower = mlir.lower_fun(function, multiple_results=True)

    def rule(context: Any, *args: Any, **params: Any) -> Any:
        # JAX looks through a program for moves to the host before it lowers it, and leaves out those that it meets in a
        # program without any; what a primitive stands for it has not looked through.
        module = context.module_context.replace(all_default_mem_kind=False)
        inner = context.replace(module_context=module)
        out = lower(inner, *args, **params)
        # The order of effects goes on where the copy has left it.
        if inner.tokens_out is not None:
            context.set_tokens_out(inner.tokens_out)
        return out

    mlir.register_lowering(primitive, rule)


def set_calling_lowering(primitive: Any, function: Callable[..., Any], refusal: Callable[..., Exception]) -> None:
    """The same for a meaning that calls Python while the program runs; `refusal(reason, **params)` is raised if not."""
    lower = mlir.lower_fun(function, multiple_results=True)

    def rule(context: Any, *args: Any, **params: Any) -> Any:
        module = context.module_context
        if module.lowering_parameters.for_export:
            raise refusal("it is exported", **params)
        # JAX connects a call of Python to the machine that it lowers for, which has to be this one.
        if module.get_backend(optional=True) is None:
            raise refusal(f"it is lowered for {' and '.join(module.platforms)} on another machine", **params)
        return lower(context, *args, **params)

    mlir.register_lowering(primitive, rule)


# ---- symbolic zeros


def is_zero(tangent: Any) -> bool:
    return type(tangent) is ad.Zero


def zero_tangent_of(x: Any) -> Any:
    """The symbolic zero in the tangent space of `x`."""
    return ad.Zero(tangent_aval(jax.typeof(x)))


def instantiate(tangent: Any) -> Any:
    """A symbolic zero becomes an array of zeros, a number an array; an array stays."""
    if is_zero(tangent) and is_on_host(tangent.aval):
        return jax.device_put(jnp.zeros(tangent.aval.shape, tangent.aval.dtype), HOST)
    dense = ad.instantiate_zeros(tangent)
    return jnp.asarray(dense) if isinstance(dense, int | float | complex) else dense


def has_value(tangent: Any) -> bool:
    """False for tangents that are zero for certain: symbolic zeros, and those of integers."""
    return not is_zero(tangent) and jax.typeof(tangent).dtype != jax.dtypes.float0


def zeros_of(aval: Aval) -> Any:
    # JAX's own takes keys for something to differentiate, and gives float0.
    return jnp.zeros(aval.shape, aval.dtype) if is_extended(aval.dtype) else ad.zeros_like_aval(aval)


def is_linear_input(x: Any) -> bool:
    """In a transpose rule: is this the argument to transpose with respect to?"""
    return ad.is_undefined_primal(x)


def asked_for(cotangents: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """In a transpose rule: the cotangents of those inputs that it is to transpose with respect to, else None."""
    return [ct if is_linear_input(x) else None for ct, x in zip(cotangents, inputs, strict=True)]


# ---- abstract values


def shaped(shape: Sequence[int], dtype: Any) -> Aval:
    """The abstract value of an array."""
    return jax.core.ShapedArray(tuple(shape), jnp.dtype(dtype) if not is_extended(dtype) else dtype)


def stacked_aval(aval: Aval, rows: int) -> Aval:
    """The abstract value with one more axis, of this size, in front; no axis of a mesh divides it."""
    return extend.unmapped_aval(rows, 0, aval)


def batched_aval(aval: Aval, size: int, at: int, mesh_axes: tuple[str, ...] | None) -> Aval:
    """The abstract value with a batch axis, which these explicit axes of the mesh divide."""
    return extend.unmapped_aval(size, at, aval, mesh_axes)


def is_on_host(aval: Aval) -> bool:
    """Does it lie in pinned memory of the host?"""
    return isinstance(aval, jax.core.ShapedArray) and aval.memory_space == HOST


def row_aval(aval: Aval) -> Aval:
    """The abstract value of one row of an array."""
    return extend.mapped_aval(aval.shape[0], 0, aval)


def explicit_sharding(aval: Aval) -> Any:
    """How an array is laid out over a mesh with explicit axes; None where no layout is part of a type."""
    mesh = jax.sharding.get_abstract_mesh()
    return aval.sharding if jax.sharding.AxisType.Explicit in mesh.axis_types else None


def tangent_aval(aval: Aval) -> Aval:
    return aval.to_tangent_aval()


def cotangent_aval(aval: Aval) -> Aval:
    return aval.to_ct_aval()


def is_extended(dtype: Any) -> bool:
    """True for dtypes such as typed PRNG keys, which have no arithmetic."""
    return jnp.issubdtype(dtype, jax.dtypes.extended)


def has_tangent(aval: Aval) -> bool:
    return tangent_aval(aval).dtype != jax.dtypes.float0


def varying_axes(values: Sequence[Any]) -> frozenset[str]:
    """Mesh axes, inside `shard_map`, over which any of the values (or avals) may differ."""
    avals: list[Any] = [x if isinstance(x, jax.core.AbstractValue) else jax.typeof(x) for x in values]
    return frozenset().union(*(a.mat.varying for a in avals if isinstance(a, jax.core.ShapedArray)))


def vary(x: Any, names: frozenset[str]) -> Any:
    """`x`, marked as varying over these mesh axes too."""
    missing = tuple(sorted(names - varying_axes([x])))
    return jax.lax.pcast(x, missing, to="varying") if missing else x


def varied_aval(aval: Aval, names: frozenset[str]) -> Aval:
    return jax.make_jaxpr(lambda x: vary(x, names))(aval).out_avals[0] if names else aval


def manual_axes() -> tuple[str, ...]:
    """Axes of the mesh that the `jax.shard_map` being traced maps over."""
    return tuple(jax.sharding.get_abstract_mesh().manual_axes)


# ---- traces


def as_function(closed: Any) -> Callable[..., Any]:
    """A closed jaxpr as a function of flat arguments that returns a list."""
    return extend.jaxpr_as_fun(closed)


def evaluate(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """Run an open jaxpr with these constants, which may be tracers of the present trace."""
    return jax.core.eval_jaxpr(jaxpr, consts, *args)


def read_inputs(closed: Any, outputs: Sequence[bool] | None = None) -> set[int]:
    """Positions of the inputs of a closed jaxpr that its outputs (all of them, or the masked ones) depend on."""
    outputs = [True] * len(closed.jaxpr.outvars) if outputs is None else list(outputs)
    used = pe.dce_jaxpr(closed.jaxpr, outputs)[1]
    return {i for i, is_used in enumerate(used) if is_used}


def evaluate_equation(jaxpr: Any, eqn: Any, values: Sequence[Any]) -> list[Any]:
    """Run one equation of a jaxpr on these values of its inputs, literals included."""
    if not holds_jaxpr(eqn):
        out = eqn.primitive.bind(*values, **eqn.params)
        return out if eqn.primitive.multiple_results else [out]
    known = {v: x for v, x in zip(eqn.invars, values, strict=True) if isinstance(v, Var)}
    info = jaxpr.debug_info.with_unknown_names()
    alone = jaxpr.replace(constvars=[], invars=list(known), outvars=eqn.outvars, eqns=[eqn], debug_info=info)
    return jax.core.eval_jaxpr(alone, [], *known.values())


def names_of_cast(eqn: Any) -> frozenset[str]:
    """The mesh axes over which this equation makes its input vary; empty if it is no such cast."""
    return frozenset(eqn.params["axes"]) if eqn.primitive.name == "pvary" else frozenset()


def called_by_jit(eqn: Any) -> Any:
    """The closed jaxpr that a call of `jax.jit` runs; None for other equations."""
    return eqn.params["jaxpr"] if eqn.primitive.name in ("jit", "pjit") else None


def branches_of(eqn: Any) -> Sequence[Any]:
    """The closed jaxprs that a `lax.cond` or `lax.switch` chooses from; none for other equations."""
    is_choice = eqn.primitive.name == "cond" and "branches_platforms" not in eqn.params
    return eqn.params["branches"] if is_choice else ()


def holds_jaxpr(eqn: Any) -> bool:
    """Does the equation have a function among its parameters, as loops, branches and custom rules have?"""
    values = [x for p in eqn.params.values() for x in (p if isinstance(p, list | tuple) else [p])]
    # A loop of ours holds its functions inside of that parameter.
    return "loop" in eqn.params or any(isinstance(x, extend.Jaxpr | extend.ClosedJaxpr) for x in values)


def collective_axes(value: Any) -> set[str]:
    """Mesh axes over which a jaxpr, or anything in it, communicates between devices."""
    if isinstance(value, list | tuple):
        return set().union(*map(collective_axes, value))
    found: set[str] = set()
    for eqn in equations(value):
        if eqn.primitive.name not in ("pvary", "axis_index"):
            named = [eqn.params.get(key, ()) for key in ("axes", "axis_name")]
            found |= {x for p in named for x in (p if isinstance(p, list | tuple) else [p]) if isinstance(x, str)}
        found |= collective_axes(list(eqn.params.values()))
    return found


def returned_unchanged(closed: Any, first: int, count: int) -> tuple[bool, ...]:
    """Which of the first `count` outputs of a closed jaxpr are its inputs from `first` on, of the same place."""
    inputs, outputs = closed.jaxpr.invars[first:], closed.jaxpr.outvars[:count]
    return tuple(a is b for a, b in zip(outputs, inputs, strict=True))


def calls_custom_rule(eqn: Any) -> bool:
    """Is this equation a call of a `jax.custom_jvp` or `jax.custom_vjp` function?"""
    return eqn.primitive.name.startswith(("custom_jvp_call", "custom_vjp_call"))


def is_ordered(effect: Any) -> bool:
    """Must this effect happen in program order? Ordered callbacks of `jax.debug` and `io_callback`."""
    return type(effect).__name__.startswith("Ordered")


def callback_effects() -> set[Any]:
    """The effects of an unordered callback."""
    return set(jax.make_jaxpr(lambda: jax.debug.callback(lambda: None))().effects)


def uses_axis(effect: Any, name: Any) -> bool:
    """Is this the effect of an operation over the named axis, such as `jax.lax.psum`?"""
    return type(effect).__name__ == "NamedAxisEffect" and effect.name == name


def equations(value: Any) -> Sequence[Any]:
    """The equations of a jaxpr, open or closed; none if the value is something else."""
    if isinstance(value, extend.ClosedJaxpr):
        value = value.jaxpr
    return value.eqns if isinstance(value, extend.Jaxpr) else ()


def under(trace: Any) -> Any:
    """Context in which primitives are bound to `trace` (for partial-evaluation rules)."""
    return extend.set_current_trace(trace)


def bind_partly(trace: Any, primitive: Any, tracers: Sequence[Any], params: dict[str, Any]) -> Any:
    """What partial evaluation does with a primitive that has no rule: if any of its inputs is unknown, all of it is."""
    return trace.default_process_primitive(primitive, tracers, params)


def has_named_axes() -> bool:
    """Is a `vmap`, `pmap` or `shard_map` with a named axis being traced? A trace may depend on the axis' size."""
    return _HAS_NAMED_AXES()


def is_known(tracer: Any) -> bool:
    return tracer.is_known()


def as_tracer(trace: Any, value: Any) -> Any:
    """A value as a tracer of the trace, so that it can stand among an unknown equation's results."""
    return trace.to_jaxpr_tracer(value)
