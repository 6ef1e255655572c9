"""adjoint: which states of a chain of steps to keep, and which steps to redo, to run the chain backwards.

The package knows no array library and imports the standard library only.
A schedule gives actions, on integers alone; whoever owns the steps carries them out. `replay` does so on integers and
checks them; `reverse` does so with functions that you give, on states of any kind, in memory or on disk.

Conventions, everywhere: step i maps state i to state i + 1; ranges are half-open; a slot holds one state, or one step's
tape; a number of slots counts every one of them, that of state 0 included; the working state needs no slot; tiers are
numbered from 0, the fastest; evaluations count the taped steps as well.
"""

from adjoint.actions import Action, Advance, Apply, Discard, Prefetch, Record, Restore, Store, Turn
from adjoint.asynchronous import Asynchronous, Overlap
from adjoint.binomial import (
    advances,
    beta,
    beta_table,
    fewest_stores,
    first_offset,
    first_offset_range,
    repetition,
)
from adjoint.blocks import Blocks
from adjoint.bounded import Bounded
from adjoint.chain import Span
from adjoint.codec import Buffers, Bytes, Codec, Pickle
from adjoint.disk import DiskStore
from adjoint.drawing import draw
from adjoint.errors import AdjointError, InvariantError, ScheduleError, StateError, StepError, StoreError
from adjoint.mixed import Mixed
from adjoint.multitier import DiskRevolve, HRevolve, Multistage
from adjoint.offline import Binomial, Periodic, StoreAll
from adjoint.online import Online
from adjoint.placement import StoreTable, store_table
from adjoint.planning import Plan, plan
from adjoint.proposals import propose
from adjoint.replay import Counts, replay
from adjoint.report import Report, Use, explain
from adjoint.reverse import Forward, forward, resume, reverse
from adjoint.run import Reversal
from adjoint.schedule import Cost, Schedule, Traffic
from adjoint.store import Identity, Key, MemoryStore, Milestone, Sample, StateStore
from adjoint.tiers import Tier
from adjoint.trace import Stroke, strokes
from adjoint.twolevel import Overlapped, TwoLevel
from adjoint.weighted import Weighted

__all__ = [
    # the instruction set
    "Action",
    "Advance",
    "Store",
    "Restore",
    "Discard",
    "Turn",
    "Record",
    "Apply",
    "Prefetch",
    # schedules for a known number of steps
    "Schedule",
    "Cost",
    "Binomial",
    "Blocks",
    "StoreAll",
    "Periodic",
    "Mixed",
    "Weighted",
    # schedules for an unknown one
    "Online",
    "Bounded",
    # schedules with several tiers
    "Tier",
    "Traffic",
    "Multistage",
    "DiskRevolve",
    "HRevolve",
    "TwoLevel",
    "Overlapped",
    # what an online schedule is made of, for compiled loops
    "StoreTable",
    "store_table",
    "Plan",
    "plan",
    "beta_table",
    # the judge
    "replay",
    "Counts",
    # what a schedule costs, and which one to take
    "explain",
    "propose",
    "Report",
    "Use",
    "draw",
    "strokes",
    "Stroke",
    # the driver
    "reverse",
    "resume",
    "forward",
    "Reversal",
    "Forward",
    "Span",
    # where states are kept
    "MemoryStore",
    "DiskStore",
    "Asynchronous",
    "Overlap",
    # how they become bytes
    "Codec",
    "Pickle",
    "Bytes",
    "Buffers",
    # what a store of one's own deals with
    "StateStore",
    "Key",
    "Identity",
    "Milestone",
    "Sample",
    # integer functions
    "beta",
    "repetition",
    "advances",
    "fewest_stores",
    "first_offset",
    "first_offset_range",
    # errors
    "AdjointError",
    "ScheduleError",
    "InvariantError",
    "StepError",
    "StoreError",
    "StateError",
]
