"""A Python process as a user starts it, in the repository's root: without the suite's settings, warnings are errors."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def user_environment() -> dict[str, str]:
    """The environment without the suite's settings for JAX; the platform stays the CPU and pictures need no screen."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_", "PYTEST_"))}
    return kept | {"JAX_PLATFORMS": "cpu", "MPLBACKEND": "Agg"}


def run_python(*arguments: str, timeout: float = 300) -> str:
    """What `python ARGUMENTS` prints in the root folder; raises AssertionError with its error output if it fails."""
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=user_environment(), capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"python {' '.join(arguments)} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout
