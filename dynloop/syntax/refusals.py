"""What is told when a statement comes to be staged: that it cannot be, or that a part of it runs once only."""

import warnings
from collections import deque
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from dynloop.errors import StagingError
from dynloop.syntax.arrays import Staging, is_array, is_compiling
from dynloop.syntax.site import Site

_CONTAINERS = (list, set, dict, bytearray, deque)


def refuse(site: Site, reads: Sequence[Any], pieces: Sequence[Callable[..., Any]], is_traced: bool = True) -> None:
    """Raise for what the statement must not do if it is staged; warn of what it had better not."""
    for limit in site.limits.refused:
        if not limit.name or isinstance(_value(site, reads, pieces, limit.name), _CONTAINERS):
            raise StagingError(f"{site} depends on traced values and must be staged, but {limit.where} {limit.what}")
    for limit in site.limits.once if is_traced else ():
        if is_compiling():
            raise StagingError(
                f"{site} is staged, and {limit.where} {limit.what}, which torch.compile does not trace; leave it out, "
                "or call the function without torch.compile"
            )
        warnings.warn(
            f"{site} is staged, and {limit.where} {limit.what}, which runs while it is traced, and not at every step; "
            "use observe=dynloop.on_step(...), or what the array library has for it",
            stacklevel=_frames_to_user(),
        )


def _frames_to_user() -> int:
    """How far up the stack the user's function is, as `warnings` counts."""
    return 5


def _value(site: Site, reads: Sequence[Any], pieces: Sequence[Callable[..., Any]], name: str) -> Any:
    """What a name means inside of pieces that only read it."""
    if name in site.reads:
        return reads[site.reads.index(name)]
    for piece in pieces:
        if isinstance(piece, FunctionType) and name in piece.__code__.co_freevars:
            return dict(zip(piece.__code__.co_freevars, piece.__closure__ or (), strict=True))[name].cell_contents
        if isinstance(piece, FunctionType) and name in piece.__code__.co_names:
            return piece.__globals__.get(name)
    return None


def scalar(staging: Staging, what: str, condition: Any) -> Any:
    """A condition as one boolean."""
    if not is_array(condition):
        return bool(condition)
    if condition.shape != ():
        kind = staging.kind(condition)
        raise StagingError(f"{what}: the condition must be a scalar, got {kind} (use where, or vmap)")
    return staging.truth(condition)
