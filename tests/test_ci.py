"""`.ci/run` does what README's test commands do, and nothing else: read line by line, and run with stand-ins.

A stand-in writes down how it was called. Those of Python make a virtual environment's folder with more of them, so that
the commands run to their end without installing anything.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.documents import shell_block
from tests.user_process import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
SUITE = shell_block(README, "installs, and passes the tests.")
NEWEST = shell_block(README, "passes the tests that rest on its version")

STAND_IN = r"""#!/bin/bash
[ -n "$WRITE" ] && printf '%s\n' "${0##*/machine/} $*" >> "$WRITE"
[[ "${0##*/} $*" == $FAILING ]] && exit 3
if [ "$1 $2" = "-m venv" ]; then
    mkdir -p "$3/bin"
    for name in python ruff pyright; do cp "$0" "$3/bin/$name"; done
fi
exit 0
"""
# As pyenv's: it is there, and only fails unless the version is chosen.
SHIM = '#!/bin/bash\n[ "$PYENV_VERSION" = 3.12.1 ] || exit 127\n' + STAND_IN.partition("\n")[2]
PYENV = "#!/bin/bash\nprintf '%s\\n' 3.11.7 3.12.1 3.12.1/envs/mine 3.13.0\n"
OLD_PYENV = "#!/bin/bash\nprintf '%s\\n' 3.11.7 3.13.0\n"

PLAIN = {"python3": STAND_IN, "python3.12": STAND_IN}
OLD = {"python3": STAND_IN}
MANAGED = {"python3": STAND_IN, "python3.12": SHIM, "pyenv": PYENV}
MANAGED_OLD = {"python3": STAND_IN, "python3.12": SHIM, "pyenv": OLD_PYENV}


def run(folder: Path, script: str, programs: dict[str, str], failing: str = "nothing") -> tuple[int, list[str], str]:
    """Exit status, the programs that were called in order, and the error output of a script on such a machine."""
    machine = folder / "machine"
    (machine / "bin").mkdir(parents=True)
    (machine / ".ci").mkdir()
    (machine / ".ci/run").write_text(script, encoding="utf-8")
    for name, text in programs.items():
        (machine / "bin" / name).write_text(text, encoding="utf-8")
    for name in programs:
        (machine / "bin" / name).chmod(0o755)
    for name in ("bash", "dirname", "mkdir", "cp", "grep", "tail"):
        (machine / "bin" / name).symlink_to(f"/bin/{name}" if Path(f"/bin/{name}").exists() else f"/usr/bin/{name}")
    calls = folder / "calls"
    calls.touch()
    environment = {"PATH": str(machine / "bin"), "WRITE": str(calls), "FAILING": failing}
    done = subprocess.run(
        ["/bin/bash", ".ci/run"], cwd=machine, env=environment, capture_output=True, text=True, timeout=60
    )
    lines = [line for line in calls.read_text(encoding="utf-8").splitlines() if " -c " not in line or "pip" in line]
    return done.returncode, lines, done.stderr


SCRIPT = (ROOT / ".ci/run").read_text(encoding="utf-8")


def test_the_commands_are_readmes_letter_for_letter() -> None:
    assert [line for line in SCRIPT.splitlines() if " -m venv " in line] == [SUITE, NEWEST]
    assert "pytest" in SUITE
    assert "pytest" in NEWEST
    assert os.access(ROOT / ".ci/run", os.X_OK)


@pytest.mark.parametrize("programs", [PLAIN, MANAGED], ids=["python3.12", "pyenv"])
def test_both_commands_run_where_python_3_12_is_found(programs: dict[str, str], tmp_path: Path) -> None:
    status, calls, errors = run(tmp_path / "ci", SCRIPT, programs)
    by_hand = f"export PYENV_VERSION=3.12.1\n{SUITE}\n{NEWEST}\n"
    assert (status, errors) == (0, "")
    assert calls == run(tmp_path / "hand", by_hand, programs)[1]
    assert calls[-1] == ".venv-newest/bin/python -m pytest -n 2 -m versions"


@pytest.mark.parametrize("programs", [OLD, MANAGED_OLD], ids=["no python3.12", "pyenv without one"])
def test_the_suite_alone_runs_where_python_3_12_is_not_found(programs: dict[str, str], tmp_path: Path) -> None:
    status, calls, errors = run(tmp_path / "ci", SCRIPT, programs)
    assert (status, "there is no python3.12" in errors) == (0, True)
    assert calls == run(tmp_path / "hand", SUITE, programs)[1]
    assert calls[-1] == ".venv/bin/python -m pytest -n 2"


@pytest.mark.parametrize(
    "failing", ["python3 -m venv*", "python -m pip*", "ruff check", "ruff format*", "pyright*", "python -m pytest -n 2"]
)
def test_nothing_follows_what_fails(failing: str, tmp_path: Path) -> None:
    status, calls, _ = run(tmp_path / "ci", SCRIPT, PLAIN, failing)
    assert status == 3
    assert ".venv-newest" not in "".join(calls)


@pytest.mark.parametrize("failing", ["python3.12 -m venv*", "python -m pytest -n 2 -m versions"])
def test_a_failure_on_the_newest_version_is_one_of_all(failing: str, tmp_path: Path) -> None:
    assert run(tmp_path / "ci", SCRIPT, PLAIN, failing)[0] == 3


@pytest.mark.parametrize("name", ["test_internals", "test_internals_equations"])
def test_every_use_of_what_jax_hides_runs_on_the_newest_version(name: str) -> None:
    text = (ROOT / f"tests/on_jax/{name}.py").read_text(encoding="utf-8")
    assert "\npytestmark = pytest.mark.versions\n" in text


def test_a_script_that_goes_on_after_a_failure_would_be_found(tmp_path: Path) -> None:
    lax = SCRIPT.replace("suite || exit", "suite || true")
    status, calls, _ = run(tmp_path / "ci", lax, PLAIN, "ruff check")
    assert status == 0
    assert ".venv-newest" in "".join(calls)
