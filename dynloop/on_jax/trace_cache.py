"""Traces kept as long as the function lives that they are of.

Tracing and compiling again at every call is what a call outside of `jax.jit` spends its time on. A
trace is kept if its functions read nothing that could change in place (`closures`), and found again
while all that they read, and the settings that decide what a trace looks like, are the same.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import jax

from dynloop.on_jax import internals
from dynloop.on_jax.closures import objects_read

T = TypeVar("T")

# No decision depends on what is remembered here, only the time of a call that runs outside of `jax.jit`.
_TRACES: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()
_TRACES_OF_ONE_FUNCTION = 8


def cached(functions: Sequence[Callable[..., Any]], key: Any, trace: Callable[[], T]) -> T:
    """`trace()`, remembered on the last of the functions under the others and the key."""
    read = None if internals.has_named_axes() else objects_read(*functions)
    if read is None:
        return trace()
    known = _TRACES.setdefault(functions[-1], {})
    entry = (*functions[:-1], key, read, _trace_options())
    if entry not in known:
        known[entry] = trace()
        while len(known) > _TRACES_OF_ONE_FUNCTION:
            del known[next(iter(known))]
    return known[entry]


def _trace_options() -> tuple[Any, ...]:
    """The settings that decide what a trace looks like."""
    names = ("enable_x64", "numpy_dtype_promotion", "numpy_rank_promotion", "default_matmul_precision")
    names += ("default_prng_impl", "threefry_partitionable", "default_device", "random_seed_offset")
    return (*(getattr(jax.config, f"jax_{name}") for name in names), jax.sharding.get_abstract_mesh())
