"""Claims about states in tiers, outside of `torch.compile`: the same bits and evaluations, wherever they lie."""

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import adjoint
import dynloop
from dynloop import ArgumentError, Device, Disk, Host
from dynloop.on_torch.tiers import InFile, OnHost, Shelves
from tests.on_torch.counting import counted_gradient

DOUBLE = torch.float64
STEPS = 20


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The kinds of what was kept, in order."""
    kinds, put = list[Any](), Shelves.put

    def noted(self: Shelves, *arguments: Any) -> Any:
        kept = put(self, *arguments)
        kinds.append(type(kept))
        return kept

    monkeypatch.setattr(Shelves, "put", noted)
    return kinds


def total(a: Tensor, checkpoints: Any, **options: Any) -> Tensor:
    """openxla/xla#46231, jax-ml/jax#24115: rows that were read back from the wrong end gave another number."""

    def step(c: Any, y: Tensor) -> Any:
        x = a * c[0] + 0.1
        return (x, c[1] + y * 4 * x), None

    rows = torch.arange(1.0, STEPS + 1, dtype=DOUBLE)
    return dynloop.scan(step, (a, 0 * a), rows, checkpoints=checkpoints, **options)[0][1]


def slopes(checkpoints: Any, order: int = 1, until: Any = None) -> list[Tensor]:
    a = torch.tensor(0.9, dtype=DOUBLE, requires_grad=True)
    y, found = total(a, checkpoints, until=until), list[Tensor]()
    for _ in range(order):
        (y,) = torch.autograd.grad(y, a, create_graph=order > 1)
        found.append(y.detach())
    return found


TIERS = {
    "host": lambda folder: [Device(2), Host(5)],
    "disk": lambda folder: [Device(2), Disk(folder, 5)],
    "both": lambda folder: [Device(1), Host(2), Disk(folder, "64B")],
}


@pytest.mark.parametrize("tiers", TIERS)
@pytest.mark.parametrize("is_known", [True, False])
def test_gradients_have_the_bits_of_states_kept_in_one_place(tiers: str, is_known: bool, tmp_path: Path, stored: Any):
    given = TIERS[tiers](tmp_path / "states")
    until = None if is_known else lambda c: c[0] > 99
    order = 2 if tiers == "both" and is_known else 1
    found = slopes(given, order, until)
    assert found == slopes(7, order, until)
    assert round(float(found[0]), 3) == 6063.169
    expected = {"host": {OnHost}, "disk": {InFile}, "both": {OnHost, InFile}}[tiers]
    assert expected <= set(stored)
    gc.collect()
    assert not [*tmp_path.rglob("*.pt")]


@pytest.mark.parametrize("n", [1, 4, 30])
def test_evaluations_are_those_of_all_the_slots(n: int):
    tiers = [Device(1), Host(2)]
    run = lambda step, x: dynloop.fori_loop(0, n, step, x, checkpoints=tiers)
    assert len(counted_gradient(run)) == adjoint.Binomial(3).cost(n).evaluations


def test_the_device_keeps_no_more_than_its_share(stored: list[Any]):
    kept = list[int]()
    put = Shelves.put

    def counted(self: Shelves, state: Any, index: int, among: Any) -> Any:
        among = [*among]
        kept.append(sum(isinstance(x, type(state)) for _, x in among))
        return put(self, state, index, among)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shelves, "put", counted)
        slopes([Device(2), Host(5)], until=lambda c: c[0] > 99)
    assert max(kept) == 2
    assert stored[0] is OnHost


def test_a_loop_that_the_device_holds_moves_nothing(stored: list[Any]):
    assert slopes([Device(STEPS), Host(5)]) == slopes("all")
    assert not stored


def test_files_go_when_nobody_holds_the_result(tmp_path: Path):
    y = total(torch.tensor(0.9, dtype=DOUBLE, requires_grad=True), [Device(1), Disk(tmp_path, 4)])
    assert [*tmp_path.iterdir()]
    del y
    gc.collect()
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64, torch.int32, torch.bool])
def test_every_dtype_and_layout_comes_back_as_it_was(dtype: torch.dtype, tmp_path: Path):
    other = torch.ones(3, 2).to(dtype).t()[:, 1:]

    def run(checkpoints: Any) -> Tensor:
        x = torch.tensor(1.1, dtype=DOUBLE, requires_grad=True)
        body = lambda i, c: (c[0] * (1 + c[1].sum().real.to(DOUBLE)), c[1].logical_not().to(dtype) if i % 2 else c[1])
        y = dynloop.fori_loop(0, 9, body, (x, other), checkpoints=checkpoints)[0]
        return torch.autograd.grad(y, x)[0]

    assert torch.equal(run([Device(1), Host(1), Disk(tmp_path, 2)]), run("all"))


@pytest.mark.parametrize(
    ("tiers", "words"),
    [
        ([Host(2), Disk("x", 2)], "no dynloop.Device among its tiers"),
        ([Device(2), Disk("x", 2), Host(2)], "one Device and then at most one Host, and then at most one Disk"),
        ([Device(2), Disk("x", "7B")], r"dynloop.Disk\('7B'\): one state of the carry takes 8 bytes"),
    ],
)
def test_tiers_that_make_no_sense_are_refused(tiers: Any, words: str):
    with pytest.raises(ArgumentError, match=words):
        dynloop.while_loop(lambda x: x < 10, lambda x: 2 * x, torch.ones((), dtype=DOUBLE), checkpoints=tiers)
