"""What the schedules of checkpoint_schedules 1.0.4 take, in the costs of `adjoint`: for comparison."""

import contextlib
import io
from collections.abc import Iterable
from typing import Any, NamedTuple

import checkpoint_schedules
from checkpoint_schedules import Copy, Forward, Move, Reverse, StorageType
from checkpoint_schedules.hrevolve import RevolveCheckpointSchedule
from checkpoint_schedules.hrevolve_sequences.hrevolve import get_hopt_table, hrevolve_recurse
from checkpoint_schedules.hrevolve_sequences.utils import revolver_parameters

# Its annotations ask for whole costs; its arithmetic does not.
PEER: Any = checkpoint_schedules


class Costs(NamedTuple):
    """Of one step, one adjoint without its step, one write to the disk and one read from it."""

    step: float
    adjoint: float
    write: float
    read: float


def makespan(schedule: Iterable[Any], costs: Costs) -> float:
    """The time that a schedule of theirs takes; their Forward covers taped steps as well, and memory costs nothing."""
    total = 0.0
    for action in schedule:
        match action:
            case Forward():
                is_write = action.write_ics and action.storage == StorageType.DISK
                total += (action.n1 - action.n0) * costs.step + is_write * costs.write
            case Reverse():
                total += (action.n1 - action.n0) * costs.adjoint
            case Copy() | Move():
                total += (action.from_storage == StorageType.DISK) * costs.read
            case _:
                pass
    return total


def hrevolve(n: int, memory: int, disk: int, costs: Costs) -> Iterable[Any]:
    """Their HRevolve as it is."""
    return PEER.HRevolve(n, memory, disk, costs.step, costs.adjoint, costs.write, costs.read)


def multistage(n: int, memory: int, disk: int) -> Iterable[Any]:
    """Their binomial schedule on two tiers."""
    return PEER.MultistageCheckpointSchedule(n, memory, disk)


def disk_revolve(n: int, memory: int, costs: Costs) -> Iterable[Any]:
    """Their DiskRevolve."""
    return PEER.DiskRevolve(n, memory, costs.step, costs.adjoint, costs.write, costs.read)


def periodic_disk_revolve(n: int, memory: int, costs: Costs) -> Iterable[Any]:
    """Their DiskRevolve with a fixed period, without what it prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        return PEER.PeriodicDiskRevolve(n, memory, costs.step, costs.adjoint, costs.write, costs.read)


def corrected_hrevolve(n: int, memory: int, disk: int, costs: Costs) -> Iterable[Any]:
    """Their HRevolve with the costs of a step and of an adjoint where its tables expect them.

    `hrevolve_recurse` passes the two in the wrong order to `get_hopt_table`, which this calls by names.
    """
    capacities, writes, reads = (memory, disk), [0, costs.write], [0, costs.read]
    stored, fresh = get_hopt_table(n - 1, capacities, writes, reads, ub=costs.adjoint, uf=costs.step)
    parameters = revolver_parameters(writes, reads, costs.step, costs.adjoint)
    operations = hrevolve_recurse(n - 1, 1, disk, capacities, writes, reads, hoptp=stored, hopt=fresh, **parameters)
    return RevolveCheckpointSchedule(n, memory, disk, list(operations))
