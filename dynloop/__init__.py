"""dynloop: loops whose length depends on data, compiled and differentiated in the memory you choose."""

from dynloop.branches import cond
from dynloop.checkpoints import Memory
from dynloop.codecs import Safetensors
from dynloop.debugging import debug
from dynloop.errors import (
    ArgumentError,
    ArgumentTypeError,
    BackendError,
    BatchingError,
    BranchError,
    CarryError,
    DerivativeError,
    DynloopError,
    LoopSyntaxError,
    NonFiniteError,
    StagingError,
    UnassignedError,
)
from dynloop.explain import explain
from dynloop.loops import fori_loop, scan, while_loop
from dynloop.observers import on_step, verify, watch_nan
from dynloop.picture import picture
from dynloop.progress import Progress
from dynloop.report import LoopReport, Report
from dynloop.result import Result, StoppedBecause
from dynloop.syntax import loop, options, source
from dynloop.tiers import Device, Disk, Host

__version__ = "0.1.0"

__all__ = [
    # ordinary Python
    "loop",
    "options",
    "source",
    # loops
    "while_loop",
    "fori_loop",
    "scan",
    # branches
    "cond",
    # memory
    "Memory",
    "Device",
    "Host",
    "Disk",
    # pictures of schedules, and states on disk
    "picture",
    "Safetensors",
    # what a loop tells about itself
    "Result",
    "StoppedBecause",
    "explain",
    "LoopReport",
    "Report",
    # watching it run
    "debug",
    "on_step",
    "Progress",
    "verify",
    "watch_nan",
    # errors
    "ArgumentError",
    "ArgumentTypeError",
    "BackendError",
    "BatchingError",
    "BranchError",
    "CarryError",
    "DerivativeError",
    "DynloopError",
    "LoopSyntaxError",
    "NonFiniteError",
    "StagingError",
    "UnassignedError",
]
