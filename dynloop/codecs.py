"""States as safetensors files, for `adjoint.DiskStore`: numbers only, so that reading one can run no code.

The arrays of a state go under the names "0", "1" and so on; its structure goes into the file's metadata. Any program
that reads safetensors can look at a snapshot. The library is loaded when the first state is encoded.
"""

import importlib
import json
from dataclasses import dataclass
from typing import Any, Literal

import adjoint
from dynloop.errors import ArgumentError, BackendError

# For each library the module of safetensors that serves it, and the name of its arrays' type.
MODULES = {
    "numpy": ("safetensors.numpy", "ndarray"),
    "jax": ("safetensors.flax", "Array"),
    "torch": ("safetensors.torch", "Tensor"),
}
LENGTH_BYTES = 8
# Dtypes that safetensors writes for JAX and cannot read back: their bits go into the file.
AS_BITS = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}


@dataclass(frozen=True)
class Safetensors(adjoint.Codec):
    """Takes arrays of one library, alone or in tuples, lists and dicts, as safetensors.

    Args:
        library: "numpy", "jax" or "torch": whose arrays the states are made of.

    It needs the package safetensors: `pip install "dynloop[disk]"`.

    Raises:
        ArgumentError: the library is unknown.
        BackendError: a package that it needs is not installed.
        adjoint.StateError: a state holds anything but such arrays, or a dtype that safetensors does not know.

    >>> import dynloop
    >>> dynloop.Safetensors("numpy").name()
    'Safetensors numpy'
    """

    library: Literal["numpy", "jax", "torch"]

    def __post_init__(self) -> None:
        if self.library not in MODULES:
            raise ArgumentError(f'Safetensors: library={self.library!r} is unknown; give "numpy", "jax" or "torch"')

    def name(self) -> str:
        """See `adjoint.Codec.name`."""
        return f"Safetensors {self.library}"

    def encode(self, value: Any) -> bytes:
        """See `adjoint.Codec.encode`."""
        save, _, array_type = loaded(self.library)
        arrays: dict[str, Any] = {}
        structure = flattened(value, array_type, arrays)
        if self.library == "torch":
            # The file format has no strides, no gradients and no two arrays that share their memory.
            arrays = {name: array.detach().clone().contiguous() for name, array in arrays.items()}
        elif self.library == "numpy":
            # What is not in C's order would be written as it lies in memory, and read back wrongly.
            arrays = {name: array.copy(order="C") for name, array in arrays.items()}
        try:
            return save(arrays, metadata={"structure": json.dumps(structure)})
        except Exception as error:
            given = f"arrays that failed with {type(error).__name__}: {error}"
            raise adjoint.StateError("Safetensors", given, "the dtypes that safetensors knows") from error

    def decode(self, data: bytes) -> Any:
        """See `adjoint.Codec.decode`."""
        _, load, _ = loaded(self.library)
        try:
            length = int.from_bytes(data[:LENGTH_BYTES], "little")
            header = json.loads(data[LENGTH_BYTES : LENGTH_BYTES + length])
            structure = json.loads(header["__metadata__"]["structure"])
            arrays = load(data)
        except Exception as error:
            given = f"bytes that cannot be read ({type(error).__name__}: {error})"
            raise adjoint.StateError("Safetensors", given, "what Safetensors has written") from error
        if self.library == "numpy":
            # They may look into the bytes; a step may change its state in place.
            arrays = {name: array.copy() for name, array in arrays.items()}
        return rebuilt(structure, arrays)


def loaded(library: str) -> tuple[Any, Any, type]:
    """The functions that save and load, and the type of an array."""
    functions, array_type = MODULES[library]
    try:
        arrays = importlib.import_module(library)
        files = importlib.import_module(functions)
    except ImportError as error:
        raise BackendError(f'Safetensors: {error}; pip install "dynloop[disk]" brings safetensors') from error
    return files.save, files.load, getattr(arrays, array_type)


def flattened(value: Any, array_type: type, arrays: dict[str, Any]) -> Any:
    """A state's structure as JSON holds it, with the number of an array in its place; puts the arrays by number."""
    match value:
        case tuple() | list():
            return {type(value).__name__: [flattened(part, array_type, arrays) for part in value]}
        case dict() if all(isinstance(name, str) for name in value):
            return {"dict": [[name, flattened(part, array_type, arrays)] for name, part in value.items()]}
        case array if isinstance(array, array_type):
            number = str(len(arrays))
            dtype = getattr(array.dtype, "name", None)
            if dtype in AS_BITS:
                arrays[number] = array.view(AS_BITS[dtype])
                return {"bits": [number, dtype]}
            arrays[number] = array
            return number
    accepted = f"arrays of type {array_type.__module__}.{array_type.__name__} in tuples, lists and dicts of text"
    raise adjoint.StateError("Safetensors", f"a {type(value).__name__}", accepted)


def rebuilt(structure: Any, arrays: dict[str, Any]) -> Any:
    """The state of this structure."""
    match structure:
        case {"tuple": parts}:
            return tuple(rebuilt(part, arrays) for part in parts)
        case {"list": parts}:
            return [rebuilt(part, arrays) for part in parts]
        case {"dict": parts}:
            return {name: rebuilt(part, arrays) for name, part in parts}
        case {"bits": [number, dtype]}:
            return arrays[number].view(dtype)
        case number:
            return arrays[number]
