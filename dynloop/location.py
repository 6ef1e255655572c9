"""Where a function of the user's stands: its name, file and line, by which a loop is told from another one."""

import inspect
from functools import partial
from pathlib import PurePath
from typing import Any


def location(function: Any) -> str:
    """Such as `solve.body, heat.py:12`; of what has no source, such as an object that can be called, its type.

    A lambda has no name: it is called after the function around it.
    """
    while isinstance(function, partial):
        function = function.func
    plain = inspect.unwrap(inspect.unwrap(function).__func__ if inspect.ismethod(function) else function)
    if not inspect.isfunction(plain):
        return f"a {type(function).__qualname__}"
    parts = [part for part in plain.__qualname__.split(".") if part != "<locals>"]
    if parts[-1] == "<lambda>":
        parts = parts[:-1] or ["a lambda"]
    return f"{'.'.join(parts)}, {PurePath(plain.__code__.co_filename).name}:{plain.__code__.co_firstlineno}"
