"""Amounts of memory: bytes as an int, or text such as `"64MiB"`, as a user writes them."""

import re

from dynloop.errors import ArgumentError

_UNITS = {"": 1, "B": 1} | {f"{p}B": 1000**i for i, p in enumerate("kMGT", 1)}
_UNITS |= {"KB": 1000} | {f"{p}iB": 1024**i for i, p in enumerate("KMGT", 1)}


def bytes_of(owner: str, amount: object) -> int:
    """The bytes of an amount that was given to `owner`; an `ArgumentError` if it cannot be read as one."""
    if isinstance(amount, int) and not isinstance(amount, bool):
        return amount
    text = amount if isinstance(amount, str) else ""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2] not in _UNITS:
        raise ArgumentError(
            f"{owner}: cannot read {amount!r} as an amount of memory; "
            'give bytes as an int, or text such as "64MiB" or "2 GB"'
        )
    return int(float(match[1]) * _UNITS[match[2]])
