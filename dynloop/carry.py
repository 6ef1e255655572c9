"""The contract on carries, and its messages: backends describe leaves as text, this file compares.

A leaf is described by its path (such as `['x'][0]`), shape and dtype.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dynloop.errors import CarryError


@dataclass(frozen=True)
class Leaf:
    """One leaf of a carry, in words."""

    path: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def words(self) -> str:
        """Such as `float32[3, 2]`; a property, which torch's compiler follows where it does not follow `str`."""
        return f"{self.dtype}{list(self.shape)}"

    def __str__(self) -> str:
        return self.words


def check_structure(
    name: str, label: str, before: object, after: object, paths: tuple[Sequence[str], Sequence[str]]
) -> None:
    """The body, which the user calls `label`, must return the tree it was given."""
    if before == after:
        return

    def named(these: Sequence[str]) -> str:
        return ", ".join(f"carry{path}" for path in these)

    missing = [p for p in paths[0] if p not in paths[1]]
    extra = [p for p in paths[1] if p not in paths[0]]
    details = [f"missing from what {label} returned: {named(missing)}"] if missing else []
    details += [f"not in init: {named(extra)}"] if extra else []
    lines = "".join(f"\n  {line}" for line in details)
    advice = f"Return every part of the carry from {label}, changed or not, in the same containers."
    if paths[0] and not paths[1]:
        advice += " It returned nothing: is a `return` missing?"
    raise CarryError(
        f"{name}: {label} must return a carry of the same structure as init.{lines}\n"
        f"  init: {before}\n  {label} returned: {after}\n{advice}"
    )


def check_leaves(
    name: str, label: str, before: Sequence[Leaf], after: Sequence[Leaf], *, cast: str = ".astype({})"
) -> None:
    """Each leaf must keep its shape and dtype; `cast` is how the array library casts."""
    lines = []
    for old, new in zip(before, after, strict=True):
        if old.shape != new.shape:
            lines.append(
                f"carry{old.path} is {old.words} before a step and {new.words} after it: its shape must not change; "
                f"pad it to its largest shape, or give init the shape that {label} returns"
            )
        elif old.dtype != new.dtype:
            lines.append(
                f"carry{old.path} is {old.words} before a step and {new.words} after it: its dtype must not change; "
                f"give init as {new.dtype}, or end {label} with {cast.format(old.dtype)}"
            )
    if lines:
        raise CarryError(f"{name}: the carry changes from step to step.\n  " + "\n  ".join(lines))


def check_devices(name: str, label: str, paths: Sequence[str], before: Sequence[str], after: Sequence[str]) -> None:
    """Each leaf must stay on its device."""
    lines = [
        f"carry{path} is on {old} before a step and on {new} after it: it must stay on its device; "
        f"give init there, or end {label} by moving it back"
        for path, old, new in zip(paths, before, after, strict=True)
        if old != new
    ]
    if lines:
        raise CarryError(f"{name}: the carry changes from step to step.\n  " + "\n  ".join(lines))


def ran_with(name: str, label: str, carry: object, verb: str = "ran") -> str:
    """A note to an error of the user's function `label`: the carry that it was given, its leaves in words."""
    return f"{name}: raised while {label} {verb} with the carry {carry}"
