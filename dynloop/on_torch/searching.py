"""What the user's functions close over, found without running them.

A search looks at the cells of a function, at its default arguments and at the globals that its code names, functions
inside of it included; at the function and the arguments of a `functools.partial`; at the object of a bound method,
`log.append` included; at the parameters, buffers and attributes of modules and of the modules in them; into tuples,
lists, sets and dicts; and at the attributes of any other object that is reached in these ways, `DEPTH` attributes deep.
It also tells the places that held all this (`places`), and the lists and dicts that steps may add to (`leaving`).
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

from dynloop.on_torch.leaving import Container
from dynloop.on_torch.places import Place

# Of what may be changed by a step: a tensor of no more entries is copied before the first step, to be set back.
SMALL = 4096
# Objects of these packages hold no tensors of the user's in their attributes, nor do their functions close over any.
FOREIGN = frozenset(("torch", "numpy", "jax", "optree", *sys.stdlib_module_names)) - {"__main__"}
OURS = frozenset(("dynloop", "adjoint"))
# How many attributes of attributes are looked at.
DEPTH = 8


@dataclass
class Found:
    """tensors: with their names, each once.   is_moving: of those, the buffers of modules in training, by id.

    generators: of random numbers.   places: where the functions find what they read.
    containers: lists and dicts with their names, and how many entries each has.
    """

    tensors: list[tuple[str, Tensor]] = field(default_factory=list)
    is_moving: set[int] = field(default_factory=set)
    generators: list[torch.Generator] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    containers: list[Container] = field(default_factory=list)

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
    # A stack of (name, value, how many attributes lie above it).
    stack: list[tuple[str, Any, int]] = [("", f, 0) for f in reversed(functions)]
    while stack:
        name, value, depth = stack.pop()
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
            stack += [(key, x, depth + 1) for key, x in _parts_of_modules(found, seen, name, value)][::-1]
        else:
            inner = depth + 1 if _has_attributes(value) else depth
            if inner <= DEPTH:
                stack += [(key, x, inner) for key, x in _parts(found, name, value)][::-1]
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


def _parts_of_modules(found: Found, seen: set[int], name: str, module: nn.Module) -> Iterator[tuple[str, Any]]:
    """The attributes of a module and of those in it."""
    for key, inner in module.named_modules():
        seen.add(id(inner))
        label = ".".join(filter(None, (name, key)))
        own = {key: x for key, x in vars(inner).items() if not key.startswith("_")}
        found.places += [Place(f"{label}.{key}", vars(inner), key) for key in own]
        for holder in (inner._parameters, inner._buffers, inner._modules):
            found.places += [Place(f"{label}.{key}", holder, key) for key in holder]
        yield from ((f"{label}.{key}", x) for key, x in own.items())


def _has_attributes(value: Any) -> bool:
    """Whether it is none of the kinds that have parts of their own."""
    kinds = (
        types.FunctionType
        | types.MethodType
        | types.BuiltinMethodType
        | functools.partial
        | dict
        | tuple
        | list
        | set
        | frozenset
    )
    return not isinstance(value, kinds)


def _parts(found: Found, name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What a value holds, by its names."""
    if isinstance(value, types.FunctionType):
        if package_of(value) not in FOREIGN:
            yield from _closed_over(found, value)
    elif isinstance(value, types.MethodType):
        yield _self_name(value), value.__self__
        yield name, value.__func__
    elif isinstance(value, types.BuiltinMethodType):
        # Such as `log.append`; the owner of a builtin function is its module, which is not looked into.
        yield name, value.__self__
    elif isinstance(value, functools.partial):
        yield name, value.func
        yield from ((f"argument {at}", x) for at, x in enumerate(value.args))
        yield from value.keywords.items()
    elif isinstance(value, dict):
        found.containers.append(Container(name, value, len(value)))
        found.places += [Place(f"{name}[{key!r}]", value, key) for key in value]
        yield from ((f"{name}[{key!r}]", x) for key, x in value.items())
    elif isinstance(value, tuple | list | set | frozenset):
        if isinstance(value, list):
            found.containers.append(Container(name, value, len(value)))
            found.places += [Place(f"{name}[{at}]", value, at) for at in range(len(value))]
        yield from ((f"{name}[{at}]", x) for at, x in enumerate(value))
    elif package_of(type(value)) not in FOREIGN | OURS:
        yield from _attributes(found, name, value)


def _self_name(method: types.MethodType) -> str:
    code = getattr(method.__func__, "__code__", None)
    return code.co_varnames[0] if code is not None and code.co_varnames else "self"


def _attributes(found: Found, name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds; and the call of an object that is called like a function."""
    held = getattr(value, "__dict__", {})
    slots = [slot for kind in type(value).__mro__ for slot in _slots_of(kind) if hasattr(value, slot)]
    if isinstance(held, dict):
        found.places += [Place(f"{name}.{key}", held, key) for key in held]
        yield from ((f"{name}.{key}", x) for key, x in list(held.items()))
    found.places += [Place(f"{name}.{slot}", value, slot) for slot in slots]
    yield from ((f"{name}.{slot}", getattr(value, slot)) for slot in slots)
    call = vars(type(value)).get("__call__")
    if isinstance(call, types.FunctionType):
        yield name, call


def _slots_of(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return tuple(s for s in ((slots,) if isinstance(slots, str) else slots) if not s.startswith("__"))


def _closed_over(found: Found, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    for key, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        found.places.append(Place(key, cell, None))
        try:
            yield key, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    yield from (("a default argument", x) for x in (function.__defaults__ or ()))
    yield from (function.__kwdefaults__ or {}).items()
    for key in _names_in(code):
        if key in function.__globals__:
            found.places.append(Place(key, function.__globals__, key))
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
