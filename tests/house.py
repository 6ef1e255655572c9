"""The house rules as functions: a tree of files in, the list of violations out.

A tree maps a path, relative to the repository's root and with forward slashes, to the file's text.
tests/test_house.py applies every rule in RULES to this repository, and to one broken tree each.
"""

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path, PurePosixPath
from typing import NamedTuple

Tree = Mapping[str, str]
Rule = Callable[[Tree], list[str]]

MOST_LINES = 399
PACKAGES = ("adjoint", "dynloop")
BACKENDS = ("dynloop/on_jax/", "dynloop/on_torch/", "dynloop/integrations/")
# What each of these files may import inside a function: the backends, and packages that only one task needs.
LATE = {
    "dynloop/backend.py": ("dynloop.on_jax", "dynloop.on_torch"),
    "dynloop/demo.py": ("jax",),
    "dynloop/picture.py": ("matplotlib",),
    "dynloop/progress.py": ("tqdm",),
    # They bring torch's compiler, which takes seconds to load.
    "dynloop/on_torch/entry.py": ("dynloop.on_torch.compiled",),
    "dynloop/on_torch/branching.py": ("dynloop.on_torch.compiled_cond",),
    "dynloop/on_torch/staging.py": (
        "dynloop.on_torch.compiled",
        "dynloop.on_torch.compiled_cond",
        "dynloop.on_torch.trying",
    ),
}
# These look a module up by its name.
LATE_LOOKUPS = ("dynloop/backend.py", "dynloop/codecs.py")
INTERNALS = "dynloop/on_jax/internals.py"
VAGUE = {"utils", "util", "misc", "helpers", "helper", "common"}
STANDARD = frozenset(sys.stdlib_module_names)


def read_tree(root: Path) -> dict[str, str]:
    """Every Python file below `root`, except those of hidden folders, virtual environments and build outputs."""
    tops = [
        folder
        for folder in root.iterdir()
        if folder.is_dir()
        and not folder.name.startswith(".")
        and folder.name not in ("build", "dist", "__pycache__")
        and not (folder / "pyvenv.cfg").exists()
    ]
    paths = [*root.glob("*.py"), *(path for top in tops for path in top.rglob("*.py"))]
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in sorted(paths)}


def in_library(path: str) -> bool:
    return path.split("/")[0] in PACKAGES


class Import(NamedTuple):
    """One imported name: `from a.b import c` names `a.b.c`, wherever it stands."""

    line: int
    name: str
    is_inside_function: bool
    is_for_types: bool


def imports(path: str, text: str) -> Iterator[Import]:
    """All imports of a file, relative ones resolved."""
    package = PurePosixPath(path).parent.parts

    def visit(node: ast.AST, inside: bool, types: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, inside, types)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(node.lineno, f"{origin}.{alias.name}", inside, types)
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        guarded = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        body = node.body if isinstance(node, ast.If) else []
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside, types or (guarded and child in body))

    yield from visit(ast.parse(text), False, False)


def starts_with(name: str, *prefixes: str) -> bool:
    """Whether a dotted name is one of the prefixes or lies below one."""
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def is_late(path: str, item: Import) -> bool:
    """Whether this import inside a function is one that its file may make late."""
    return item.is_inside_function and starts_with(item.name, *LATE.get(path, ()))


def long_files(tree: Tree) -> list[str]:
    """Files of 400 lines or more; tables in a `data` folder are apart."""
    lengths = {path: len(text.splitlines()) for path, text in tree.items() if "/data/" not in path}
    return [f"{path}: {length} lines, at most {MOST_LINES}" for path, length in lengths.items() if length > MOST_LINES]


def vague_names(tree: Tree) -> list[str]:
    """Files and folders whose name says nothing about their idea."""
    return [f"{path}: name the idea" for path in tree if VAGUE & {PurePosixPath(part).stem for part in path.split("/")}]


def underscored_modules(tree: Tree) -> list[str]:
    """Modules and folders with a leading underscore: what isn't in `__all__` is private already."""
    allowed = {"__init__.py", "__main__.py"}
    parts = {path: set(path.split("/")) - allowed for path in tree}
    return [f"{path}: leading underscore" for path in tree if any(part.startswith("_") for part in parts[path])]


def star_imports(tree: Tree) -> list[str]:
    """`from x import *`: a reader can't see where a name comes from."""
    found = ((path, item) for path, text in tree.items() for item in imports(path, text))
    return [f"{path}:{item.line}: import *" for path, item in found if item.name.endswith(".*")]


def wrong_arrows(tree: Tree) -> list[str]:
    """Imports against the layers: adjoint <- dynloop <- on_jax, on_torch <- integrations."""

    def is_wrong(path: str, item: Import) -> bool:
        top = item.name.split(".")[0]
        if path.startswith("adjoint/"):
            return top not in STANDARD | {"adjoint"}
        if path.startswith("dynloop/on_jax/"):
            return starts_with(
                item.name, "torch", "optree", "dynloop.on_torch", "dynloop.integrations", "tests", "examples"
            )
        if path.startswith("dynloop/on_torch/"):
            names = ("jax", "jaxlib", "equinox", "dynloop.on_jax", "dynloop.integrations", "tests", "examples")
            return starts_with(item.name, *names)
        if path.startswith("dynloop/") and not path.startswith(BACKENDS):
            if item.is_for_types or is_late(path, item):
                return False
            is_backend = starts_with(item.name, *(folder.strip("/").replace("/", ".") for folder in BACKENDS))
            return is_backend or top not in STANDARD | {"adjoint", "dynloop"}
        return False

    found = ((path, item) for path, text in tree.items() for item in imports(path, text))
    return [f"{path}:{item.line}: may not import {item.name}" for path, item in found if is_wrong(path, item)]


def inner_imports(tree: Tree) -> list[str]:
    """Imports inside functions, or through importlib, in the library; what must be late is apart."""
    wrong = []
    for path, text in tree.items():
        if not in_library(path):
            continue
        inner = (item for item in imports(path, text) if item.is_inside_function and not is_late(path, item))
        wrong += [f"{path}:{item.line}: import inside a function" for item in inner]
        calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
        if path in LATE_LOOKUPS:
            continue
        dynamic = ("importlib.import_module", "import_module", "__import__")
        wrong += [f"{path}:{call.lineno}: dynamic import" for call in calls if ast.unparse(call.func) in dynamic]
    return wrong


def missing_file_docstrings(tree: Tree) -> list[str]:
    """Files of the library that don't open with what idea lives in them."""
    return [
        f"{path}: no docstring" for path in tree if in_library(path) and not ast.get_docstring(ast.parse(tree[path]))
    ]


def private_jax(tree: Tree) -> list[str]:
    """JAX's internal modules, imported or spelled out, anywhere but in the one file that isolates them."""
    internal = ("jax._src", "jax.interpreters", "jax.extend")
    wrong = []
    for path, text in tree.items():
        if path == INTERNALS or path.startswith("tests/"):
            continue
        names = {(item.line, item.name) for item in imports(path, text)}
        names |= {(n.lineno, ast.unparse(n)) for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Attribute)}
        lines = sorted({line for line, name in names if starts_with(name, *internal)})
        wrong += [f"{path}:{line}: internal to JAX, belongs in {INTERNALS}" for line in lines]
    return wrong


def back_doors(tree: Tree) -> list[str]:
    """Examples that import from a module instead of the package: users have one way in."""
    wrong = []
    for path, text in tree.items():
        for item in imports(path, text) if path.startswith("examples/") else ():
            deep = starts_with(item.name, *PACKAGES) and item.name.count(".") > 1
            if deep and not starts_with(item.name, "dynloop.integrations"):
                wrong.append(f"{path}:{item.line}: imports {item.name}, not from the package")
    return wrong


def public_names(text: str) -> list[str] | None:
    """The strings in a package's `__all__`; None if there is no such list."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == "__all__" for target in node.targets):
            words = (word.value for word in ast.walk(node.value) if isinstance(word, ast.Constant))
            return [word for word in words if isinstance(word, str)]
    return None


def bound_names(path: str, text: str) -> dict[str, str]:
    """Names that a module's top level binds, each with its origin: the dotted name imported, or "" if made here."""
    bound: dict[str, str] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom | ast.Import):
            origins = [item.name for item in imports(path, text) if item.line == node.lineno]
            bound |= {alias.asname or alias.name: name for alias, name in zip(node.names, origins, strict=True)}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound[node.name] = ""
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            bound |= {target.id: "" for target in targets if isinstance(target, ast.Name)}
    return bound


def unlisted_names(tree: Tree) -> list[str]:
    """Names that a package binds and does not list in `__all__`, and the other way round."""
    wrong = []
    for path in (f"{package}/__init__.py" for package in PACKAGES):
        listed = public_names(tree[path]) if path in tree else []
        if listed is None:
            wrong.append(f"{path}: no __all__")
            continue
        bound = {name for name in bound_names(path, tree.get(path, "")) if not name.startswith("_")}
        wrong += [f"{path}: {name} is not in __all__" for name in sorted(bound - set(listed))]
        wrong += [f"{path}: {name} in __all__ is not bound" for name in sorted(set(listed) - bound)]
    return wrong


def undocumented_names(tree: Tree) -> list[str]:
    """Public functions and classes without a docstring or without an example in it; other names without a docstring."""
    wrong = []
    for path in (f"{package}/__init__.py" for package in PACKAGES):
        for name in public_names(tree.get(path, "")) or []:
            file, original = home(tree, path, name)
            docstring, needs_example = definition(tree[file], original)
            if not docstring:
                wrong.append(f"{file}: {name} has no docstring")
            elif needs_example and ">>> " not in docstring:
                wrong.append(f"{file}: {name} has no example")
    return wrong


def home(tree: Tree, path: str, name: str) -> tuple[str, str]:
    """The file that makes a name which `path` binds, and the name there: follows imports from file to file."""
    module, _, original = bound_names(path, tree[path]).get(name, "").rpartition(".")
    folder = module.replace(".", "/")
    origin = next((file for file in (f"{folder}.py", f"{folder}/__init__.py") if file in tree), None)
    return home(tree, origin, original) if origin and origin != path else (path, name)


def is_overload(node: ast.stmt) -> bool:
    """Whether it is a signature for type checkers only."""
    return any(ast.unparse(decorator) == "overload" for decorator in getattr(node, "decorator_list", []))


def definition(text: str, name: str) -> tuple[str | None, bool]:
    """The docstring of a name made in a module, and whether it must hold an example: a value's, below it, need not."""
    body = [node for node in ast.parse(text).body if not is_overload(node)]
    for node, after in zip_longest(body, body[1:]):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return ast.get_docstring(node), True
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            below = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and after.value.value
            return (below if isinstance(below, str) else None), False
    return None, True


RULES: tuple[Rule, ...] = (
    long_files,
    vague_names,
    underscored_modules,
    star_imports,
    wrong_arrows,
    inner_imports,
    missing_file_docstrings,
    private_jax,
    back_doors,
    unlisted_names,
    undocumented_names,
)
