"""What `checkpoints=` means: from the user's words to slots and leaf rows.

A loop keeps some of its states while it runs forward, to run backward from them. How many is the
user's choice, in slots or in bytes; where they lie is `adjoint`'s. Sizes are plain integers here,
so this file knows no array library.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import adjoint
from dynloop.amount import bytes_of
from dynloop.errors import ArgumentError, ArgumentTypeError, DerivativeError, described
from dynloop.tiers import Device, Disk, Host, Tiers, checked_tiers

# What "auto" may use for stored states.
AUTO_BYTES = 4 * 2**20
AUTO_SLOTS = (8, 64)
# The table of stores is made while tracing, in a time that grows as the square of the slots (time
# `adjoint.store_table(128)`), so there is an end to them. More rows serve as leaf rows, which need
# no table; but that pays only from some number on: few leaf rows with fewer slots cost more steps
# than the slots alone (compare `adjoint.Online(64, leaf=65).cost(n)` with `adjoint.Online(128).cost(n)`).
MOST_SLOTS = 128
SLOTS_BESIDE_LEAF = 64
ROWS_WORTH_A_LEAF = 192


@dataclass(frozen=True)
class Memory:
    """An amount of memory for stored states.

    Args:
        amount: bytes as an int, or text such as `"64MiB"` (powers of 1024) or `"2 GB"` (powers of 1000).

    The loop keeps as many states as fit; one state is the sum of the bytes of those leaves of the carry that
    a gradient reads: a sum, a counter or a buffer that is only written take none of it.
    Besides them a gradient needs about four states, one step's tape and twice the closed-over
    floating values.

    Raises:
        ArgumentError: the amount cannot be read or is not positive; or, when a loop uses it, it is
            smaller than one state.

    >>> import dynloop
    >>> dynloop.Memory("64KiB").bytes
    65536
    """

    amount: int | str

    def __post_init__(self) -> None:
        if self.bytes <= 0:
            raise ArgumentError(f"Memory: the amount must be positive; got {self.amount!r}")

    @property
    def bytes(self) -> int:
        """The amount in bytes."""
        return bytes_of("Memory", self.amount)


Schedule = adjoint.Online | adjoint.StoreAll | adjoint.Periodic | adjoint.Binomial
Tier = Device | Host | Disk
Checkpoints = Literal["auto", "all"] | int | Memory | Schedule | Sequence[Tier] | None


@dataclass(frozen=True)
class Layout:
    """The rows of a loop's buffers.

    `slots` rows hold planned checkpoints, placed every `block` steps at the earliest; one more is
    the working row of the reversal. `leaf` rows, if any, receive every state of a block in
    turn. With no slots the leaf rows hold every state of the loop.

    Of the slots, or of the leaf rows if there are none, the last `host` lie in memory of the host.
    """

    slots: int
    leaf: int
    # The bound on the number of steps is known and every block start has a slot: nothing is ever evicted.
    is_complete: bool = False
    host: int = 0

    @property
    def block(self) -> int:
        return max(self.leaf, 1)

    @property
    def rows(self) -> int:
        return self.slots + 1 + self.leaf if self.slots else self.leaf

    @property
    def first_host_row(self) -> int:
        return (self.slots or self.leaf) - self.host

    @property
    def device_rows(self) -> int:
        return self.rows - self.host


@dataclass(frozen=True)
class Storage:
    """A checked `checkpoints=` of a call to the function `name`.

    bound: the bound on its steps, if there is one.   is_counted: the steps are counted, for the bound or a `Result`.
    where: its body stands, as `location` tells.
    """

    name: str
    checkpoints: Literal["auto", "all"] | int | Memory | Schedule | Tiers | None
    bound: int | None
    is_counted: bool = False
    where: str = ""

    @property
    def is_forward_only(self) -> bool:
        return self.checkpoints == 0 and isinstance(self.checkpoints, int)

    @property
    def counts_bytes(self) -> bool:
        if isinstance(self.checkpoints, Tiers):
            return self.checkpoints.counts_bytes
        return self.checkpoints in ("auto", None) or isinstance(self.checkpoints, Memory)

    @property
    def has_host(self) -> bool:
        """May states lie elsewhere than on the device?"""
        return isinstance(self.checkpoints, Tiers) and len(self.checkpoints.given) > 1

    def layout(self, carry_bytes: int | None) -> Layout:
        """Rows for a carry of this many bytes; None where that is known only when the program runs."""
        if carry_bytes is None and self.counts_bytes:
            raise ArgumentError(
                f"{self.name}: checkpoints={self._given()} counts the bytes of a state, and the size of this carry is "
                f"symbolic; give a number of slots, such as checkpoints={AUTO_SLOTS[0]}"
            )
        slots, leaf = self._slots_and_leaf(carry_bytes or 1)
        device, host = slots + leaf, self._host_states(carry_bytes or 1)
        if self.bound is not None and self.bound <= device + host:
            rows = max(self.bound, 1)
            return Layout(0, rows, host=max(rows - device, 0))
        both = min(slots + host, MOST_SLOTS)
        if self.bound is None:
            return Layout(both, leaf, host=both - slots)
        blocks = -(-self.bound // max(leaf, 1))
        used = min(both, blocks)
        return Layout(used, leaf, is_complete=blocks <= both, host=max(used - slots, 0))

    def _given(self) -> str:
        match self.checkpoints:
            case Memory() as memory:
                return f"dynloop.Memory({memory.amount!r})"
            case Tiers() as tiers:
                return repr(tiers)
            case _:
                return '"auto"'

    def _host_states(self, carry_bytes: int) -> int:
        return self.checkpoints.slower_states(carry_bytes) if isinstance(self.checkpoints, Tiers) else 0

    def _slots_and_leaf(self, carry_bytes: int) -> tuple[int, int]:
        match self.checkpoints:
            case "auto" | None:
                rows = AUTO_BYTES // carry_bytes
                slots = min(max(rows, AUTO_SLOTS[0]), AUTO_SLOTS[1])
                return slots, _leaf_of(rows - slots)
            case "all" | adjoint.StoreAll():
                assert self.bound is not None, "checked with the arguments"
                return 0, max(self.bound, 1)
            case Memory() as memory:
                if memory.bytes < carry_bytes:
                    raise ArgumentError(
                        f"{self.name}: checkpoints=dynloop.Memory({memory.amount!r}), and one state of the carry takes "
                        f"{carry_bytes} bytes; give at least dynloop.Memory({carry_bytes}), or checkpoints=0 for a "
                        "loop that is never differentiated in reverse mode"
                    )
                return _divide(memory.bytes // carry_bytes)
            case Tiers(device=device):
                return _divide(device.states(carry_bytes))
            case adjoint.Binomial() as binomial:
                return binomial.slots, 0
            case adjoint.Online() as online:
                return online.slots, online.leaf
            case adjoint.Periodic() as periodic:
                assert self.bound is not None, "checked with the arguments"
                return max(-(-self.bound // periodic.period), 1), _leaf_of(periodic.period)
            case int() as slots if slots > 0:
                return _divide(slots)
            case _:
                raise DerivativeError(
                    f"{self.name}: checkpoints=0 makes a loop without reverse mode, and this call asks for it; give "
                    'checkpoints="auto", a number of slots or dynloop.Memory(...), or use forward mode, jax.jvp '
                    "or torch.func.jvp"
                )


def _leaf_of(rows: int) -> int:
    # One leaf row would hold the state that the working row holds already.
    return rows if rows > 1 else 0


def _divide(rows: int) -> tuple[int, int]:
    if rows < ROWS_WORTH_A_LEAF:
        return min(rows, MOST_SLOTS), 0
    return SLOTS_BESIDE_LEAF, rows - SLOTS_BESIDE_LEAF


def storage(
    name: str,
    checkpoints: Checkpoints,
    bound: int | None,
    *,
    is_known: bool = False,
    is_counted: bool = False,
    where: str = "",
    has_files: bool = False,
) -> Storage:
    """Check the `checkpoints=` of a call to the function `name`.

    is_known: the number of steps is known, at its start.   has_files: states may lie in files.
    """
    if isinstance(checkpoints, Sequence) and not isinstance(checkpoints, str):
        return Storage(name, checked_tiers(name, checkpoints, has_files=has_files), bound, is_counted, where)
    if isinstance(checkpoints, Tier):
        raise ArgumentTypeError(
            f"{name}: checkpoints={checkpoints} is a single tier; give a list, such as "
            "checkpoints=[dynloop.Device(8), dynloop.Host(64)]"
        )
    if not isinstance(checkpoints, str | bool | Memory | Schedule | Sequence | None):
        try:
            checkpoints = operator.index(checkpoints)
        except TypeError:
            raise ArgumentTypeError(f"{name}: checkpoints is {described(checkpoints)}; {_CHOICES}") from None
    if isinstance(checkpoints, bool):
        raise ArgumentTypeError(f"{name}: checkpoints is {described(checkpoints)}; {_CHOICES}")
    if isinstance(checkpoints, str) and checkpoints not in ("auto", "all"):
        raise ArgumentError(f"{name}: checkpoints={checkpoints!r} is unknown; {_CHOICES}")
    if isinstance(checkpoints, int) and checkpoints < 0:
        raise ArgumentError(f"{name}: checkpoints={checkpoints} is negative; {_CHOICES}")
    if isinstance(checkpoints, adjoint.Binomial) and not is_known:
        raise ArgumentError(
            f"{name}: {checkpoints} needs the number of steps before the loop starts, which only the loop knows; "
            f"give checkpoints={checkpoints.slots} or adjoint.Online({checkpoints.slots})"
        )
    if bound is None and (checkpoints == "all" or isinstance(checkpoints, adjoint.StoreAll | adjoint.Periodic)):
        raise ArgumentError(
            f"{name}: checkpoints={checkpoints!r} needs room for a number of states that grows with the steps; "
            'give max_steps=, or checkpoints="auto", which works within a fixed amount of memory'
        )
    if isinstance(checkpoints, adjoint.Online) and checkpoints.slots == 0:
        leaf = checkpoints.leaf
        if bound is None or bound > leaf:
            raise ArgumentError(
                f"{name}: {checkpoints} holds at most {leaf} steps; give max_steps={leaf} too, or slots"
            )
    return Storage(name, checkpoints, bound, is_counted, where)


_CHOICES = (
    'give "auto", a number of slots (0: never differentiated in reverse), "all" with a bound on the steps, '
    "dynloop.Memory(...), a list of tiers, or one of adjoint's Online, Periodic, StoreAll, or Binomial for a known "
    "number of steps"
)
