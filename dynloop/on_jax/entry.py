"""The public loops on JAX: the way in. What happens at the bound is decided once, after the loop."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import export, lax
from jax import tree_util as jtu

from dynloop import debugging
from dynloop.checkpoints import storage
from dynloop.errors import ArgumentError, ArgumentTypeError, described
from dynloop.location import location
from dynloop.on_jax import internals, plain
from dynloop.on_jax.flat import merge, pick
from dynloop.on_jax.form import Form, Setting
from dynloop.on_jax.functions import Functions, prepare
from dynloop.on_jax.guard import Alarm, guarded
from dynloop.on_jax.leaves import KINDS, as_array, as_dtype, is_differentiable, nan_where
from dynloop.on_jax.primitives import loop_p
from dynloop.on_jax.varying import any_device, most_of_devices, vary_all
from dynloop.result import Result, StoppedBecause
from dynloop.rows import MOST, agreed_length
from dynloop.settings import Options, bound_message


def while_loop(cond: Any, body: Any, init: Any, options: Options) -> Any:
    """See `dynloop.while_loop`, which has checked the options."""
    return _run(Form(options.name, ("cond", "body")), cond, body, init, options)


def fori_loop(lower: Any, upper: Any, body: Any, init: Any, options: Options) -> Any:
    """See `dynloop.fori_loop`."""
    first, last = (_as_index(options.name, label, x) for label, x in (("lower", lower), ("upper", upper)))
    dtype = jnp.result_type(first, last)
    if not jnp.issubdtype(dtype, jnp.integer):
        raise ArgumentTypeError(
            f"{options.name}: lower is {first.dtype} and upper is {last.dtype}, and no integer dtype holds both; "
            "give them the same dtype"
        )
    first, last = lax.convert_element_type(first, dtype), lax.convert_element_type(last, dtype)
    if isinstance(lower, int) and isinstance(upper, int):
        steps = max(upper - lower, 0)
        if steps > MOST:
            raise ArgumentError(f"{options.name}: upper - lower is {steps}; at most 2**31 - 1 steps can be counted")
        count = jnp.asarray(steps, jnp.int32)
    else:
        steps, count = None, _distance(first, last)
    form = Form(options.name, ("", "body"), has_index=True, has_count=True)
    return _run(form, None, body, init, options, steps, count, [first])


def scan(step: Any, init: Any, xs: Any, length: int | None, until: Any, reverse: bool, options: Options) -> Any:
    """See `dynloop.scan`."""
    paths, tree = jtu.tree_flatten_with_path(xs)
    stacked = [as_array(options.name, "xs", path, x, "xs") for path, x in paths]
    length = agreed_length(
        options.name, [(jtu.keystr(p), x.shape) for (p, _), x in zip(paths, stacked, strict=True)], length
    )
    form = Form(options.name, ("until", "step"), stops=True, has_count=True, xs=tree, has_ys=True)
    count = jnp.asarray(length, jnp.int32)
    return _run(form, until, step, init, options, length, count, stacked, is_backward=reverse)


def _run(
    form: Form,
    cond: Any,
    body: Any,
    init: Any,
    options: Options,
    steps: int | None = None,
    count: Any = None,
    extra: Any = (),
    is_backward: bool = False,
) -> Any:
    """steps: how many at most, where that is known while tracing.   count: the number of them, or the most.

    extra: the first index, or stacked arrays.
    """
    paths, tree = jtu.tree_flatten_with_path(init)
    leaves = [as_array(form.name, "carry", path, x, "init") for path, x in paths]
    if debugging.is_on():
        out, ys, taken, status = plain.run(form, cond, body, tree, leaves, options, count, extra, is_backward)
        return _handed_back(form, options, jtu.tree_unflatten(tree, out), ys, (taken, status))
    bounds = [n for n in (options.max_steps, steps) if n is not None]
    store = storage(
        form.name,
        options.checkpoints,
        min(bounds, default=None),
        is_known=form.has_count and cond is None,
        is_counted=options.max_steps is not None or options.full_output,
        where=location(body),
    )
    sync = _devices(options) if options.sync else ()
    length = steps if form.has_ys and steps is not None else 0
    setting = Setting(store, length, is_backward, sync, options.observers)
    # A row of something that has none is never read, and yet has a shape.
    one = [internals.zeros_of(internals.row_aval(jax.typeof(x))) for x in extra] if form.has_ys else list(extra)
    prepared = prepare(form, cond, body, tree, leaves, one, setting)
    leaves = vary_all([as_dtype(x, a) for x, a in zip(leaves, prepared.carry_avals, strict=True)], prepared.names)
    loop, is_carry = prepared.loop, [not i for i in prepared.is_invariant]
    counts = []
    if form.has_count:
        if options.sync and cond is None:
            count = most_of_devices(count, sync)
        counts = [count if options.max_steps is None else jnp.minimum(count, options.max_steps)]
    counter = [jnp.zeros((), jnp.int32)] * (loop.carries - sum(is_carry))
    counts, counter, extra = (vary_all(xs, prepared.names) for xs in (counts, counter, extra))
    constants = [*prepared.constants(), *pick(leaves, prepared.is_invariant), *counts, *extra]
    if form.has_ys and length == 0:
        out = [*pick(leaves, is_carry), *counter, *[internals.zeros_of(a) for a in loop.outputs[loop.carries :]]]
    else:
        out = loop_p.bind(*constants, *pick(leaves, is_carry), *counter, loop=loop)
    final, ys = out[: loop.carries], out[loop.carries :]
    steps_taken = final.pop() if counter else None
    final = merge(is_carry, final, leaves)
    is_short = None if count is None or options.max_steps is None else count > options.max_steps
    final, ys, result = _checked(prepared, final, ys, steps_taken, is_short, options, sync)
    carry, ys = jtu.tree_unflatten(tree, final), jtu.tree_unflatten(prepared.y_tree, ys)
    return _handed_back(form, options, carry, ys, result)


def _handed_back(form: Form, options: Options, carry: Any, ys: Any, counted: Any) -> Any:
    """What the public function returns; counted: (steps, status) for a `Result`."""
    if options.full_output:
        return Result(carry, *counted, ys=ys)
    return (carry, ys) if form.has_ys else carry


def _checked(
    functions: Functions,
    out: list[Any],
    ys: list[Any],
    steps: Any,
    is_short: Any,
    options: Options,
    sync: tuple[str, ...],
) -> tuple[list[Any], list[Any], Any]:
    """What the bound makes of the results; and (steps, status) if a `Result` is asked for.

    is_short: the number of steps asked for is greater than the bound.
    """
    bound = options.max_steps
    is_bound = jnp.asarray(False)
    if bound is not None:
        is_bound = (steps >= bound) & any_device(functions.holds(out), sync)
        if is_short is not None:
            is_bound &= is_short
    # The status is that of the carry as the loop left it.
    status = _status(functions, out, is_bound) if options.full_output else None
    if bound is not None and options.on_max_steps == "raise":
        alarm = Alarm(
            bound_message(options.name, bound),
            f'{options.name}: on_max_steps="raise"',
            'Give on_max_steps="stop", and full_output=True to learn whether the bound was reached; or "nan".',
        )
        values = [steps] if status is None else [steps, status]
        checked = _guarded(is_bound, [*values, *out, *ys], alarm)
        steps, status = checked[0], checked[len(values) - 1] if options.full_output else None
        out, ys = checked[len(values) :][: len(out)], checked[len(values) + len(out) :]
    elif bound is not None and options.on_max_steps == "nan":
        out, ys = ([nan_where(is_bound, x) if is_differentiable(x) else x for x in xs] for xs in (out, ys))
    return out, ys, (steps, status) if options.full_output else None


def _status(functions: Functions, out: list[Any], is_bound: Any) -> Any:
    is_nan = jnp.asarray(False)
    for i in sorted(internals.read_inputs(functions.cond)) if functions.cond else ():
        if is_differentiable(out[i]):
            is_nan |= jnp.any(jnp.isnan(lax.stop_gradient(out[i])))
    status = jnp.where(is_bound, StoppedBecause.BOUND.value, StoppedBecause.CONDITION.value)
    return jnp.where(is_nan, StoppedBecause.NONFINITE.value, status).astype(jnp.int32)


def _guarded(is_bound: Any, xs: list[Any], alarm: Alarm) -> list[Any]:
    """The guard on every leaf; typed keys pass it as the numbers they consist of."""
    is_key = [internals.is_extended(x.dtype) for x in xs]
    data = [jax.random.key_data(x) if k else x for x, k in zip(xs, is_key, strict=True)]
    checked = zip(guarded(is_bound, data, alarm), xs, is_key, strict=True)
    return [jax.random.wrap_key_data(y, impl=jax.random.key_impl(x)) if k else y for y, x, k in checked]


def _devices(options: Options) -> tuple[str, ...]:
    axes = internals.manual_axes()
    if not axes:
        raise ArgumentError(
            f"{options.name}: sync={options.sync!r} is for loops inside jax.shard_map; elsewhere one condition decides "
            "for all devices, so leave it out"
        )
    return axes


def _distance(first: Any, last: Any) -> Any:
    """int32: the number of integers from `first` up to, not including, `last`; at most MOST."""
    # Unsigned, since the ends of a signed dtype lie further apart than it can count.
    unsigned = jnp.dtype(f"uint{8 * first.dtype.itemsize}")
    distance = lax.convert_element_type(last, unsigned) - lax.convert_element_type(first, unsigned)
    if unsigned.itemsize >= 4:
        distance = jnp.minimum(distance, MOST)
    return jnp.where(last > first, distance, 0).astype(jnp.int32)


def _as_index(name: str, label: str, x: Any) -> Any:
    try:
        array = jnp.asarray(x) if isinstance(x, KINDS) else None
    except OverflowError as error:
        raise ArgumentError(f"{name}: {label}={x} is not an integer that JAX can hold: {error}") from error
    if array is None or array.shape != () or not jnp.issubdtype(array.dtype, jnp.integer):
        given = described(x) if array is None or not isinstance(x, jax.Array) else f"{array.dtype}{list(array.shape)}"
        raise ArgumentTypeError(f"{name}: {label} must be an integer scalar; got {given}")
    return array


jtu.register_pytree_with_keys(
    Result,
    lambda r: (
        (
            (jtu.GetAttrKey("carry"), r.carry),
            (jtu.GetAttrKey("steps"), r.steps),
            (jtu.GetAttrKey("status"), r.status),
            (jtu.GetAttrKey("ys"), r.ys),
        ),
        None,
    ),
    lambda _, children: Result(*children),
)
# An exported function may return a Result; who reads it in another process has imported `dynloop.on_jax`.
export.register_pytree_node_serialization(
    Result,
    serialized_name="dynloop.Result",
    serialize_auxdata=lambda _: b"",
    deserialize_auxdata=lambda _: None,
)
