"""What the user's functions close over, found without running them.

A search looks at the cells of a function, at its default arguments and at the globals that its code names, functions
inside of it included; at the function and the arguments of a `functools.partial`; at the object of a bound method; at
the parameters and buffers of modules and of the modules in them; into tuples, lists, sets and dicts; and at the
attributes of any other object that is reached in these ways, though not at the attributes of the objects in those.
Tensors that a function gets hold of otherwise are found when a step reads them (`captured`).
"""

import dis
import functools
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

# Of what may be changed by a step: a tensor of no more entries is copied before the first step, to be set back.
SMALL = 4096
# Objects of these packages hold no tensors of the user's in their attributes, nor do their functions close over any.
FOREIGN = frozenset(("torch", "numpy", "jax", "optree", *sys.stdlib_module_names)) - {"__main__"}
OURS = frozenset(("dynloop", "adjoint"))


@dataclass
class Found:
    """tensors: with their names, each once.   is_moving: of those, the buffers of modules in training, by id.

    generators: of random numbers.
    """

    tensors: list[tuple[str, Tensor]] = field(default_factory=list)
    is_moving: set[int] = field(default_factory=set)
    generators: list[torch.Generator] = field(default_factory=list)

    @property
    def learnt(self) -> list[Tensor]:
        """Those that a gradient may be asked for."""
        return [x for _, x in self.tensors if x.requires_grad]

    def name_of(self, x: Tensor) -> str:
        """What the user calls a tensor."""
        name = next((name for name, y in self.tensors if x is y), "a tensor")
        return f"{name} ({str(x.dtype).removeprefix('torch.')}{list(x.shape)})"


def search(functions: tuple[Any, ...]) -> Found:
    """Everything that these functions close over."""
    found, seen = Found(), set[int]()
    # A stack of (name, value, whether its attributes are looked at).
    stack: list[tuple[str, Any, bool]] = [("", f, True) for f in reversed(functions)]
    while stack:
        name, value, is_open = stack.pop()
        if value is None or isinstance(value, str | int | float | complex | bytes | type | types.ModuleType):
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            found.tensors.append((name, value))
        elif isinstance(value, torch.Generator):
            found.generators.append(value)
        elif isinstance(value, nn.Module):
            _add_module(found, seen, name, value)
            stack += [(f"{name}.{key}", x, False) for key, x in vars(value).items() if not key.startswith("_")]
        else:
            stack += [(key, x, is_open) for key, x in _parts(name, value, is_open)][::-1]
    return found


def _add_module(found: Found, seen: set[int], name: str, module: nn.Module) -> None:
    for key, x in module.named_parameters():
        if id(x) not in seen:
            seen.add(id(x))
            found.tensors.append((f"{name}.{key}", x))
    for inner_key, inner in module.named_modules():
        for key, x in inner.named_buffers(recurse=False):
            if inner.training:
                found.is_moving.add(id(x))
            if id(x) not in seen:
                seen.add(id(x))
                found.tensors.append((".".join(filter(None, (name, inner_key, key))), x))


def _parts(name: str, value: Any, is_open: bool) -> Iterator[tuple[str, Any]]:
    """What a value holds, by its names."""
    if isinstance(value, types.FunctionType):
        if package_of(value) not in FOREIGN:
            yield from _closed_over(value)
    elif isinstance(value, types.MethodType):
        yield _self_name(value), value.__self__
        yield name, value.__func__
    elif isinstance(value, functools.partial):
        yield name, value.func
        yield from ((f"argument {at}", x) for at, x in enumerate(value.args))
        yield from value.keywords.items()
    elif isinstance(value, dict):
        yield from ((f"{name}[{key!r}]", x) for key, x in value.items())
    elif isinstance(value, tuple | list | set | frozenset):
        yield from ((f"{name}[{at}]", x) for at, x in enumerate(value))
    elif is_open and package_of(type(value)) not in FOREIGN | OURS:
        yield from _attributes(name, value)


def _self_name(method: types.MethodType) -> str:
    code = getattr(method.__func__, "__code__", None)
    return code.co_varnames[0] if code is not None and code.co_varnames else "self"


def _attributes(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Tensors and what holds tensors; and the call of an object that is called like a function."""
    slots = [slot for kind in type(value).__mro__ for slot in getattr(kind, "__slots__", ())]
    held = {**getattr(value, "__dict__", {}), **{s: getattr(value, s) for s in slots if hasattr(value, s)}}
    kinds = Tensor | nn.Module | torch.Generator | tuple | list | dict | types.FunctionType
    yield from ((f"{name}.{key}", x) for key, x in held.items() if isinstance(x, kinds))
    call = vars(type(value)).get("__call__")
    if isinstance(call, types.FunctionType):
        yield name, call


def _closed_over(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    for key, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield key, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    yield from (("a default argument", x) for x in (function.__defaults__ or ()))
    yield from (function.__kwdefaults__ or {}).items()
    for key in _names_in(code):
        if key in function.__globals__:
            yield key, function.__globals__[key]
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None:
        yield function.__name__, wrapped


@functools.lru_cache(maxsize=4096)
def _names_in(code: types.CodeType) -> frozenset[str]:
    """The global names that a code reads, codes inside of it included."""
    names = {str(i.argval) for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return frozenset(names.union(*map(_names_in, inner)))


def package_of(value: Any) -> str:
    """The name of the outermost package in which a class or a function is defined."""
    return (getattr(value, "__module__", None) or "").split(".")[0]
