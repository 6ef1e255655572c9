"""Processes that see several CPU devices: they run named cases and report each as a line of JSON.

The number of devices is fixed when JAX starts, so the suite's own process cannot have them; and devices that
wait for each other forever can only be ended from outside, by a time limit.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from tests.user_process import ROOT

Cases = Mapping[str, Callable[[], Any]]
LIMIT = 240.0
"""Seconds; many times what the cases of one process take on a busy machine of two cores."""


def start(module: str, devices: int, *arguments: str) -> subprocess.Popen[str]:
    """`python -m MODULE ARGUMENTS` with so many devices and else the suite's settings."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": flags},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def results(process: subprocess.Popen[str], limit: float = LIMIT) -> dict[str, Any]:
    """What the cases of a process returned, or {"error": ...}; AssertionError names the case where it hangs or dies."""
    try:
        output, errors = process.communicate(timeout=limit)
        ending = f"exit status {process.returncode}"
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        ending = f"no end after {limit} seconds"
    lines = [json.loads(line) for line in output.splitlines() if line.startswith('{"case"')]
    begun, found = [x["case"] for x in lines], {x["case"]: x["result"] for x in lines if "result" in x}
    assert process.returncode == 0, f"{ending}, the last case begun being {begun[-1:]}:\n{errors[-3000:]}"
    return found


def report(cases: Cases) -> None:
    """Run the cases, in the process; what they return are nested dicts, lists and tuples of arrays and text."""
    for name, case in cases.items():
        print(json.dumps({"case": name}), flush=True)
        try:
            result = jax.tree.map(lambda x: x if isinstance(x, str) else np.asarray(x).tolist(), case())
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps({"case": name, "result": result}), flush=True)
