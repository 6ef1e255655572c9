"""A progress bar that watches a loop: tqdm draws it, and each real step moves it."""

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, ClassVar

from dynloop.errors import ArgumentError, ArgumentTypeError, BackendError, described


class Progress:
    """Show how many steps a loop has taken, and how fast, while it runs: `observe=dynloop.Progress()`.

    The bar shows the steps of the lane that has taken most. A loop that starts anew, another call or the next one of an
    outer loop's, ends the bar and begins another. As a context manager, or by `close`, the last one ends with its
    final count; without either it is redrawn a few times a second, so its line may stay behind by that much.

    Args:
        total: the steps that the bar is full at, an int >= 1; None, the default, draws no bar but the count and the
            rate, since nobody knows the length of such a loop.
        description: text before the bar, the default being none.
        file: where to write, an object with `write` and `flush`; None is `sys.stderr`.

    Cost:
        One call of the host a step; the carry is not handed to it.

    Raises:
        ArgumentError, ArgumentTypeError: `total` is no int, or below 1.
        BackendError: tqdm is not installed.

    >>> import io, jax, dynloop
    >>> with dynloop.Progress(description="tripling", file=io.StringIO()) as progress:
    ...     x = dynloop.while_loop(lambda x: x < 10, lambda x: 3 * x, jax.numpy.float32(2), observe=progress)
    >>> progress.steps
    2
    """

    reads_carry: ClassVar[bool] = False

    def __init__(self, total: int | None = None, description: str = "", file: Any = None) -> None:
        if total is not None and (isinstance(total, bool) or not isinstance(total, int)):
            raise ArgumentTypeError(f"Progress: total must be a number of steps or None; got {described(total)}")
        if total is not None and total < 1:
            raise ArgumentError(f"Progress: total must be at least 1; got {total}; leave it out if nobody knows it")
        try:
            from tqdm import tqdm
        except ImportError as error:
            raise BackendError(f'Progress: {error}; pip install "dynloop[progress]" brings tqdm') from error
        self.new_bar = lambda: tqdm(desc=description or None, total=total, unit=" steps", file=file)
        self.bar: Any = None
        self.steps = 0
        """The steps that the newest run has taken."""

    def see(self, name: str, step: int, carry: Any, leaves: Sequence[tuple[str, Any]]) -> None:
        """Take the news of a step."""
        # Lanes take their steps together, so that a first step after a second one is another run's.
        if step == 0 and self.steps > 1:
            self.end()
        if self.bar is None:
            self.bar, self.steps = self.new_bar(), 0
        if step + 1 > self.steps:
            self.bar.update(step + 1 - self.steps)
            self.steps = step + 1

    def close(self) -> None:
        """Wait for the programs of JAX that run, and end the bar, if there is one, with its final count."""
        if (jax := sys.modules.get("jax")) is not None:
            jax.effects_barrier()
        self.end()

    def end(self) -> None:
        if self.bar is not None:
            self.bar.close()
        self.bar = None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        self.close()
