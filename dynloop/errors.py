"""The errors dynloop raises, all under one base."""


def described(value: object) -> str:
    """A value in an error message: its kind and what it is."""
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} ({value!r})"


class DynloopError(Exception):
    """Base of every error that dynloop raises by itself.

    >>> import dynloop
    >>> try:
    ...     dynloop.Memory("a lot")
    ... except dynloop.DynloopError as error:
    ...     print(type(error).__name__)
    ArgumentError
    """


class ArgumentError(DynloopError, ValueError):
    """An argument has a value the call cannot take; the message names it and says what to pass.

    >>> import dynloop
    >>> try:
    ...     dynloop.Memory("a lot")
    ... except dynloop.ArgumentError as error:
    ...     print(error)
    Memory: cannot read 'a lot' as an amount of memory; give bytes as an int, or text such as "64MiB" or "2 GB"
    """


class ArgumentTypeError(DynloopError, TypeError):
    """An argument is of a kind the call cannot take.

    >>> import dynloop
    >>> try:
    ...     dynloop.while_loop(lambda x: x < 1, 3, 0.0, backend="jax")
    ... except dynloop.ArgumentTypeError as error:
    ...     print(error)
    while_loop: body must be a function of the carry; got an int (3)
    """


class CarryError(DynloopError, TypeError):
    """A leaf of the carry is no array, or changes shape, dtype or place from one step to the next.

    >>> import jax, dynloop
    >>> try:
    ...     dynloop.while_loop(lambda x: x < 9, lambda x: (x, x), jax.numpy.float32(1))
    ... except dynloop.CarryError as error:
    ...     print(str(error).splitlines()[0])
    while_loop: body must return a carry of the same structure as init.
    """


class BranchError(DynloopError, TypeError):
    """The branches of a `cond` return different structures, shapes or dtypes.

    >>> import jax, dynloop
    >>> try:
    ...     dynloop.cond(jax.numpy.array(True), lambda: (1.0, 2.0), lambda: 1.0)
    ... except dynloop.BranchError as error:
    ...     print(str(error).splitlines()[0])
    cond: true_fn and false_fn must return the same structure.
    """


class DerivativeError(DynloopError):
    """A derivative that this loop does not have; the message names one that it has.

    >>> import jax, dynloop
    >>> try:
    ...     jax.grad(lambda x: dynloop.while_loop(lambda x: x < 9, lambda x: x * x, x, checkpoints=0))(2.0)
    ... except dynloop.DerivativeError as error:
    ...     print(str(error).split(";")[0])
    while_loop: checkpoints=0 makes a loop without reverse mode, and this call asks for it
    """


class BatchingError(DynloopError):
    """A loop or branch that cannot be batched as asked; the message names what can be done instead.

    >>> import jax, dynloop
    >>> step = lambda x: x + jax.lax.psum(x, "i")
    >>> try:
    ...     jax.vmap(lambda x: dynloop.while_loop(lambda x: x < 9, step, x), axis_name="i")(jax.numpy.arange(3.0))
    ... except dynloop.BatchingError as error:
    ...     print(str(error).split(",")[0])
    while_loop: a step communicates over the axis 'i'
    """


class NonFiniteError(DynloopError, FloatingPointError):
    """A step made a leaf of the carry NaN where `dynloop.watch_nan()` was watching.

    >>> import jax, dynloop
    >>> lost = lambda x: jax.numpy.log(x - 3)
    >>> try:
    ...     with dynloop.debug():
    ...         dynloop.while_loop(lambda x: x < 9, lost, jax.numpy.float32(2), observe=dynloop.watch_nan())
    ... except dynloop.NonFiniteError as error:
    ...     print(error)
    while_loop: step 0 made carry NaN; state 0 has none: look there
    """


class BackendError(DynloopError, RuntimeError):
    """No array library can be chosen, or the chosen one cannot do what was asked.

    >>> import dynloop
    >>> try:
    ...     dynloop.while_loop(lambda x: x < 1, lambda x: x + 1, 0.0)
    ... except dynloop.BackendError as error:
    ...     print(str(error).splitlines()[0])
    while_loop: no array in init tells which library runs it
    """


class LoopSyntaxError(DynloopError, SyntaxError):
    """`@dynloop.loop` cannot rewrite this function; the error has the file, line and column, and the way out.

    >>> import dynloop
    >>> try:
    ...     @dynloop.loop
    ...     def count(n):
    ...         while n > 0:
    ...             yield n
    ... except dynloop.LoopSyntaxError as error:
    ...     print(error.msg)
    @dynloop.loop: generators are not supported; collect the values, and return them
    """


class StagingError(DynloopError, TypeError):
    """A loop or an `if` of a function under `@dynloop.loop` cannot be staged; the message has its line and the name.

    >>> import jax, dynloop
    >>> @dynloop.loop
    ... def grow(x):
    ...     while x.sum() < 10:
    ...         x = jax.numpy.concatenate([x, x])
    ...     return x
    >>> try:
    ...     grow(jax.numpy.ones(2))
    ... except dynloop.StagingError as error:
    ...     print(str(error).partition(": ")[2])
    'x' has shape (2,) before the loop but (4,) after one iteration; shapes must not change
    """


class UnassignedError(DynloopError, UnboundLocalError):
    """A name is read that staged code assigns on some paths only, so that it may have no value.

    >>> import dynloop
    >>> issubclass(dynloop.UnassignedError, UnboundLocalError)
    True
    """
