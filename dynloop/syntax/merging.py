"""One type for a name that has two: before a loop and after an iteration, or on the two paths of a branch.

Arrays keep dtype and shape exactly. A number of Python takes the dtype of an array, or that of a
greater number. What is no array must be the same. A name without a value on one path is filled with zeros
if every use of it is proven to follow an assignment, and has no value otherwise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dynloop.errors import StagingError
from dynloop.syntax.arrays import Kind, Staging
from dynloop.syntax.state import Form, Static, described, is_number, is_same, label, parts_of


@dataclass(frozen=True)
class Sides:
    """What the two types belong to.

    what: the statement, with its line.   first, second: when each holds, in words.   advice: for a changed shape.
    must_be: how a value that is no array has to be.
    """

    what: str
    first: str
    second: str
    must_be: str

    def differ(self, name: str, path: str, a: str, b: str, advice: str) -> StagingError:
        return StagingError(f"{self.what}: {label(name, path)} {a} {self.first} but {b} {self.second}; {advice}")


BEFORE, AFTER = "before the loop", "after one iteration"


def loop_sides(what: str) -> Sides:
    return Sides(what, BEFORE, AFTER, "must not change")


def branch_sides(what: str) -> Sides:
    return Sides(what, "when true", "when false", "must be the same on both paths")


@dataclass(frozen=True)
class Merged:
    """The common form of a value.   kinds: of its parts; what is no kind is static."""

    form: Form
    kinds: list[Kind | Static]


def merged(
    staging: Staging, sides: Sides, name: str, forms: tuple[Form, Form], leaves: tuple[Sequence[Any], Sequence[Any]]
) -> Merged:
    """leaves: the kinds of them, for each of the two."""
    first, second = forms
    both = [list(parts_of(form, kinds)) for form, kinds in zip(forms, leaves, strict=True)]
    if not staging.is_same_tree(first.tree, second.tree):
        a, b = (_of_tree(form, parts) for form, parts in zip(forms, both, strict=True))
        advice = "its structure must not change" if sides.first == BEFORE else "return the same structure from both"
        if not first.parts or not second.parts:
            advice = f"a value that is not an array {sides.must_be}"
        raise sides.differ(name, "", f"is {a}", b, advice)
    kinds = [_part(staging, sides, name, a, b) for a, b in zip(*both, strict=True)]
    return Merged(first, kinds)


def _of_tree(form: Form, parts: Sequence[tuple[str, Any, bool]]) -> str:
    if not form.parts:
        return str(form.tree).removeprefix("PyTreeDef(").removesuffix(")")
    if len(parts) == 1 and not parts[0][0]:
        return described(parts[0][1])
    return str(form.tree)


def _part(
    staging: Staging, sides: Sides, name: str, first: tuple[str, Any, bool], second: tuple[str, Any, bool]
) -> Kind | Static:
    (path, a, _), (_, b, _) = first, second
    if first[2] and second[2] and is_same(a, b):
        return Static(a)
    kinds = [staging.kind(x) if is_number(x) else x for x in (a, b)]
    if not all(isinstance(kind, Kind) for kind in kinds):
        advice = f"a value that is not an array {sides.must_be}"
        raise sides.differ(name, path, f"is {described(a)}", described(b), advice)
    found = common(staging, *kinds)
    if found is not None:
        return found
    if kinds[0].shape != kinds[1].shape:
        shapes = (str(kind.shape) for kind in kinds)
        raise sides.differ(name, path, f"has shape {next(shapes)}", next(shapes), "shapes must not change")
    raise sides.differ(name, path, f"is {kinds[0]}", str(kinds[1]), "cast it explicitly")


def common(staging: Staging, a: Kind, b: Kind) -> Kind | None:
    """The kind that holds both; None if there is none."""
    if a.shape != b.shape:
        return None
    if a == b:
        return a
    if a.is_number and b.is_number:
        return staging.joined(a, b)
    if not a.is_number and not b.is_number:
        return a if a.dtype == b.dtype else None
    number, array = (a, b) if a.is_number else (b, a)
    joined = staging.joined(number, array)
    return array if joined.dtype == array.dtype else None
