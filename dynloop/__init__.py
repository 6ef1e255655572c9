"""dynloop: loops whose length depends on data, compiled and differentiated in the memory you choose."""

from dynloop.branches import cond
from dynloop.checkpoints import Memory
from dynloop.errors import (
    ArgumentError,
    ArgumentTypeError,
    BackendError,
    BatchingError,
    BranchError,
    CarryError,
    DerivativeError,
    DynloopError,
)
from dynloop.loops import while_loop
from dynloop.result import Result, StoppedBecause

__version__ = "0.1.0"

__all__ = [
    # loops
    "while_loop",
    # branches
    "cond",
    # memory
    "Memory",
    # what a loop tells about itself
    "Result",
    "StoppedBecause",
    # errors
    "ArgumentError",
    "ArgumentTypeError",
    "BackendError",
    "BatchingError",
    "BranchError",
    "CarryError",
    "DerivativeError",
    "DynloopError",
]
