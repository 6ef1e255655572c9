"""Claims about the documentation inside `adjoint`: its examples run, and each public name has one."""

import doctest
import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest

import adjoint

MODULES = sorted(module.name for module in pkgutil.iter_modules(adjoint.__path__, "adjoint."))
NAMES = [name for name in adjoint.__all__ if inspect.isclass(getattr(adjoint, name)) or name[0].islower()]


def failures(module: ModuleType) -> int:
    return doctest.testmod(module, report=False, verbose=False).failed


@pytest.mark.parametrize("name", MODULES)
def test_every_example_prints_what_it_says(name: str):
    assert failures(importlib.import_module(name)) == 0


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example(name: str):
    assert ">>> " in (inspect.getdoc(getattr(adjoint, name)) or "")


def test_modules_are_found():
    assert {"adjoint.binomial", "adjoint.online", "adjoint.replay"} <= set(MODULES)


def test_a_wrong_example_is_caught(capsys: pytest.CaptureFixture[str]):
    broken = ModuleType("broken", ">>> 1 + 1\n3")
    assert failures(broken) == 1
    assert "Expected" in capsys.readouterr().out
