"""The public functions: check the arguments, choose the backend, hand over."""

import operator
from collections.abc import Callable
from typing import Any, Literal

from dynloop import backend as backends
from dynloop.checkpoints import Checkpoints, storage
from dynloop.errors import ArgumentError, ArgumentTypeError, described

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

    The same numbers as the Python loop, values and gradients, in one program whatever the number of
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
            `"auto"` (or None): what 4 MiB hold: up to 64 slots, at least 8 whatever their size, and the
            rest a leaf buffer, which by itself holds every state of a shorter loop.
            An int: that many, the start included: up to 128 slots; from 192 on 64 slots and the rest
            a leaf buffer. 0 makes a loop without reverse mode.
            `"all"`: every state, for which `max_steps` must be given.
            `dynloop.Memory("1GiB")`: as many as fit. Also `adjoint.Online`, `Periodic` and `StoreAll`.
        on_max_steps: what happens when `max_steps` steps were taken and `cond` still holds.
            `"raise"`: an error, also under `jit` and also if only the gradient is used.
            `"stop"`: the partial result. `"nan"`: floating leaves and their gradients become NaN.
        full_output: return a `Result` (carry, steps, status) instead of the carry.
        backend: `"jax"`; None looks for an array in `init`.

    Returns:
        The final carry, or a `Result`. Under `jax.vmap` each lane stops by itself: body never
        sees a state whose condition is false, and a `Result` counts for each lane.

    Cost:
        Without a gradient, `max_steps` or `full_output` the program is `jax.lax.while_loop`'s; with
        either of the two, it also counts the steps and evaluates cond once more.
        For n steps a gradient in s slots runs `adjoint.Online(s).cost(n).evaluations` steps, at least
        P(n + 1, s) + n, n of them taped, and holds (s + 4) carries, one step's tape and twice the
        closed-over floating values.

    Raises:
        ArgumentError, ArgumentTypeError: an argument is out of its range or kind.
        CarryError: a leaf changes shape or dtype, or the structure changes.
        BackendError: no array and no `backend`.
        DerivativeError: reverse mode with `checkpoints=0`, or twice through a backward rule that is not
            linear in its cotangent.
        BatchingError: `jax.vmap` over two axes along both of which `cond` differs.
        RuntimeError: while the program runs, if the bound is reached and `on_max_steps="raise"`
            (equinox's, or under `jax.jit` JAX's own; a ValueError of JAX's if a compiled function has run before).
            A program that cannot call Python, one that `jax.export` makes, is refused with ArgumentError.

    >>> import jax, dynloop
    >>> def double_until(x):
    ...     return dynloop.while_loop(lambda y: y < 10, lambda y: 2 * y, x)
    >>> float(double_until(jax.numpy.float32(1.5))), float(jax.grad(double_until)(1.5))
    (12.0, 8.0)
    """
    name = "while_loop"
    for label, function in (("cond", cond), ("body", body)):
        if not callable(function):
            raise ArgumentTypeError(f"{name}: {label} must be a function of the carry; got {described(function)}")
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
    except TypeError as error:  # a traced number raises one of its library, derived from TypeError
        raise ArgumentTypeError(
            f"{name}: max_steps must be a Python int or None, since it sizes buffers; got {max_steps!r}. "
            "A bound that is known only while running belongs into cond, with a counter in the carry."
        ) from error
    if not 0 <= bound < 2**31:
        raise ArgumentError(f"{name}: max_steps must be between 0 and 2**31 - 1; got {bound}")
    return bound
