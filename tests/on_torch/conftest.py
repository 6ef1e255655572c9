"""Where PyTorch is not installed nothing here is collected but `test_installed.py`, which says so.

A test that needs a GPU is marked `gpu`, and deselected where there is none.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

INSTALLED = "test_installed.py"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    is_test = collection_path.name.startswith("test_") and collection_path.name != INSTALLED
    return True if is_test and find_spec("torch") is None else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The reason stands in the summary of deselected tests: no GPU that PyTorch sees."""
    if find_spec("torch") is None:
        return
    import torch

    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if gpu and not torch.cuda.is_available():
        config.hook.pytest_deselected(items=gpu)
        items[:] = [item for item in items if item not in gpu]
