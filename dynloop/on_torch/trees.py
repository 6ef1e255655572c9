"""Trees of tensors: containers that `optree` knows, and dataclasses, whose fields become their parts.

None is no leaf. A dataclass that nobody has registered is registered when it is first met, in optree's namespace
"dynloop": all the fields that its constructor takes are parts of it. One that is registered there, or for every
namespace, stays as it is. Inside of torch.compile the trees are those of `followed`.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import optree
import torch
from torch import Tensor

from dynloop.on_torch import followed

NAMESPACE = "dynloop"


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """The leaves, and the tree's structure."""
    if torch.compiler.is_compiling():
        return followed.flatten(tree)
    leaves, structure = optree.tree_flatten(tree, namespace=NAMESPACE)
    for leaf in leaves:
        if not isinstance(leaf, Tensor) and dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            _register(type(leaf))
            return flatten(tree)
    return leaves, structure


def unflatten(structure: Any, leaves: Iterable[Any]) -> Any:
    if isinstance(structure, followed.Node):
        return followed.unflatten(structure, tuple(leaves))
    return structure.unflatten(leaves)


def paths_of(structure: Any) -> list[str]:
    """The paths of a tree's leaves, as text such as `['x'][0].position`."""
    if isinstance(structure, followed.Node):
        return followed.paths_of(structure)
    return [accessor.codify("") for accessor in structure.accessors()]


def same(one: Any, other: Any) -> bool:
    """Whether two structures are the same."""
    if isinstance(one, followed.Node):
        return followed.is_same(one, other)
    return one == other


def in_words(structure: Any) -> Any:
    """The structure as messages say it."""
    return followed.in_words(structure) if isinstance(structure, followed.Node) else structure


def _register(kind: type) -> None:
    names = [field.name for field in dataclasses.fields(kind) if field.init]

    def parts(value: Any) -> tuple[Sequence[Any], None, Sequence[str]]:
        return [getattr(value, name) for name in names], None, names

    def made(_: Any, values: Iterable[Any]) -> Any:
        return kind(**dict(zip(names, values, strict=True)))

    optree.register_pytree_node(kind, parts, made, path_entry_type=optree.GetAttrEntry, namespace=NAMESPACE)
