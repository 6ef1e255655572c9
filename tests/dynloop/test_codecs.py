"""Claims about `dynloop.Safetensors`: arrays come back bit for bit, in a file that any reader of safetensors opens."""

import importlib
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import adjoint
import dynloop

SMALL = (np.array(True), np.zeros((0, 3), np.int8))
STATE = {"u": np.arange(6.0).reshape(2, 3).T, "rest": [np.array([1, 2], np.float32), SMALL]}


def leaves(value: Any) -> list[Any]:
    match value:
        case dict():
            return [leaf for part in value.values() for leaf in leaves(part)]
        case list() | tuple():
            return [leaf for part in value for leaf in leaves(part)]
    return [value]


def test_numpy_states_come_back_bit_for_bit_and_writable() -> None:
    codec = dynloop.Safetensors("numpy")
    back = codec.decode(codec.encode(STATE))
    assert [type(back), list(back), type(back["rest"][1])] == [dict, ["u", "rest"], tuple]
    for found, given in zip(leaves(back), leaves(STATE), strict=True):
        assert (found.dtype, found.shape, found.tobytes()) == (given.dtype, given.shape, given.tobytes())
        assert found.flags.writeable


def test_jax_states_come_back_bit_for_bit() -> None:
    codec = dynloop.Safetensors("jax")
    state = (jnp.arange(3.0), jnp.array([1.5, 2.5], jnp.bfloat16), {"n": jnp.int32(7)})
    back = codec.decode(codec.encode(state))
    assert back[1].dtype == jnp.bfloat16
    for found, given in zip(leaves(back), leaves(state), strict=True):
        assert type(found) is type(given)
        assert (found.dtype, found.shape) == (given.dtype, given.shape)
        assert (found == given).all()


def test_any_reader_of_safetensors_opens_a_snapshot() -> None:
    data = dynloop.Safetensors("numpy").encode([np.arange(3), np.ones(2)])
    found = safetensors.numpy.load(data)
    assert found["0"].tolist() == [0, 1, 2]
    assert found["1"].tolist() == [1.0, 1.0]


def test_torch_states_come_back_bit_for_bit() -> None:
    torch = importlib.import_module("torch")
    codec = dynloop.Safetensors("torch")
    leaf = torch.arange(6.0, requires_grad=True)
    given = {
        "transposed": torch.arange(6.0, dtype=torch.float64).reshape(2, 3).T,
        "bits": [torch.tensor([1.5, float("nan")], dtype=torch.bfloat16), torch.tensor(True)],
        "view": (leaf[::2], leaf),
        "empty": torch.zeros(0, 3, dtype=torch.int8),
    }
    back = codec.decode(codec.encode(given))
    assert [type(back), list(back), type(back["bits"]), type(back["view"])] == [dict, list(given), list, tuple]
    for found, before in zip(leaves(back), leaves(given), strict=True):
        assert (found.dtype, found.shape, found.requires_grad) == (before.dtype, before.shape, False)
        assert torch.equal(found.nan_to_num(7.0), before.detach().nan_to_num(7.0))
    back["view"][0].add_(1)
    assert torch.equal(back["view"][1], leaf.detach())


# Loaded by the tests that need them: PyTorch is not installed where only JAX's versions are compared.
LIBRARIES = {"numpy": "numpy", "jax": "jax.numpy", "torch": "torch"}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_reversal_goes_through_it(library: Any, tmp_path: Path) -> None:
    xp = importlib.import_module(LIBRARIES[library])
    start = xp.ones(3)
    run = (adjoint.Binomial(2), 9, lambda i, x: xp.sin(x), lambda i, x, bar: xp.cos(x) * bar, start, start)
    store = adjoint.DiskStore(tmp_path, dynloop.Safetensors(library))
    result = adjoint.reverse(*run, store=store)
    assert type(result.cotangent) is type(start)
    assert (result.cotangent == adjoint.reverse(*run).cotangent).all()
    assert result.evaluations == adjoint.Binomial(2).cost(9).evaluations


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_interrupted_reversal_goes_on_with_the_same_numbers(library: Any, tmp_path: Path) -> None:
    xp = importlib.import_module(LIBRARIES[library])
    start = xp.ones(3)
    adjoints: list[int] = []

    def turn(i: int, x: Any, bar: Any) -> Any:
        adjoints.append(i)
        if adjoints == [8, 7, 6, 5]:
            raise KeyboardInterrupt
        return xp.cos(x) * bar

    run = (adjoint.Binomial(2), 9, lambda i, x: xp.sin(x), turn, start, start)
    folder = lambda: adjoint.DiskStore(tmp_path, dynloop.Safetensors(library), every=1)
    with pytest.raises(KeyboardInterrupt):
        adjoint.resume(*run, store=folder())
    result = adjoint.resume(*run, store=folder())
    assert adjoints[4:] == [5, 4, 3, 2, 1, 0]
    assert (result.cotangent == adjoint.reverse(*run).cotangent).all()


REFUSED: dict[str, tuple[Any, str]] = {
    "a float": (1.5, "got a float, and accepts arrays of type numpy.ndarray in tuples, lists and dicts of text"),
    "another library": ([jnp.ones(3)], "got a ArrayImpl, and accepts arrays of type numpy.ndarray"),
    "names that are no text": ({1: np.ones(3)}, "got a dict, and accepts arrays"),
    "an unknown dtype": (np.array(["text"]), "arrays that failed with"),
}


@pytest.mark.parametrize(("state", "words"), REFUSED.values(), ids=REFUSED)
def test_other_states_are_refused_in_words(state: Any, words: str) -> None:
    with pytest.raises(adjoint.StateError, match=words):
        dynloop.Safetensors("numpy").encode(state)


@pytest.mark.parametrize("data", [b"", b"short", bytes(8) + b"{}", safetensors.numpy.save({"x": np.ones(1)})])
def test_other_bytes_are_refused_in_words(data: bytes) -> None:
    with pytest.raises(adjoint.StateError, match="bytes that cannot be read"):
        dynloop.Safetensors("numpy").decode(data)


def test_an_unknown_library_is_refused() -> None:
    unknown: Any = "tinygrad"
    with pytest.raises(dynloop.ArgumentError, match="library='tinygrad' is unknown"):
        dynloop.Safetensors(unknown)


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(dynloop.BackendError, match=r"pip install \"dynloop\[disk\]\" brings safetensors"):
        dynloop.Safetensors("torch").encode(1)
