"""Claims about `dynloop.picture`: every stroke is in it, where and when it belongs."""

import builtins
from pathlib import Path
from typing import Any

import pytest

import adjoint
import dynloop


def lines(figure: Any) -> dict[str, list[Any]]:
    """The ends of the lines in a picture, by their name in the legend."""
    return {c.get_label(): [s.tolist() for s in c.get_segments()] for c in figure.axes[0].collections}


def test_every_stroke_is_drawn(tmp_path: Path) -> None:
    schedule = adjoint.Binomial(3)
    figure = dynloop.picture(schedule, 30)
    found = lines(figure)
    counts = adjoint.replay(schedule, 30)
    assert set(found) == {"advance", "turn", "kept"}
    assert len(found["kept"]) == counts.stores
    assert [start[1] for start, _ in found["turn"]] == list(reversed(range(30)))
    assert sum(stop[1] - start[1] for start, stop in found["advance"]) == counts.advances
    assert figure.axes[0].get_xlim() == (0.0, counts.evaluations)
    assert figure.axes[0].get_ylim() == (30.0, 0.0)
    figure.savefig(tmp_path / "picture.svg")
    assert "<svg" in (tmp_path / "picture.svg").read_text()


def test_a_chain_without_steps_has_no_picture() -> None:
    with pytest.raises(adjoint.ScheduleError, match=r"^steps: got 0"):
        dynloop.picture(adjoint.Binomial(3), 0)


def test_missing_matplotlib_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    before = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError("No module named 'matplotlib'")
        return before(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(dynloop.BackendError, match=r"install matplotlib, with pip install \"dynloop\[viz\]\""):
        dynloop.picture(adjoint.Binomial(3), 5)
