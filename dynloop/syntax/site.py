"""What the runtime knows of one statement: where it stands, what it carries, what would be wrong to stage."""

from typing import NamedTuple


class Limit(NamedTuple):
    """Something that a staged statement cannot mean.

    where: file and line.   what: in words.   name: whose value decides, if it is a container, or "" if none does.
    """

    where: str
    what: str
    name: str = ""


class Limits(NamedTuple):
    """refused: what must not be staged.   once: what runs once, while tracing, and not at every step."""

    refused: tuple[Limit, ...] = ()
    once: tuple[Limit, ...] = ()


class Site(NamedTuple):
    """One `if`, `while`, `for` or `assert`.

    names: of what it returns; a loop carries the same.   unsure: which of them have a use that may come before
    any assignment.   flag: the place of the name that says whether a jump has left the loop, or -1.
    given, reads: what it gets: names that it may assign, and names that it only reads.   pieces: their names.
    """

    kind: str
    where: str
    names: tuple[str, ...]
    unsure: tuple[bool, ...]
    flag: int
    given: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    pieces: tuple[str, ...] = ()
    limits: Limits = Limits()

    def __str__(self) -> str:
        words = {"if": "if statement", "while": "while loop", "for": "for loop", "assert": "assert"}
        words["choice"] = "conditional expression"
        return f"{words[self.kind]} at {self.where}"
