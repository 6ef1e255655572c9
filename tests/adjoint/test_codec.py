"""Claims about the codecs: what comes back equals what went in bit for bit, and anything else is refused in words."""

import ctypes
from array import array
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from adjoint import Buffers, Bytes, Codec, Pickle, StateError


@given(
    value=arrays.arrays(
        st.sampled_from([np.float64, np.float32, np.complex128, np.int32, np.bool_, np.dtype(">f8")]),
        arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ),
    is_fortran=st.booleans(),
)
def test_arrays_come_back_bit_for_bit(value: Any, is_fortran: bool) -> None:
    value = np.asfortranarray(value) if is_fortran else value
    for codec in (Buffers(np.zeros_like(value)), Pickle()):
        back = codec.decode(codec.encode(value))
        assert (back.dtype, back.shape, back.tobytes()) == (value.dtype, value.shape, value.tobytes())
        back[...] = 1
        assert back.flags.writeable


def test_structures_of_arrays_come_back() -> None:
    value = {"u": np.arange(6.0).reshape(2, 3), "rest": [array("i", [1, 2]), ((ctypes.c_double * 2)(3.0, 4.0),)]}
    like = {"u": np.zeros((2, 3)), "rest": [array("i", [0, 0]), ((ctypes.c_double * 2)(),)]}
    back = Buffers(like).decode(Buffers(like).encode(value))
    assert np.array_equal(back["u"], value["u"])
    assert back["rest"][0] == array("i", [1, 2])
    assert list(back["rest"][1][0]) == [3.0, 4.0]
    assert not np.shares_memory(back["u"], Buffers(like).like["u"])


def test_what_is_encoded_no_longer_changes() -> None:
    value = np.zeros(3)
    data = {codec.name(): codec.encode(value) for codec in (Buffers(value), Pickle())}
    value[:] = 7
    assert [codec.decode(data[codec.name()]).tolist() for codec in (Buffers(value), Pickle())] == [[0.0] * 3] * 2


@pytest.mark.parametrize("value", [b"x0", bytearray(b"x0"), memoryview(b"x0")], ids=lambda value: type(value).__name__)
def test_bytes_are_taken_as_they_are(value: Any) -> None:
    assert Bytes().decode(Bytes().encode(value)) == b"x0"


REFUSED: dict[str, tuple[Codec, Any, str]] = {
    "a float as bytes": (Bytes(), 1.5, r"Bytes: got a float \(1.5\), and accepts bytes, a bytearray or a memoryview"),
    "a function": (Pickle(), lambda: 0, r"Pickle: got a function .*, and accepts what pickle.dumps accepts"),
    "another dtype": (
        Buffers(np.zeros(3)),
        np.zeros(3, np.float32),
        r"got format 'f' shape \(3,\), and accepts states like the first: format 'd' shape \(3,\)",
    ),
    "another shape": (Buffers(np.zeros(3)), np.zeros((3, 1)), r"got format 'd' shape \(3, 1\), and accepts"),
    "another order": (Buffers(np.zeros((2, 3))), np.zeros((3, 2)).T, "in Fortran's order, and accepts"),
    "another structure": (
        Buffers([np.zeros(1)]),
        (np.zeros(1),),
        r"got \(format 'd' shape \(1,\)\), and accepts states like the first: \[format",
    ),
    "another name": (Buffers({"u": np.zeros(1)}), {"v": np.zeros(1)}, r"got \{v: format 'd' shape \(1,\)\}"),
    "no buffer": (Buffers(np.zeros(3)), 1.5, r"Buffers: got a float \(1.5\) .*writable contiguous arrays"),
    "not contiguous": (Buffers(np.zeros(3)), np.zeros(6)[::2], "whose memory is not contiguous"),
    "names that are no text": (Buffers({"u": np.zeros(1)}), {1: np.zeros(1)}, r"a dict with the keys \[1\]"),
}


@pytest.mark.parametrize(("codec", "value", "words"), REFUSED.values(), ids=REFUSED)
def test_other_states_are_refused_in_words(codec: Codec, value: Any, words: str) -> None:
    with pytest.raises(StateError, match=words):
        codec.encode(value)


def test_what_cannot_be_filled_is_refused_as_a_model() -> None:
    with pytest.raises(StateError, match="whose memory is read-only"):
        Buffers(b"bytes")


FOREIGN: dict[str, tuple[Codec, bytes, str]] = {
    "another dtype": (
        Buffers(np.zeros(3)),
        Buffers(np.zeros(3, np.float32)).encode(np.zeros(3, np.float32)),
        r"a snapshot of format 'f' shape \(3,\), and accepts format 'd' shape \(3,\)",
    ),
    "another shape": (Buffers(np.zeros(3)), Buffers(np.zeros(4)).encode(np.zeros(4)), r"a snapshot of .* shape \(4,\)"),
    "no such bytes": (Buffers(np.zeros(3)), b"\1" + bytes(7) + b"x", "bytes that no Buffers has written"),
    "no pickle": (Pickle(), b"x0", "bytes that cannot be unpickled"),
}


@pytest.mark.parametrize(("codec", "data", "words"), FOREIGN.values(), ids=FOREIGN)
def test_other_snapshots_are_refused_in_words(codec: Codec, data: bytes, words: str) -> None:
    with pytest.raises(StateError, match=words):
        codec.decode(data)
