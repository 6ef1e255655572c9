"""`python -m dynloop`: see what it is about, plan which states to keep for a chain of steps, look at what is installed.

demo runs a loop of unknown length on JAX, and tells its value, its gradient, and what these cost.
plan prints the schedules of `adjoint.propose` that fit into the memory and on the disk, the fastest first, and the
best one in full.
doctor prints the versions of what dynloop works with, and whether its backends load.
"""

import argparse
import importlib.metadata
import platform
import re
import sys
from collections.abc import Callable, Sequence

import adjoint
from adjoint.report import in_bytes, in_unit
from dynloop.backend import choose
from dynloop.checkpoints import Memory
from dynloop.demo import tell
from dynloop.errors import ArgumentError, DynloopError
from dynloop.picture import picture

SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
PACKAGES = ("dynloop", "jax", "jaxlib", "equinox", "torch", "optree", "numpy", "matplotlib", "safetensors")
# A drawing of more steps than this shows no more, and takes a minute.
MOST_DRAWN = 20_000


def size(text: str) -> int:
    """An amount of memory, as `dynloop.Memory` reads it."""
    try:
        return Memory(int(text) if text.isdecimal() else text).bytes
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("Memory: ")) from None


def rate(text: str) -> int:
    """Bytes in a second."""
    if not text.endswith("/s"):
        raise argparse.ArgumentTypeError(f"cannot read {text!r} as a speed; give an amount for each second: 500MB/s")
    return size(text.removesuffix("/s"))


def duration(text: str) -> float:
    """Seconds."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:e-?\d+)?)\s*([a-z]*)\s*", text)
    if match is None or (match[2] or "s") not in SECONDS:
        raise argparse.ArgumentTypeError(f"cannot read {text!r} as a time; give a number with {', '.join(SECONDS)}")
    return float(match[1]) * SECONDS[match[2] or "s"]


def count(text: str) -> int:
    """A number of steps: 100000, 100_000 or 1e5."""
    value = float(text.replace("_", "")) if re.fullmatch(r"[\d_]+(?:\.\d+)?(?:e\d+)?", text) else 0.5
    if value != int(value) or value < 1:
        raise argparse.ArgumentTypeError(f"cannot read {text!r} as a number of steps >= 1, such as 100000 or 1e5")
    return int(value)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    whole = argparse.ArgumentParser("python -m dynloop", description="Loops of any length, in the memory you choose.")
    commands = whole.add_subparsers(dest="command", required=True, metavar="demo | plan | doctor")
    commands.add_parser("demo", help="one loop, its gradient, and what that costs (needs JAX)")
    plan = commands.add_parser("plan", help="which states to keep, and what that costs")
    add: Callable[..., object] = plan.add_argument
    add("--steps", type=count, required=True, help="steps of the chain, such as 1e5")
    add("--state", type=size, required=True, help="size of one state, such as 8MB")
    add("--memory", type=size, required=True, help="memory for stored states, such as 1GB or 1GiB")
    add("--disk", type=size, default=0, help="room for stored states on a disk, such as 100GB")
    add("--write", type=rate, help="speed of writing to the disk, such as 500MB/s; by default that of --read")
    add("--read", type=rate, help="speed of reading from the disk; by default that of --write")
    add("--step", type=duration, default=0.01, help="time of one step, such as 10ms, which is the default")
    add("--adjoint", type=duration, help="time of one step's adjoint; by default twice that of a step")
    add("--draw", action="store_true", help="draw the best schedule in characters")
    add("--picture", metavar="FILE", help="save a picture of the best schedule, such as plan.svg (needs matplotlib)")
    commands.add_parser("doctor", help="what is installed, and whether it works")
    return whole


def plan(options: argparse.Namespace) -> str:
    """What `plan` prints."""
    write, read = options.write or options.read, options.read or options.write
    if options.disk and not write:
        raise ArgumentError("--disk needs a speed to reckon with; give --write=500MB/s, or --read, or both")
    if write and not options.disk:
        raise ArgumentError("--write and --read are speeds of a disk; give its room as well: --disk=100GB")
    if (options.draw or options.picture) and options.steps > MOST_DRAWN:
        raise ArgumentError(f"--draw and --picture show at most {MOST_DRAWN} steps; got --steps={options.steps}")
    reports = adjoint.propose(
        options.steps,
        options.state,
        options.memory,
        disk=options.disk,
        write=options.state / write if write else 0.0,
        read=options.state / read if read else 0.0,
        step_cost=options.step,
        adjoint_cost=2 * options.step if options.adjoint is None else options.adjoint,
        unit="s",
    )
    best = reports[0]
    parts = [table(reports), str(best)]
    if options.draw:
        parts.append(adjoint.draw(best.schedule, options.steps))
    if options.picture:
        picture(best.schedule, options.steps).savefig(options.picture)
        parts.append(f"the picture is in {options.picture}")
    return "\n\n".join(parts)


def table(reports: Sequence[adjoint.Report]) -> str:
    """One line for each schedule."""
    rows = [("time", "evaluations", "kept", "schedule")]
    for report in reports:
        kept = " + ".join(f"{in_bytes(use.bytes or 0)} of {use.name}" for use in report.uses if use.slots)
        time = in_unit(report.time, report.unit)
        rows.append((time, f"{report.evaluations / report.steps:.2f} n", kept, str(report.schedule)))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join("  ".join([*(f"{row[i]:<{widths[i]}}" for i in range(3)), row[3]]) for row in rows)


def doctor() -> str:
    """What `doctor` prints."""
    lines = [("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")]
    for name in PACKAGES:
        try:
            lines.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            lines.append((name, "not installed"))
    for backend in ("jax", "torch"):
        try:
            choose("doctor", backend)
            lines.append((f"backend {backend}", "loads"))
        except Exception as error:
            lines.append((f"backend {backend}", f"does not load: {type(error).__name__}: {error}"))
    return "\n".join(f"{name:<13} {text}" for name, text in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the process's exit status."""
    options = parser().parse_args(arguments)
    commands: dict[str, Callable[[], str]] = {"demo": tell, "plan": lambda: plan(options), "doctor": doctor}
    try:
        print(commands[options.command]())
    except (DynloopError, adjoint.AdjointError) as error:
        print(f"python -m dynloop {options.command}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
