"""Settings for every test: JAX's come through its environment variables, so that tests without JAX never load it.

A test that needs a user's defaults, full optimisation or 32 bits, runs its code in a process of its own
(tests/user_process.py), which inherits none of this.
"""

import os
from typing import Any

import pytest
from hypothesis import settings

from tests import correctness

# XLA spends most of a test's time optimising tiny programs; correctness tests need none of it.
QUICK_COMPILE = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")
os.environ.setdefault("XLA_FLAGS", QUICK_COMPILE)
os.environ.setdefault("MPLBACKEND", "Agg")

# The first run of an example compiles, so a deadline per example would measure the compiler.
settings.register_profile("dynloop", deadline=None, derandomize=True)
settings.load_profile("dynloop")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full",
        action="store_true",
        help="run the full matrix, cases marked `full` included, and write docs/correctness.md",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        return
    full = [item for item in items if item.get_closest_marker("full")]
    if full:
        config.hook.pytest_deselected(items=full)
        items[:] = [item for item in items if item not in full]


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    """Runs once, with the reports of all processes."""
    if config.getoption("--full") and (said := correctness.recorded(terminalreporter.stats)):
        terminalreporter.write_line(said)
