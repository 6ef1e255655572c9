"""What a loop tells about itself when `full_output=True`."""

import enum
from dataclasses import dataclass
from typing import Any


class StoppedBecause(enum.Enum):
    """Why a loop stopped. Its value is the number in `Result.status`.

    >>> import dynloop
    >>> dynloop.StoppedBecause(1)
    <StoppedBecause.BOUND: 1>
    """

    #: The condition became false.
    CONDITION = 0
    #: `max_steps` steps were taken and the condition still held.
    BOUND = 1
    #: A floating leaf that the condition reads was NaN when the loop stopped; infinities are legal.
    NONFINITE = 2


@dataclass(frozen=True)
class Result:
    """The carry a loop ended with, and how it came to end: a pytree of arrays.

    Attributes:
        carry: the final carry, of the same structure as `init`.
        steps: int32 scalar, the number of steps taken.
        status: int32 scalar, the value of a `StoppedBecause`.
        ys: what a `scan` stacked, [length, ...]; None for other loops.

    Under `jax.vmap` or `torch.vmap` each has one more axis: every lane counts for itself.

    >>> import jax, dynloop
    >>> result = dynloop.while_loop(lambda x: x < 10, lambda x: 2 * x, jax.numpy.float32(1), full_output=True)
    >>> print(result)
    stopped after 4 steps because the condition became false
    >>> result.stopped_because
    <StoppedBecause.CONDITION: 0>
    """

    carry: Any
    steps: Any
    status: Any
    ys: Any = None

    @property
    def stopped_because(self) -> StoppedBecause:
        """The reason. Only outside of `jax.jit`, where `status` is a number; inside, compare `status` itself."""
        return StoppedBecause(int(self.status))

    def __str__(self) -> str:
        try:
            steps, reason = int(self.steps), self.stopped_because
        except TypeError:  # traced, or one number for each lane
            ys = "" if self.ys is None else f", ys={self.ys}"
            return f"Result(carry={self.carry}, steps={self.steps}, status={self.status}{ys})"
        return f"stopped after {steps} step{'' if steps == 1 else 's'} because {_SENTENCES[reason]}"


_SENTENCES = {
    StoppedBecause.CONDITION: "the condition became false",
    StoppedBecause.BOUND: "max_steps was reached while the condition still held",
    StoppedBecause.NONFINITE: "a value that the condition reads was NaN",
}
