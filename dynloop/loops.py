"""The public functions: check the arguments, choose the backend, hand over."""

import operator
from collections.abc import Callable
from typing import Any, Literal

from dynloop import backend as backends
from dynloop.checkpoints import Checkpoints, storage
from dynloop.errors import ArgumentError, ArgumentTypeError

OnMaxSteps = Literal["raise", "stop", "nan"]


def while_loop(
    cond: Callable[[Any], Any],
    body: Callable[[Any], Any],
    init: Any,
    *,
    max_steps: int | None = None,
    checkpoints: Checkpoints = "auto",
    on_max_steps: OnMaxSteps = "raise",
    full_output: bool = False,
    backend: str | None = None,
) -> Any:
    """Run `carry = body(carry)` while `cond(carry)` holds, differentiably, in the memory you choose.

    The same numbers as the Python loop, values and gradients, compiled once whatever the number of
    steps. Forward mode runs one loop on the carry and its tangent. Reverse mode stores some states
    on the way and computes others again, by binomial checkpointing (Griewank and Walther 2000) with
    the places chosen while the loop runs, since its length is unknown.

    Args:
        cond: takes the carry, returns a boolean scalar. It may read anything; nothing in it is
            differentiated, so a parameter that only `cond` reads has gradient zero.
        body: takes the carry, returns a carry of the same structure, shapes and dtypes. It may close
            over arrays, tracers and modules; what it closes over is differentiated.
        init: the first carry: any pytree of arrays and numbers. Integers, booleans, typed keys,
            complex numbers and None are carried along.
        max_steps: the largest number of steps, or None for no bound. The program does not grow
            with it.
        checkpoints: how many states a gradient may keep, a state being one carry.
            `"auto"` (or None): every state if 4 MiB hold them, else what fits, between 8 and 64 slots.
            An int: that many slots, the start included; 0 makes a loop without reverse mode.
            `"all"`: every state, for which `max_steps` must be given.
            `dynloop.Memory("1GiB")`: as many as fit. Also `adjoint.Online`, `Periodic` and `StoreAll`.
        on_max_steps: what happens when `max_steps` steps were taken and `cond` still holds.
            `"raise"`: an error, also under `jit` and also if only the gradient is used.
            `"stop"`: the partial result. `"nan"`: floating leaves and their gradients become NaN.
        full_output: return a `Result` (carry, steps, status) instead of the carry.
        backend: `"jax"`; None looks for an array in `init`.

    Returns:
        The final carry, or a `Result`.

    Cost:
        Without a gradient the program is `jax.lax.while_loop`'s. For n steps a gradient in s slots
        runs at least P(n + 1, s) + n steps (`adjoint.Online(s).cost(n)` counts them), n of them
        taped, and holds (s + 4) carries, one step's tape and twice the closed-over floating values.

    Raises:
        ArgumentError, ArgumentTypeError: an argument is out of its range or kind.
        CarryError: a leaf changes shape or dtype, or the structure changes.
        BackendError: no array and no `backend`.

    >>> import jax, dynloop
    >>> def double_until(x):
    ...     return dynloop.while_loop(lambda y: y < 10, lambda y: 2 * y, x)
    >>> float(double_until(jax.numpy.float32(1.5))), float(jax.grad(double_until)(1.5))
    (12.0, 8.0)
    """
    name = "while_loop"
    for label, function in (("cond", cond), ("body", body)):
        if not callable(function):
            kind = type(function).__name__
            article = "an" if kind[0] in "aeiou" else "a"
            raise ArgumentTypeError(
                f"{name}: {label} must be a function of the carry; got {article} {kind} ({function!r})"
            )
    bound = _check_max_steps(name, max_steps)
    if on_max_steps not in ("raise", "stop", "nan"):
        raise ArgumentError(f'{name}: on_max_steps={on_max_steps!r} is unknown; give "raise", "stop" or "nan"')
    store = storage(name, checkpoints, bound)
    chosen = backends.choose(name, backend, init)
    return chosen.while_loop(cond, body, init, storage=store, on_max_steps=on_max_steps, full_output=full_output)


def _check_max_steps(name: str, max_steps: Any) -> int | None:
    if max_steps is None:
        return None
    try:
        if isinstance(max_steps, bool):
            raise TypeError
        bound = operator.index(max_steps)
    except Exception as error:  # a tracer raises an error of its own library
        raise ArgumentTypeError(
            f"{name}: max_steps must be a Python int or None, since it sizes buffers; got {max_steps!r}. "
            "A bound that is known only while running belongs into cond, with a counter in the carry."
        ) from error
    if not 0 <= bound < 2**31:
        raise ArgumentError(f"{name}: max_steps must be between 0 and 2**31 - 1; got {bound}")
    return bound
