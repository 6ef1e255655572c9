"""Claims about `python -m dynloop`: it plans within what it is given, and says what it cannot read."""

import importlib.metadata
import re
import sys
from pathlib import Path

import pytest

import adjoint
from dynloop.__main__ import count, duration, main, rate, size
from tests.user_process import run_python

PLAN = ["plan", "--steps", "100000", "--state", "8MB", "--memory", "1GB"]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_a_plan_names_the_best_schedule_and_what_it_costs(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *PLAN)
    cost = adjoint.Binomial(125).cost(100_000)
    assert "Binomial(slots=125, joined=False)" in text.splitlines()[1]
    assert f"evaluations  {cost.evaluations}, {cost.evaluations / 100_000:.2f} for each step" in text
    assert "memory       125 slots, 1.0 GB" in text


def test_a_disk_adds_schedules(capsys: pytest.CaptureFixture[str]) -> None:
    assert "of disk" not in printed(capsys, *PLAN)
    assert "of disk" in printed(capsys, *PLAN, "--disk", "100GB", "--write", "500MB/s")


def test_a_very_long_chain_is_planned_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert "steps        100000000" in printed(capsys, "plan", "--steps=1e8", "--state=8MB", "--memory=1GB")


def test_drawings_show_the_best_schedule(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "plan.png"
    options = ["--steps=60", "--state=8MB", "--memory=33MB", "--draw", f"--picture={path}"]
    text = printed(capsys, "plan", *options)
    assert adjoint.draw(adjoint.Binomial(4), 60) in text
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_demo_tells_of_a_gradient_that_is_right() -> None:
    text = run_python("-m", "dynloop", "demo")
    words = " ".join(text.split())
    found = re.search(r"it takes (\d+) steps.* would add ([\d.]+)\..* by finite differences, say ([\d.]+)\. ", words)
    assert found, text
    steps, slope, differences = int(found[1]), float(found[2]), float(found[3])
    assert slope == pytest.approx(differences, rel=0.01)
    cost = adjoint.Online(12).cost(steps)
    assert f"{cost.evaluations} evaluations of the step, {cost.evaluations / steps:.2f} for each step" in words
    assert f"{adjoint.advances(steps + 1, 12) + steps} would have been the least possible for 12 states" in words
    assert adjoint.draw(adjoint.Online(12), steps) in text


def test_the_demo_asks_for_jax(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # An import of a module that stands here as None fails as if it were not installed.
    monkeypatch.setitem(sys.modules, "jax", None)
    assert main(["demo"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("python -m dynloop demo: the demo runs on JAX: import of jax halted")
    assert 'install it with pip install "dynloop[jax]"' in told


def test_the_doctor_tells_versions_and_backends(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "doctor")
    assert f"jax           {importlib.metadata.version('jax')}" in text
    assert "backend jax   loads" in text
    assert "backend torch" in text


def test_it_runs_as_a_module() -> None:
    assert "Binomial(slots=2, joined=False)" in run_python(
        "-m", "dynloop", "plan", "--steps=9", "--state=1MB", "--memory=2MB"
    )


REFUSED: dict[str, tuple[list[str], str]] = {
    "no speed": ([*PLAN, "--disk=1TB"], "--disk needs a speed to reckon with; give --write=500MB/s"),
    "no room": ([*PLAN, "--write=1GB/s"], "--write and --read are speeds of a disk; give its room as well"),
    "too small": (["plan", "--steps=9", "--state=8MB", "--memory=1MB"], "give at least 8000000 bytes"),
    "too much to draw": ([*PLAN, "--draw"], "--draw and --picture show at most 20000 steps; got --steps=100000"),
}


@pytest.mark.parametrize(("arguments", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_planned_is_told(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


UNREADABLE: dict[str, tuple[list[str], str]] = {
    "steps": (["--steps=many"], "argument --steps: cannot read 'many' as a number of steps >= 1"),
    "half a step": (["--steps=1.5"], "cannot read '1.5' as a number of steps"),
    "state": (["--state=8MX"], "argument --state: cannot read '8MX' as an amount of memory"),
    "no state": (["--state=0"], "argument --state: the amount must be positive"),
    "write": (["--write=500MB"], "argument --write: cannot read '500MB' as a speed; give an amount for each second"),
    "step": (["--step=10 years"], "argument --step: cannot read '10 years' as a time; give a number with ns, us"),
}


@pytest.mark.parametrize(("arguments", "words"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_is_told(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*PLAN, *arguments])
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_amounts_are_read_as_they_are_written() -> None:
    assert (size("8MB"), size("1GiB"), size("17")) == (8 * 10**6, 2**30, 17)
    assert rate("500MB/s") == 5 * 10**8
    assert (duration("10ms"), duration("2"), duration("1.5 h")) == (0.01, 2.0, 5400.0)
    assert (count("100_000"), count("1e8"), count("2.5e3")) == (100_000, 10**8, 2500)
