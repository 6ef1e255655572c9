"""Buffers in two tiers: rows in the memory of the device, and rows in pinned memory of the host.

XLA's host offloader does not follow an array of the host into a conditional. So a row that may lie in either tier is
reached by a while loop of no round or one around the access to the host, and only then is anything moved.

Which rows are the host's is `Layout`'s; who lies in which row is decided in `placement`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
from jax import Array, lax

from dynloop.checkpoints import Layout
from dynloop.on_jax import host_memory, internals, rows

# Where a row goes: from the device to the host, or back.
Way = Literal["to_host", "from_host"]

_IN_BRANCH: ContextVar[bool] = ContextVar("dynloop.in_branch", default=False)


def is_in_branch() -> bool:
    """Is a branch of a conditional being taken apart? A buffer of the host cannot leave it."""
    return _IN_BRANCH.get()


@contextmanager
def in_branch() -> Iterator[None]:
    token = _IN_BRANCH.set(True)
    try:
        yield
    finally:
        _IN_BRANCH.reset(token)


@dataclass(frozen=True)
class Buffers:
    """How the buffers of one loop are read and written: one for each leaf that is stored, or two.

    has_host: there are two, the one on the device first; the other one may have no row.
    told: what a program is to do beside each move of a row, given its way and how many bytes go; None: nothing.
    """

    layout: Layout
    has_host: bool
    told: Callable[[Way, int], None] | None = None

    def avals(self, leaves: Sequence[Any]) -> list[Any]:
        """Abstract values of the buffers for these of the leaves of a state."""
        device = [internals.stacked_aval(a, self.layout.device_rows) for a in leaves]
        if not self.has_host:
            return device
        return self._paired(device, [host_memory.host_avals(a, self.layout.host) for a in leaves])

    def filled(self, state: Sequence[Array]) -> list[Array]:
        """On the device filled with a state, which every dtype has, typed keys too; no row is read before written."""
        device = [lax.broadcast(x, (self.layout.device_rows,)) for x in state]
        if not self.has_host:
            return device
        return self._paired(device, [host_memory.host_rows(x, self.layout.host) for x in state])

    def recognised(self, buffers: Sequence[Array]) -> list[Array]:
        """Buffers that have been results of a program, those of the host as such."""
        device, host = self._split(buffers)
        return self._paired(device, map(host_memory.taken_for_host, host)) if self.has_host else device

    def put(self, buffers: Sequence[Array], state: Sequence[Array], row: Array) -> list[Array]:
        if not self.layout.host:
            return self.put_on_device(buffers, state, row)
        device, host = self._split(buffers)
        is_host, at = self._place(row)
        # What lies on the device stays as it is if the row is the host's.
        written = [lax.select(is_host, x, y) for x, y in zip(rows.get(device, at), state, strict=True)]
        device = rows.put(device, written, at)

        def write(w: Any) -> Any:
            rounds, host = w
            self._tell("to_host", host)
            moved = zip(host, state, strict=True)
            return rounds - 1, [host_memory.put_in_host(b, x, row - self.layout.first_host_row) for b, x in moved]

        _, host = lax.while_loop(lambda w: w[0] > 0, write, (is_host.astype(jnp.int32), host))
        return self._paired(device, host)

    def put_on_device(self, buffers: Sequence[Array], state: Sequence[Array], row: Any) -> list[Array]:
        """The same for a row that no host has."""
        if not self.has_host:
            return rows.put(buffers, state, row)
        device, host = self._split(buffers)
        return self._paired(rows.put(device, state, row - self.layout.host if self.layout.host else row), host)

    def get(self, buffers: Sequence[Array], row: Array) -> list[Array]:
        device, host = self._split(buffers)
        if not self.layout.host:
            return rows.get(device, row)
        is_host, at = self._place(row)

        def read(w: Any) -> Any:
            self._tell("from_host", host)
            at = row - self.layout.first_host_row
            return w[0] - 1, [host_memory.get_from_host(b, at, x) for b, x in zip(host, w[1], strict=True)]

        return lax.while_loop(lambda w: w[0] > 0, read, (is_host.astype(jnp.int32), rows.get(device, at)))[1]

    def _place(self, row: Array) -> tuple[Array, Array]:
        """Is it a row of the host? And its place on the device, some place if it has none."""
        first, count = self.layout.first_host_row, self.layout.host
        is_host = (row >= first) & (row < first + count)
        return is_host, jnp.where(row < first, row, jnp.maximum(row - count, 0))

    def _tell(self, way: Way, host: Sequence[Array]) -> None:
        if self.told is not None:
            self.told(way, sum(x.size // x.shape[0] * x.dtype.itemsize for x in host))

    def _split(self, buffers: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        return (list(buffers[::2]), list(buffers[1::2])) if self.has_host else (list(buffers), [])

    def _paired(self, device: Iterable[Any], host: Iterable[Any]) -> list[Any]:
        return [x for pair in zip(device, host, strict=True) for x in pair]
