"""Written-down numbers that several tests compare with, and where they come from."""

import json
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "data"


class Fact(NamedTuple):
    """A joined reversal with the least advances and, among those, the fewest stores."""

    s: int
    n: int
    advances: int
    stores: int


# Counted by pyrevolve 2.2.8 and by checkpoint_schedules 1.0.4 (MultistageCheckpointSchedule), which agree.
# The line of 7 slots and 50 steps also stands in Checkpointing.jl's own tests.
FACTS = [
    Fact(1, 5, 10, 1),
    Fact(2, 10, 20, 4),
    Fact(3, 10, 15, 6),
    Fact(3, 20, 45, 10),
    Fact(4, 56, 168, 21),
    Fact(5, 100, 316, 44),
    Fact(7, 50, 105, 28),
    Fact(8, 100, 245, 55),
    Fact(8, 495, 1760, 330),
    Fact(10, 1000, 3636, 714),
    Fact(16, 969, 2736, 816),
    Fact(32, 5000, 14405, 4439),
]


def rows(name: str) -> list[dict]:
    """The rows of a data file; the file itself says where they come from."""
    data = json.loads((FOLDER / name).read_text())
    return [dict(zip(data["columns"], row, strict=True)) for row in data["rows"]]
