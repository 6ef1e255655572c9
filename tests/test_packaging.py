"""One distribution with two typed packages; its version, extras and tested versions agree with each other."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house import PACKAGES
from tests.user_process import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]

# What no code of the repository uses: nothing was tested, so nothing is pinned.
UNTESTED = {"tqdm", "dynloop"}


def pins(text: str) -> dict[str, str]:
    """The exact versions in a file of constraints, by normalised name."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def unpinned(extras: dict[str, list[str]], pinned: dict[str, str]) -> list[str]:
    """Direct dependencies without a pin, or with one outside their own range."""
    wanted = [Requirement(line) for lines in extras.values() for line in lines]
    return [
        str(r)
        for r in wanted
        if r.name not in UNTESTED and pinned.get(canonicalize_name(r.name), "") not in r.specifier
    ]


@pytest.fixture(scope="module")
def wheel() -> set[str]:
    return {Path(file.distribution_path).as_posix() for file in WheelBuilder(str(ROOT)).recurse_included_files()}


@pytest.mark.parametrize("package", PACKAGES)
def test_wheel_ships_the_package_typed(package: str, wheel: set[str]) -> None:
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / package).rglob("*.py")}
    assert sources | {f"{package}/__init__.py", f"{package}/py.typed"} <= wheel


def test_wheel_ships_nothing_else(wheel: set[str]) -> None:
    assert {path.split("/")[0] for path in wheel} == set(PACKAGES)


def test_version_is_the_newest_in_the_changelog() -> None:
    versions = re.findall(r"^## (\S+)", (ROOT / "docs/changelog.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert versions[0] == PROJECT["version"]


def test_nothing_is_required() -> None:
    assert PROJECT["dependencies"] == []


def test_extras_are_the_documented_ones() -> None:
    assert set(EXTRAS) == {"jax", "torch", "viz", "progress", "disk", "examples", "test", "test-torch", "bench", "all"}


def test_every_direct_dependency_is_pinned_within_its_range() -> None:
    assert unpinned(EXTRAS, pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))) == []


def test_every_dependency_of_the_newest_run_is_pinned_within_its_range() -> None:
    newest = pins((ROOT / "constraints-newest.txt").read_text(encoding="utf-8"))
    assert unpinned({extra: EXTRAS[extra] for extra in ("jax", "test")}, newest) == []


def test_the_message_for_another_jax_names_the_pinned_ones() -> None:
    files = ("constraints.txt", "constraints-newest.txt")
    pinned = [pins((ROOT / file).read_text(encoding="utf-8"))["jax"] for file in files]
    assert re.findall(r'"([\d.]+)": "3', (ROOT / "dynloop/on_jax/internals.py").read_text(encoding="utf-8")) == pinned


@pytest.mark.parametrize("text", ["numpy==1.0\n", "scipy==2.0\n", "# numpy==2.0\n"])
def test_a_wrong_pin_is_found(text: str) -> None:
    assert unpinned({"test": ["numpy>=2.0"]}, pins(text)) == ["numpy>=2.0"]
