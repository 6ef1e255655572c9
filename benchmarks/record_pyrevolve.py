"""Counts the advances and stores of pyrevolve's schedules and writes the table that the tests compare with.

    pip install -c constraints.txt -e ".[bench]"
    python benchmarks/record_pyrevolve.py

pyrevolve has to be compiled where it is installed, so the tests read its counts instead of running it.
"""

import json
from importlib.metadata import version
from pathlib import Path

from pyrevolve.schedulers import Action, CRevolve  # pyright: ignore[reportMissingImports]

TABLE = Path(__file__).parents[1] / "tests" / "adjoint" / "data" / "pyrevolve_counts.json"
SLOTS = (1, 2, 3, 5, 8, 13, 21, 34)
STEPS = (2, 3, 7, 13, 34, 100, 233, 610)


def counted(slots: int, steps: int) -> list[int]:
    """Slots, steps, advances and stores of one joined reversal."""
    schedule = CRevolve(slots, steps)
    advances = stores = 0
    while (action := schedule.next()).type != Action.TERMINATE:
        if action.type == Action.ADVANCE:
            advances += action.capo - action.old_capo
        stores += action.type == Action.TAKESHOT
    return [slots, steps, advances, stores]


def main() -> None:
    rows = [counted(slots, steps) for slots in SLOTS for steps in STEPS]
    source = f"pyrevolve {version('pyrevolve')}, CRevolve, counted by benchmarks/record_pyrevolve.py"
    columns = ["s", "n", "advances", "stores"]
    TABLE.write_text(json.dumps({"source": source, "columns": columns, "rows": rows}) + "\n")
    print(f"{len(rows)} rows in {TABLE.name}")


if __name__ == "__main__":
    main()
