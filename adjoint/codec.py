"""How a state becomes bytes and comes back: the codecs of stores that keep files.

A codec is exact: what comes back equals what went in, bit for bit, or it refuses.
`Pickle` takes whatever Python can pickle, and is the default of `DiskStore`: a scientist's state is a NumPy array, a
JAX array, or a class of their own, and all of these pickle exactly. Reading a pickle can run code, so a folder that
others may write to needs one of the other two, which only ever read numbers: `Bytes`, and `Buffers` for whatever
offers its memory through Python's buffer protocol, as NumPy's, ctypes' and the standard library's arrays do.
"""

from __future__ import annotations

import copy
import json
import pickle
from abc import ABC, abstractmethod
from typing import Any

from adjoint.errors import StateError

HEAD_BYTES = 8


class Codec(ABC):
    """Turns a state into bytes and back. Subclass it for states that no codec here takes.

    >>> class Text(Codec):
    ...     def name(self):
    ...         return "Text"
    ...     def encode(self, value):
    ...         return value.encode()
    ...     def decode(self, data):
    ...         return data.decode()
    >>> Text().decode(Text().encode("x0"))
    'x0'
    """

    @abstractmethod
    def name(self) -> str:
        """What must agree between the process that writes and the one that reads, as text."""

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """A state as bytes.

        Args:
            value: the state.

        Returns:
            Its bytes, which share no memory with it.

        Raises:
            StateError: it is no such state as this codec takes.
        """

    @abstractmethod
    def decode(self, data: bytes) -> Any:
        """The state that these bytes are.

        Args:
            data: what `encode` has returned.

        Returns:
            The state, in memory of its own.

        Raises:
            StateError: they are the bytes of another kind of state.
        """


class Bytes(Codec):
    """Takes states that are bytes already.

    >>> Bytes().decode(Bytes().encode(bytearray(b"x0")))
    b'x0'
    """

    def name(self) -> str:
        """See `Codec.name`."""
        return "Bytes"

    def encode(self, value: Any) -> bytes:
        """See `Codec.encode`."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise StateError("Bytes", described(value), "bytes, a bytearray or a memoryview")
        return bytes(value)

    def decode(self, data: bytes) -> bytes:
        """See `Codec.decode`. The answer is of the type bytes, whatever went in."""
        return data


class Pickle(Codec):
    """Takes whatever Python can pickle: arrays of any library, classes of one's own. The default of `DiskStore`.

    Reading a pickle can run code: keep the folder where only you can write, or take another codec.

    >>> Pickle().decode(Pickle().encode({"u": [1.0, 2.0]}))
    {'u': [1.0, 2.0]}
    """

    def name(self) -> str:
        """See `Codec.name`."""
        return "Pickle"

    def encode(self, value: Any) -> bytes:
        """See `Codec.encode`."""
        try:
            return pickle.dumps(value, protocol=5)
        except Exception as error:
            given = f"{described(value)}, which failed with {type(error).__name__}: {error}"
            raise StateError("Pickle", given, "what pickle.dumps accepts") from error

    def decode(self, data: bytes) -> Any:
        """See `Codec.decode`."""
        try:
            return pickle.loads(data)
        except Exception as error:
            given = f"bytes that cannot be unpickled ({type(error).__name__}: {error})"
            raise StateError("Pickle", given, "what this program has pickled, with the same classes") from error


class Buffers(Codec):
    """Takes what offers its memory through the buffer protocol, alone or in tuples, lists and dicts.

    The numbers go to the file as they lie in memory; reading makes a deep copy of `like` and fills it.
    Arrays of NumPy, ctypes and the module `array` are such, contiguous ones in C's or in Fortran's order.

    Args:
        like: a value of the same structure, dtypes and shapes as every state: state 0 itself, say. It is copied.

    Raises:
        StateError: `like` or a state holds something that offers no writable, contiguous memory; a state, or what is
            read back, has another structure, dtype or shape than `like`.

    >>> from array import array
    >>> codec = Buffers({"u": array("d", [0.0, 0.0])})
    >>> codec.decode(codec.encode({"u": array("d", [1.0, 2.0])}))
    {'u': array('d', [1.0, 2.0])}
    """

    def __init__(self, like: Any) -> None:
        self.like = copy.deepcopy(like)
        self.layout = layout(self.like)
        for leaf in leaves(self.like):
            if memoryview(leaf).readonly:
                raise StateError("Buffers", f"{described(leaf)}, whose memory is read-only", WRITABLE)

    def name(self) -> str:
        """See `Codec.name`."""
        return f"Buffers {json.dumps(self.layout)}"

    def encode(self, value: Any) -> bytes:
        """See `Codec.encode`."""
        found = layout(value)
        if found != self.layout:
            raise StateError("Buffers", in_words(found), f"states like the first: {in_words(self.layout)}")
        head = json.dumps(found).encode()
        parts = [len(head).to_bytes(HEAD_BYTES, "little"), head, *(raw(leaf) for leaf in leaves(value))]
        return b"".join(parts)

    def decode(self, data: bytes) -> Any:
        """See `Codec.decode`."""
        start = HEAD_BYTES + int.from_bytes(data[:HEAD_BYTES], "little")
        try:
            found = json.loads(data[HEAD_BYTES:start])
        except ValueError:
            raise StateError("Buffers", "bytes that no Buffers has written", in_words(self.layout)) from None
        if found != self.layout:
            raise StateError("Buffers", f"a snapshot of {in_words(found)}", in_words(self.layout))
        value = copy.deepcopy(self.like)
        content = memoryview(data)
        for leaf in leaves(value):
            memory = raw(leaf)
            memory[:] = content[start : start + memory.nbytes]
            start += memory.nbytes
        return value


WRITABLE = "writable contiguous arrays with the buffer protocol, in tuples, lists and dicts with text as keys"


def leaves(value: Any) -> list[Any]:
    """The arrays in a structure of tuples, lists and dicts, in order."""
    match value:
        case tuple() | list():
            return [leaf for part in value for leaf in leaves(part)]
        case dict():
            return [leaf for part in value.values() for leaf in leaves(part)]
        case _:
            return [value]


def layout(value: Any) -> Any:
    """A structure with each array's format, shape and order in its place, as JSON holds it."""
    match value:
        case tuple() | list():
            return {type(value).__name__: [layout(part) for part in value]}
        case dict():
            if not all(isinstance(name, str) for name in value):
                raise StateError("Buffers", f"a dict with the keys {list(value)!r}", WRITABLE)
            # A list of pairs, as the order counts: the arrays lie in the file in this order.
            return {"dict": [[name, layout(part)] for name, part in value.items()]}
    try:
        memory = memoryview(value)
    except (TypeError, ValueError, BufferError) as error:
        raise StateError("Buffers", f"{described(value)} ({error})", WRITABLE) from None
    if not memory.contiguous:
        raise StateError("Buffers", f"{described(value)}, whose memory is not contiguous", WRITABLE)
    order = "C" if memory.c_contiguous else "F"
    return [memory.format, list(memory.shape or ()), order]


def raw(leaf: Any) -> memoryview:
    """An array's memory as bytes. Unlike memoryview.cast, a PickleBuffer takes every format and both orders."""
    return pickle.PickleBuffer(leaf).raw()


def in_words(found: Any) -> str:
    """A layout in words."""
    match found:
        case {"tuple": parts}:
            return f"({', '.join(in_words(part) for part in parts)})"
        case {"list": parts}:
            return f"[{', '.join(in_words(part) for part in parts)}]"
        case {"dict": parts}:
            return f"{{{', '.join(f'{name}: {in_words(part)}' for name, part in parts)}}}"
        case [kind, shape, order]:
            return f"format {kind!r} shape {tuple(shape)}" + (" in Fortran's order" if order == "F" else "")
    return repr(found)


def described(value: Any) -> str:
    """A value in an error message: its kind and the start of its text."""
    text = repr(value)
    return f"a {type(value).__name__} ({text if len(text) < 80 else text[:77] + '...'})"
