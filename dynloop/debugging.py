"""`with dynloop.debug():` every loop is the plain Python loop that it stands for."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_IS_ON: ContextVar[bool] = ContextVar("dynloop.debug", default=False)


def is_on() -> bool:
    return _IS_ON.get()


@contextmanager
def debug() -> Iterator[None]:
    """Run every loop in this block as plain Python: one step after another, with `print`, breakpoints and pdb in it.

    The condition is evaluated as a Python boolean, so nothing around the loop may be compiled or batched: leave
    `jax.jit`, `jax.vmap` and `torch.vmap` out. Derivatives are those of the unrolled loop, with every step in memory;
    `checkpoints` and `dynloop.verify` are ignored, `max_steps`, the other observers and `full_output` are not. A `sync`
    is refused.

    >>> import jax, dynloop
    >>> def shout(x):
    ...     print("at", float(x))
    ...     return 2 * x
    >>> with dynloop.debug():
    ...     x = dynloop.while_loop(lambda x: x < 10, shout, jax.numpy.float32(3))
    at 3.0
    at 6.0
    """
    token = _IS_ON.set(True)
    try:
        yield
    finally:
        _IS_ON.reset(token)
