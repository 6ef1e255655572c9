"""`dynloop.explain`: runs a function once, and reports what its loops did and what their gradients cost."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from dynloop import backend as backends
from dynloop import debugging
from dynloop.errors import ArgumentError, ArgumentTypeError, described
from dynloop.report import Report


def explain(fn: Callable[..., Any], *, backend: str | None = None) -> Callable[..., Report]:
    """Makes of a function one that runs it once and returns a report of its loops instead of its result.

    Args:
        fn: any function that calls loops of dynloop, itself or in what it calls; a gradient too, as in
            `dynloop.explain(jax.grad(f))(x)`. On JAX it is compiled, as by `jax.jit`; arrays among its arguments are
            traced, and everything else is taken as it is.
            On PyTorch it is called as it is, and loops that run eagerly are told of, gradients by
            `torch.autograd` and `.backward()` inside of `fn` too.
        backend: `"jax"` or `"torch"`; None looks for an array in the arguments.

    Returns:
        A function of the arguments of `fn` that returns a `Report`: for each loop, wherever in the program, how often
        it ran and how many steps it took, which states a gradient keeps and in how many bytes, the evaluations that
        its schedule predicts for a gradient, the least possible ones, and those of this call. A loop inside of another
        one, or called from several places, has one entry with all its runs; so has one inside of `jax.shard_map`,
        which each device runs. `Report.loops[0].picture()` draws the
        schedule.

    Raises:
        ArgumentTypeError: `fn` cannot be called.
        BackendError: no array among the arguments and no `backend`.
        ArgumentError: inside of a transformation such as `jax.jit`, where nothing runs yet; a loop inside of one of
            `torch.func`; or under `dynloop.debug()`.

    Cost:
        One run of `fn`; on JAX one compilation too, and one call of the host for each run of a loop.

    >>> import jax, dynloop
    >>> def root(a):
    ...     close = lambda x: abs(x * x - a) > 1e-3
    ...     return dynloop.while_loop(close, lambda x: 0.5 * (x + a / x), a, checkpoints=2)
    >>> report = dynloop.explain(root)(jax.numpy.float32(2000))
    >>> loop = report.loops[0]
    >>> loop.name, loop.steps, loop.schedule, loop.evaluations, loop.least
    ('while_loop', 9, Online(slots=2, leaf=0), 30, 29)
    """
    if not callable(fn):
        raise ArgumentTypeError(f"explain: fn must be a function that calls loops; got {described(fn)}")

    @wraps(fn)
    def explained(*args: Any, **kwargs: Any) -> Report:
        if debugging.is_on():
            raise ArgumentError(
                "explain: under dynloop.debug() a loop is plain Python and keeps nothing; call it outside of that block"
            )
        return backends.choose("explain", backend, args=(args, kwargs)).explain(fn, args, kwargs)

    # `wraps` would have it return what `fn` returns.
    explained.__annotations__ = {"return": Report}
    return explained
