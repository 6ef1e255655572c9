"""dynloop: loops whose length depends on data, compiled and differentiated in the memory you choose."""

from dynloop.checkpoints import Memory
from dynloop.codecs import Safetensors
from dynloop.errors import (
    ArgumentError,
    ArgumentTypeError,
    BackendError,
    BatchingError,
    CarryError,
    DerivativeError,
    DynloopError,
)
from dynloop.explain import picture
from dynloop.loops import while_loop
from dynloop.result import Result, StoppedBecause

__version__ = "0.1.0"

__all__ = [
    # loops
    "while_loop",
    # memory
    "Memory",
    # pictures of schedules, and states on disk
    "picture",
    "Safetensors",
    # what a loop tells about itself
    "Result",
    "StoppedBecause",
    # errors
    "ArgumentError",
    "ArgumentTypeError",
    "BackendError",
    "BatchingError",
    "CarryError",
    "DerivativeError",
    "DynloopError",
]
