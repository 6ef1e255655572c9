"""Claims about cost: evaluations executed are those that the schedule predicts, and memory is that of the slots."""

import gc
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import adjoint
import dynloop
from tests.on_torch.counting import Evaluation, counted_gradient

LENGTHS = (0, 1, 2, 3, 7, 20, 64, 100)


def while_loop(n: int, **options: Any) -> Any:
    def run(step: Any, x: Tensor) -> Any:
        start = (torch.tensor(0), x)
        return dynloop.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, step(*c)), start, **options)[1]

    return run


def assert_counted(seen: list[Evaluation], schedule: adjoint.Schedule, n: int) -> None:
    cost = schedule.cost(n)
    assert len(seen) == cost.evaluations
    assert [e.step for e in seen if e.is_taped] == list(reversed(range(n)))
    assert [e.step for e in seen[:n]] == list(range(n))


@pytest.mark.parametrize(
    "schedule",
    [adjoint.Online(s) for s in (1, 2, 3, 8)] + [adjoint.Online(2, leaf=5), adjoint.Periodic(6), adjoint.StoreAll()],
    ids=str,
)
def test_a_while_loop_evaluates_what_its_schedule_says(schedule: adjoint.Schedule):
    for n in LENGTHS:
        options = {"max_steps": 128} if not isinstance(schedule, adjoint.Online) else {}
        checkpoints: Any = schedule
        assert_counted(counted_gradient(while_loop(n, checkpoints=checkpoints, **options)), schedule, n)


@pytest.mark.parametrize("slots", [1, 2, 3, 16])
def test_slots_are_those_of_the_online_schedule(slots: int):
    for n in LENGTHS:
        assert_counted(counted_gradient(while_loop(n, checkpoints=slots)), adjoint.Online(slots), n)


@pytest.mark.parametrize("slots", [1, 2, 3, 16])
def test_a_known_number_of_steps_takes_the_least(slots: int):
    for n in LENGTHS:
        run = lambda step, x, n=n: dynloop.fori_loop(0, torch.tensor(n), step, x, checkpoints=slots)
        assert_counted(counted_gradient(run), adjoint.Binomial(slots), n)

        def scanned(step: Any, x: Tensor, n: int = n) -> Any:
            both = lambda c, row: ((c[0] + 1, step(*c)), row)
            return dynloop.scan(both, (torch.tensor(0), x), torch.zeros(n), checkpoints=slots)[0][1]

        # A scan of no row asks its step for the shapes of the ys, and this one looks at values.
        if n:
            assert_counted(counted_gradient(scanned), adjoint.Binomial(slots), n)


@pytest.mark.parametrize("checkpoints", ["auto", "all", adjoint.Online(0, leaf=128)], ids=str)
def test_a_loop_that_fits_repeats_nothing(checkpoints: Any):
    for n in LENGTHS:
        seen = counted_gradient(while_loop(n, checkpoints=checkpoints, max_steps=128))
        assert_counted(seen, adjoint.StoreAll(), n)


@pytest.mark.parametrize("slots", [1, 3, 16])
def test_a_transformation_runs_forward_once_more_and_then_takes_the_least(slots: int):
    for n in LENGTHS:
        seen = counted_gradient(while_loop(n, checkpoints=slots), is_transformed=True)
        assert len(seen) == n + adjoint.Binomial(slots, joined=True).cost(n).evaluations
        assert [e.step for e in seen if e.is_taped] == list(reversed(range(n)))


def test_a_long_loop_outgrows_the_first_table():
    n = 1100
    assert_counted(counted_gradient(while_loop(n, checkpoints=40)), adjoint.Online(40), n)


# ---- memory

SIZE = 4096


class Alive(TorchDispatchMode):
    """The most tensors of a state's size that were alive after any operation."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[int, Any] = {}
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        storage = out.untyped_storage() if isinstance(out, Tensor) else None
        if storage is not None and storage.nbytes() == SIZE * 4:
            self.places[storage._cdata] = storage
        # A storage that nothing but this table holds is one that is gone.
        gone = [key for key, storage in self.places.items() if torch._C._storage_Use_Count(storage._cdata) <= 1]
        for key in gone:
            del self.places[key]
        self.most = max(self.most, len(self.places))
        return out


def most_alive(n: int, slots: int, *, is_transformed: bool = False) -> int:
    gc.collect()
    x = torch.full((SIZE,), 0.4, requires_grad=True)
    with Alive() as alive:
        body = lambda c: (c[0] + 1, c[1].sin())
        f = lambda x: dynloop.while_loop(lambda c: c[0] < n, body, (torch.tensor(0), x), checkpoints=slots)[1].sum()
        if is_transformed:
            torch.func.grad(f)(x.detach())
        else:
            f(x).backward()
    return alive.most


def test_memory_is_that_of_the_slots_whatever_the_number_of_steps():
    # 5 carries beside the slots, of which one is the state that the next turned step's carry is compared with; a step's
    # tape, which is one here; and the result, which that comparison begins with.
    found = [most_alive(n, 8) for n in (50, 300)]
    assert max(found) <= 8 + 5 + 1 + 1
    found = [most_alive(n, 8, is_transformed=True) for n in (50, 300)]
    assert max(found) <= 8 + 4 + 1 + 2
    assert most_alive(60, 40) >= 40


def test_memory_does_not_grow_when_a_gradient_is_repeated():
    assert most_alive(60, 5) == most_alive(60, 5)
