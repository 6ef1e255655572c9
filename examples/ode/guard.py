"""What a trial that is no number leaves to a gradient: nothing.

A trial may leave the domain of the field, be rejected, and be followed by a shorter one; its value then counts no
more. Yet reverse mode multiplies the cotangent 0 of what was not selected by the NaN inside of the field, which is NaN
for all that the field reads. So a trial's derivative is cut off where the trial is not finite, at all of its inputs.
"""

from collections.abc import Callable
from typing import Any

from .methods import Trial

Array = Any


def finite(trial: Trial, xp: Any) -> Array:
    """Whether every entry of a trial is a number."""
    return xp.all(xp.isfinite(xp.stack([*trial[:3], *trial.stages])))


def guarded(attempt: Callable[..., Trial], xp: Any, *inputs: Array) -> tuple[Trial, Array]:
    """The trial `attempt(*inputs)`, and whether it is finite; if it is not, it has no derivative.

    On PyTorch that holds op by op, not for lanes of a `torch.vmap`, which share one tape, nor inside of its compiler.
    """
    if xp.__name__ == "torch":
        trial = attempt(*inputs)
        fine = finite(trial, xp)
        return (trial if is_taped(xp, fine) else detached(trial)), fine
    return without_tangents(attempt, xp, *inputs)


def is_taped(torch: Any, fine: Array) -> bool:
    if torch.compiler.is_compiling():
        return True
    try:
        return bool(fine)
    except RuntimeError:
        # Lanes of a vmap have no one answer.
        return True


def detached(trial: Trial) -> Trial:
    value, slope, error = (leaf.detach() for leaf in trial[:3])
    return Trial(value, slope, error, tuple(leaf.detach() for leaf in trial.stages))


def without_tangents(attempt: Callable[..., Trial], xp: Any, *inputs: Array) -> tuple[Trial, Array]:
    """The same on JAX: tangents that are zero at the inputs are, transposed, cotangents that are zero there."""
    import jax

    # What the field closes over becomes an input too.
    closed, read = jax.closure_convert(attempt, *inputs)

    @jax.custom_jvp
    def trial_of(*everything: Array) -> tuple[Trial, Array]:
        trial = closed(*everything)
        return trial, finite(trial, xp)

    @trial_of.defjvp
    def _(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> Any:
        (trial, fine), push = jax.linearize(trial_of.fun, *primals)
        kept = [xp.where(fine, tangent, xp.zeros_like(tangent)) for tangent in tangents]
        return (trial, fine), push(*kept)

    return trial_of(*inputs, *read)
