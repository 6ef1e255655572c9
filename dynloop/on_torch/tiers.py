"""Kept states in tiers: on the device, in memory of the host, in files.

Which steps run does not depend on it. State 0 is touched least and goes to a slower tier; a later one goes to the
fastest tier that has room when it is kept, and stays there. The host's memory is pinned where the device is a GPU, and
on a CPU a state of the host is a copy.
"""

import os
import tempfile
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dynloop.checkpoints import Storage
from dynloop.on_torch.states import State
from dynloop.on_torch.structure import Tensors
from dynloop.on_torch.surroundings import Moment
from dynloop.tiers import Tiers


@dataclass(frozen=True)
class OnHost:
    """A state whose leaves lie in memory of the host."""

    copies: Tensors
    devices: tuple[torch.device, ...]
    moment: Moment

    @staticmethod
    def of(state: State) -> "OnHost":
        return OnHost(tuple(map(to_host, state.carry)), tuple([x.device for x in state.carry]), state.moment)

    def back(self) -> State:
        several = zip(self.copies, self.devices, strict=True)
        return fresh(tuple([x.to(device, non_blocking=True) for x, device in several]), self.moment)


class InFile:
    """A state whose leaves lie in a file, which goes with it."""

    def __init__(self, state: State, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.devices = [x.device for x in state.carry]
        self.moment = state.moment
        handle, name = tempfile.mkstemp(prefix="state-", suffix=".pt", dir=folder)
        self.path = Path(name)
        self.gone = weakref.finalize(self, self.path.unlink, missing_ok=True)
        with os.fdopen(handle, "wb") as file:
            # A copy, since of a view the whole memory would be written.
            torch.save([x.detach().cpu().clone() for x in state.carry], file)

    def back(self) -> State:
        leaves = torch.load(self.path, weights_only=True)
        return fresh(tuple([x.to(device) for x, device in zip(leaves, self.devices, strict=True)]), self.moment)


Kept = State | OnHost | InFile


@dataclass(frozen=True)
class Shelves:
    """The tiers of one loop.

    device, host: how many states lie there.   folder: of the others; None: there are no others.
    """

    device: int
    host: int
    folder: Path | None

    @staticmethod
    def of(storage: Storage, state_bytes: int) -> "Shelves | None":
        """None where every state lies on the device."""
        tiers = storage.checkpoints
        if not isinstance(tiers, Tiers) or not storage.has_host:
            return None
        layout = storage.layout(state_bytes)
        if not layout.host:
            return None
        host = tiers.host.states(state_bytes) if tiers.host else 0
        # The ring of the newest states lies on the device besides.
        return Shelves(layout.first_host_row, host, Path(tiers.disk.path) if tiers.disk else None)

    def put(self, state: State, index: int, among: Iterable[tuple[int, Any]]) -> Kept:
        """The state, where it is to lie; among: the others that are kept, with their indices."""
        kinds = [type(kept) for _, kept in among]
        if index and kinds.count(State) < self.device:
            return state
        if kinds.count(OnHost) < self.host:
            return OnHost.of(state)
        return InFile(state, self.folder) if self.folder is not None else state


def back(kept: Kept) -> State:
    return kept if isinstance(kept, State) else kept.back()


def fresh(carry: Tensors, moment: Moment) -> State:
    return State(carry, tuple([x._version for x in carry]), moment)


def to_host(x: Tensor) -> Tensor:
    if x.device.type == "cpu":
        return x.detach().clone()
    # The copies of one stream run in order, so nothing waits for them here.
    return torch.empty_like(x, device="cpu", pin_memory=True).copy_(x.detach(), non_blocking=True)
