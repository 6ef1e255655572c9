"""Claims about lists of tiers: what they mean in rows, and what is refused."""

from typing import Any, cast

import pytest

import dynloop
from dynloop import ArgumentError, ArgumentTypeError, Device, Disk, Host
from dynloop.checkpoints import Layout, storage


def layout(tiers: Any, bound: int | None = None, carry_bytes: int | None = 8) -> Layout:
    return storage("while_loop", tiers, bound).layout(carry_bytes)


@pytest.mark.parametrize(
    ("tiers", "bound", "expected"),
    [
        ([Device(8)], None, Layout(8, 0)),
        ([Device(8), Host(64)], None, Layout(72, 0, host=64)),
        ((Device("64B"), Host("512B")), None, Layout(72, 0, host=64)),
        ([Device(8), Host(64)], 1000, Layout(72, 0, host=64)),
        # Where every state has room, none is computed again, and what fits on the device stays there.
        ([Device(8), Host(64)], 72, Layout(0, 72, host=64)),
        ([Device(8), Host(64)], 10, Layout(0, 10, host=2)),
        ([Device(8), Host(64)], 5, Layout(0, 5)),
        # No more than 128 slots, of which the device keeps its own.
        ([Device(8), Host(1000)], None, Layout(128, 0, host=120)),
        # A large tier of the device has a leaf buffer, as a large number of slots has.
        ([Device(200), Host(10)], None, Layout(74, 136, host=10)),
        ([Device(200), Host(10)], 1000, Layout(8, 136, is_complete=True)),
    ],
    ids=str,
)
def test_tiers_are_rows_of_the_device_and_rows_of_the_host(tiers: Any, bound: int | None, expected: Layout):
    found = layout(tiers, bound)
    assert found == expected
    assert found.device_rows + found.host == found.rows


@pytest.mark.parametrize(
    ("make", "error", "parts"),
    [
        (lambda: Device(0), ArgumentError, ["Device: size=0 holds no state"]),
        (lambda: Host(-1), ArgumentError, ["Host: size=-1 holds no state", "leave the tier out"]),
        (lambda: Host(True), ArgumentTypeError, ["Host: size is a bool (True)", '"2GiB"']),
        (lambda: Device(cast(Any, 1.5)), ArgumentTypeError, ["Device: size is a float (1.5)"]),
        (lambda: Host("2 barns"), ArgumentError, ["Host: cannot read '2 barns'", '"64MiB"']),
        (lambda: Host("0MiB"), ArgumentError, ["Host: the amount must be positive"]),
        (lambda: layout([]), ArgumentError, ["no dynloop.Device among its tiers"]),
        (lambda: layout([Host(3)]), ArgumentError, ["no dynloop.Device among its tiers", "the steps run there"]),
        (lambda: layout([Host(3), Device(2)]), ArgumentError, ["not one Device and then at most one Host"]),
        (lambda: layout([Device(3), Host(2), Host(2)]), ArgumentError, ["not one Device and then at most one Host"]),
        (lambda: layout([Device(3), 4]), ArgumentTypeError, ["checkpoints has an int (4) among its tiers"]),
        (lambda: layout(Device(3)), ArgumentTypeError, ["a single tier", "[dynloop.Device(8), dynloop.Host(64)]"]),
        (lambda: layout([Device(3), Disk("x", 4)]), ArgumentError, ["adjoint.reverse", "adjoint.DiskStore"]),
        (
            lambda: layout([Device("7B")]),
            ArgumentError,
            ["dynloop.Device('7B')", "state of the carry takes 8 bytes"],
        ),
        (lambda: layout([Device("8B"), Host("7B")]), ArgumentError, ["dynloop.Host('7B')", "takes 8 bytes"]),
        (
            lambda: layout([Device(1), Host("8B")], carry_bytes=None),
            ArgumentError,
            ["checkpoints=[dynloop.Device(size=1), dynloop.Host(size='8B')] counts the bytes", "symbolic"],
        ),
    ],
)
def test_tiers_that_are_refused(make: Any, error: type[Exception], parts: list[str]):
    with pytest.raises(error) as caught:
        make()
    assert isinstance(caught.value, dynloop.DynloopError)
    for part in parts:
        assert part in str(caught.value)
