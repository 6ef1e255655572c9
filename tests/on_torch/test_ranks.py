"""Claims about processes that train together and take different numbers of steps."""

import json
import socket
import subprocess
import sys
from typing import Any

import pytest

from tests.user_process import ROOT, user_environment

LIMIT = 120
"""Seconds after which processes that wait for each other are taken for hung."""


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "tests.on_torch.ranks"]
    both = [
        subprocess.Popen(
            [*command, str(rank), port],
            cwd=ROOT,
            env=user_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        said = [process.communicate(timeout=LIMIT) for process in both]
    finally:
        for process in both:
            process.kill()
    assert [process.returncode for process in both] == [0, 0], said
    return [json.loads(out.splitlines()[-1]) for out, _ in said]


def test_gradients_are_averaged_over_unequal_numbers_of_steps(ranks: list[dict[str, Any]]):
    # pytorch/pytorch#108269, #105723, rtqichen/torchdiffeq#119: 0 and 32, then 32 on both.
    assert [rank["slopes"] for rank in ranks] == [[16, 48], [16, 48]]


def test_processes_go_on_together(ranks: list[dict[str, Any]]):
    assert [rank["together"] for rank in ranks] == [[4, 144, 16], [4, 16, 16]]
    assert [rank["counted"] for rank in ranks] == [8, 8]
