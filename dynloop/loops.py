"""The public functions: check the arguments, choose the backend, hand over."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from dynloop import backend as backends
from dynloop.checkpoints import Checkpoints
from dynloop.observers import Observer
from dynloop.settings import OnMaxSteps, check_function, checked


def while_loop(
    cond: Callable[[Any], Any],
    body: Callable[[Any], Any],
    init: Any,
    *,
    max_steps: int | None = None,
    checkpoints: Checkpoints = "auto",
    on_max_steps: OnMaxSteps = "raise",
    full_output: bool = False,
    sync: Literal["any"] | None = None,
    observe: Observer | Sequence[Observer] | None = None,
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
        checkpoints: how many states a gradient may keep, a state being what it reads of one carry.
            `"auto"` (or None): what 4 MiB hold: up to 64 slots, at least 8 whatever their size, and the
            rest a leaf buffer, which by itself holds every state of a shorter loop.
            An int: that many, the start included: up to 128 slots; from 192 on 64 slots and the rest
            a leaf buffer. 0 makes a loop without reverse mode.
            `"all"`: every state, for which `max_steps` must be given.
            `dynloop.Memory("1GiB")`: as many as fit. Also `adjoint.Online`, `Periodic` and `StoreAll`.
            `[dynloop.Device(8), dynloop.Host(64)]`: in two tiers, the second in pinned memory of the host;
            together up to 128 slots, or every state of a loop with a smaller bound.
        on_max_steps: what happens when `max_steps` steps were taken and `cond` still holds.
            `"raise"`: an error, also under `jit` and also if only the gradient is used.
            `"stop"`: the partial result. `"nan"`: floating leaves and their gradients become NaN.
        full_output: return a `Result` (carry, steps, status) instead of the carry.
        sync: `"any"`, inside `jax.shard_map`, or in processes that `torch.distributed` has joined: all of them go
            on while the condition holds on any of them. Needed where `body` communicates. None: each stops by itself.
        observe: `dynloop.on_step(f)`, `watch_nan()`, `Progress()`, `verify()` or several: told of each real
            step of each lane once, never of steps that a gradient runs again.
        backend: `"jax"` or `"torch"`; None looks for an array in `init`.

    Returns:
        The final carry, or a `Result`. Under `jax.vmap` or `torch.vmap` each lane stops by itself: body never
        sees a state whose condition is false, and a `Result` counts for each lane.

    Cost:
        Without a gradient, `max_steps` or `full_output` the program on JAX is `jax.lax.while_loop`'s; with
        either of the two, it also counts the steps and evaluates cond once more. On PyTorch it is a Python loop.
        For n steps a gradient in s slots runs `adjoint.Online(s).cost(n).evaluations` steps, at least
        P(n + 1, s) + n, n of them taped, and holds (s + 4) carries, one step's tape and twice the
        closed-over floating values.

    Raises:
        ArgumentError, ArgumentTypeError: an argument is out of its range or kind.
        CarryError: a leaf changes shape or dtype, or the structure changes.
        BackendError: no array and no `backend`.
        DerivativeError: reverse mode with `checkpoints=0`, or twice through a backward rule that is not
            linear in its cotangent.
        BatchingError: under `jax.vmap`, communication between lanes that do not stop together.
        RuntimeError: while the program runs, if the bound is reached and `on_max_steps="raise"`
            (on JAX equinox's, or under `jax.jit` JAX's own; a ValueError of it if a compiled function has run before).
            A program that cannot call Python, one that `jax.export` makes, is refused with ArgumentError.

    >>> import jax, dynloop
    >>> def double_until(x):
    ...     return dynloop.while_loop(lambda y: y < 10, lambda y: 2 * y, x)
    >>> float(double_until(jax.numpy.float32(1.5))), float(jax.grad(double_until)(1.5))
    (12.0, 8.0)

    On PyTorch, with the same numbers:

    >>> import torch
    >>> x = torch.tensor(1.5, requires_grad=True)
    >>> y = double_until(x)
    >>> y.backward()
    >>> y.item(), x.grad.item()
    (12.0, 8.0)
    """
    name = "while_loop"
    check_function(name, "cond", cond, "the carry")
    check_function(name, "body", body, "the carry")
    options = checked(name, checkpoints, max_steps, on_max_steps, full_output, sync, observe)
    return backends.choose(name, backend, init=init).while_loop(cond, body, init, options)


def fori_loop(
    lower: Any,
    upper: Any,
    body: Callable[[Any, Any], Any],
    init: Any,
    *,
    max_steps: int | None = None,
    checkpoints: Checkpoints = "auto",
    on_max_steps: OnMaxSteps = "raise",
    full_output: bool = False,
    sync: Literal["any"] | None = None,
    observe: Observer | Sequence[Observer] | None = None,
    backend: str | None = None,
) -> Any:
    """Run `carry = body(i, carry)` for i from `lower` up to, not including, `upper`.

    The number of steps is known when the loop starts, even if it is traced; so a gradient takes the
    least possible number of evaluations in the given slots (Griewank and Walther 2000).

    Args:
        lower, upper: integer scalars, concrete or traced; they get no gradient. No step if
            `upper <= lower`, and 2**31 - 1 steps at most.
        body: takes the index, of the dtype of `lower` and `upper`, and the carry; returns the next carry.
        init, max_steps, full_output, sync, observe: as in `while_loop`; with `max_steps`, more steps than
            that are cut off as `on_max_steps` says.
        checkpoints: as in `while_loop`; also `adjoint.Binomial`, since the number of steps is known, and
            `"all"` where `lower` and `upper` are Python ints.
        on_max_steps: `"raise"`, `"stop"` or `"nan"`, as in `while_loop`.
        backend: `"jax"` or `"torch"`; None looks for an array in `init`, then in the bounds.

    Returns:
        The final carry, or a `Result`.

    Cost:
        For n steps a gradient in s slots runs P(n + 1, s) + n steps, which is the least.

    Raises:
        As `while_loop`.

    >>> import jax, dynloop
    >>> def power(x, n):
    ...     return dynloop.fori_loop(0, n, lambda i, y: y * x, jax.numpy.float32(1))
    >>> float(power(2.0, 5)), float(jax.grad(power)(2.0, 5))
    (32.0, 80.0)
    """
    name = "fori_loop"
    check_function(name, "body", body, "the index and the carry")
    options = checked(name, checkpoints, max_steps, on_max_steps, full_output, sync, observe)
    chosen = backends.choose(name, backend, init=init, bounds=(lower, upper))
    return chosen.fori_loop(lower, upper, body, init, options)


def scan(
    step: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    *,
    length: int | None = None,
    until: Callable[[Any], Any] | None = None,
    reverse: bool = False,
    max_steps: int | None = None,
    checkpoints: Checkpoints = "auto",
    on_max_steps: OnMaxSteps = "raise",
    full_output: bool = False,
    sync: Literal["any"] | None = None,
    observe: Observer | Sequence[Observer] | None = None,
    backend: str | None = None,
) -> Any:
    """Run `carry, y = step(carry, x)` for each row x of `xs`, stacking the ys; stop early where `until` says so.

    Args:
        step: takes the carry and a row of `xs`; returns the next carry and what is to be stacked, each
            any pytree (None: nothing).
        init: the first carry, as in `while_loop`.
        xs: a pytree of arrays that share their first axis, one row a step; or None, and then `length`.
        length: the number of rows, a Python int; optional where `xs` has rows.
        until: takes the carry, returns a boolean scalar; tested before every step, the first one
            included. It gets no gradient. Without it every row is used.
        reverse: take the rows, and stack the ys, from the last to the first.
        max_steps, on_max_steps, full_output, sync, observe: as in `while_loop`.
        checkpoints: as in `while_loop`; `"all"` needs no `max_steps` here, and without `until` there is
            `adjoint.Binomial` too.
        backend: `"jax"` or `"torch"`; None looks for an array in `init`, then in `xs`.

    Returns:
        (carry, ys), or a `Result` with both. The y of the step that made `until` true is kept;
        rows of ys past it are zeros, and rows of `xs` past it get zero gradient.

    Cost:
        The ys are written once, to their own array, and are in no checkpoint. Without `until` a gradient
        takes the least number of evaluations, as in `fori_loop`; with it, as in `while_loop`.

    Raises:
        ArgumentError: rows and `length` disagree, or there is neither.
        Otherwise as `while_loop`.

    >>> import jax.numpy as jnp, dynloop
    >>> running_sum = lambda total, x: (total + x, total + x)
    >>> carry, ys = dynloop.scan(running_sum, 0.0, jnp.arange(1.0, 9.0), until=lambda total: total >= 10)
    >>> float(carry), ys.tolist()
    (10.0, [1.0, 3.0, 6.0, 10.0, 0.0, 0.0, 0.0, 0.0])
    """
    name = "scan"
    check_function(name, "step", step, "the carry and a row of xs")
    if until is not None:
        check_function(name, "until", until, "the carry")
    options = checked(name, checkpoints, max_steps, on_max_steps, full_output, sync, observe)
    chosen = backends.choose(name, backend, init=init, xs=xs)
    return chosen.scan(step, init, xs, length, until, reverse, options)
