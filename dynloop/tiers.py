"""The tiers of `checkpoints=`: memory of the device, memory of the host, a disk.

A list of them says how many states a gradient may keep in each, the fastest first. Whose states lie where is the
compiled loop's affair: those that are touched least go to the slower tier (Stumm & Walther 2009).
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from dynloop.amount import bytes_of
from dynloop.errors import ArgumentError, ArgumentTypeError, described


@dataclass(frozen=True)
class Device:
    """States in the memory of the device that runs the loop.

    Args:
        size: how many states, an int >= 1; or an amount of memory as text, such as `"512MiB"`, for as many as fit.

    Used in a list of tiers, `checkpoints=[dynloop.Device(8), dynloop.Host(64)]`. At least one state lies there, since
    the steps run there.

    Raises:
        ArgumentError, ArgumentTypeError: the size is no such number or text; or, when a loop uses it, an amount is
            smaller than one state.

    >>> import dynloop
    >>> dynloop.Device(8).states(1000), dynloop.Device("64KiB").states(1000)
    (8, 65)
    """

    size: int | str

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", checked_size("Device", self.size))

    def states(self, state_bytes: int) -> int:
        """How many states of this many bytes it holds."""
        return states_of("Device", self.size, state_bytes)


@dataclass(frozen=True)
class Host:
    """States in pinned memory of the host, the machine that holds the device.

    Args:
        size: how many states, an int >= 1; or an amount of memory as text, such as `"2GiB"`, for as many as fit.

    Used in a list of tiers behind a `Device`: `checkpoints=[dynloop.Device(8), dynloop.Host(64)]`. The compiled program
    writes and reads them itself. On a CPU the two are the same memory, and a transfer is a copy.

    Raises:
        ArgumentError, ArgumentTypeError: as for `Device`.

    >>> import jax, dynloop
    >>> def double_until(x):
    ...     tiers = [dynloop.Device(2), dynloop.Host(3)]
    ...     return dynloop.while_loop(lambda y: y < 1000, lambda y: 2 * y, x, checkpoints=tiers)
    >>> float(jax.grad(double_until)(1.5))
    1024.0
    """

    size: int | str

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", checked_size("Host", self.size))

    def states(self, state_bytes: int) -> int:
        """How many states of this many bytes it holds."""
        return states_of("Host", self.size, state_bytes)


@dataclass(frozen=True)
class Disk:
    """States on a disk, for loops on PyTorch outside of `torch.compile`.

    Used in a list of tiers, the last one: `checkpoints=[dynloop.Device(8), dynloop.Host(64), dynloop.Disk("states",
    20)]`. Each state is a file, which is removed when its gradient needs it no more, or when nobody holds the loop's
    result any more. A compiled program opens no files and refuses such a tier. What is to survive its process is
    reversed by `adjoint.reverse` with an `adjoint.DiskStore`; see docs/by_hand.md.

    Args:
        path: the folder of the states, made if it is not there.
        size: how many states, an int >= 1; or an amount as text, such as `"2GiB"`, for as many as fit.

    Raises:
        ArgumentError, ArgumentTypeError: the size is no such number or text; or a compiled loop is given such a tier.

    >>> import dynloop
    >>> dynloop.Disk("states", 100).size
    100
    """

    path: str | PathLike[str]
    size: int | str

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", checked_size("Disk", self.size))


def checked_size(owner: str, size: Any) -> int | str:
    """A number of states or a readable amount of memory, either of them positive."""
    if isinstance(size, str):
        if bytes_of(owner, size) <= 0:
            raise ArgumentError(f"{owner}: the amount must be positive; got {size!r}")
        return size
    try:
        if isinstance(size, bool):
            raise TypeError
        slots = operator.index(size)
    except TypeError:
        raise ArgumentTypeError(
            f"{owner}: size is {described(size)}; give a number of states, or an amount of memory as text such as "
            '"2GiB"'
        ) from None
    if slots < 1:
        raise ArgumentError(f"{owner}: size={slots} holds no state; give at least 1, or leave the tier out")
    return slots


def states_of(owner: str, size: int | str, state_bytes: int) -> int:
    """How many states of this many bytes a tier of this size holds."""
    if isinstance(size, int):
        return size
    states = bytes_of(owner, size) // state_bytes
    if states < 1:
        raise ArgumentError(
            f"dynloop.{owner}({size!r}): one state of the carry takes {state_bytes} bytes; give at least that, or a "
            "number of states"
        )
    return states


@dataclass(frozen=True)
class Tiers:
    """The checked tiers of one loop; host, disk: none if None."""

    device: Device
    host: Host | None
    disk: Disk | None = None

    @property
    def given(self) -> list[Device | Host | Disk]:
        return [tier for tier in (self.device, self.host, self.disk) if tier]

    @property
    def counts_bytes(self) -> bool:
        return any(isinstance(tier.size, str) for tier in self.given)

    def slower_states(self, state_bytes: int) -> int:
        """How many states of this many bytes lie elsewhere than on the device."""
        several = (("Host", self.host), ("Disk", self.disk))
        return sum(states_of(owner, tier.size, state_bytes) for owner, tier in several if tier)

    def __repr__(self) -> str:
        return f"[{', '.join(f'dynloop.{tier!r}' for tier in self.given)}]"


def checked_tiers(name: str, given: Sequence[Any], *, has_files: bool = False) -> Tiers:
    """The tiers of a call to the loop `name`, or an error that says what is wrong with them.

    has_files: the loop may write files.
    """
    for tier in given:
        if not isinstance(tier, Device | Host | Disk):
            raise ArgumentTypeError(f"{name}: checkpoints has {described(tier)} among its tiers; {EXAMPLE}")
    if any(isinstance(tier, Disk) for tier in given) and not has_files:
        raise ArgumentError(
            f"{name}: checkpoints has a dynloop.Disk, and a compiled loop cannot write files; keep the states in a "
            "dynloop.Host, or reverse steps of your own by adjoint.reverse with an adjoint.DiskStore (docs/by_hand.md)"
        )
    match list(given):
        case [Device() as device]:
            return Tiers(device, None)
        case [Device() as device, Host() as host]:
            return Tiers(device, host)
        case [Device() as device, Disk() as disk]:
            return Tiers(device, None, disk)
        case [Device() as device, Host() as host, Disk() as disk]:
            return Tiers(device, host, disk)
    if not any(isinstance(tier, Device) for tier in given):
        raise ArgumentError(
            f"{name}: checkpoints has no dynloop.Device among its tiers, and the steps run there; {EXAMPLE}"
        )
    also = ", and then at most one Disk" if has_files else ""
    raise ArgumentError(
        f"{name}: checkpoints={list(given)} is not one Device and then at most one Host{also}; {EXAMPLE}"
    )


EXAMPLE = "give for example checkpoints=[dynloop.Device(8), dynloop.Host(64)]"
