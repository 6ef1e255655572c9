"""Claims about the user's functions: each failure names its step, and the end of a chain is none."""

from typing import Any

import pytest

from adjoint import ScheduleError, Span, StepError
from adjoint.chain import Chain, Over


def failing(i: int, state: Any) -> Any:
    if i == 3:
        raise ValueError("wrong")
    if i == 5:
        raise StopIteration
    return state + 1


def test_a_stretch_of_steps_is_run_one_by_one() -> None:
    assert Chain(failing).run(0, 3, 10) == 13
    with pytest.raises(StepError, match="advance failed at step 3: ValueError: wrong"):
        Chain(failing).run(1, 5, 10)


def test_the_end_of_a_chain_is_no_failure() -> None:
    assert Chain(failing).step(5, 10) is Over
    assert Chain(Span(lambda start, stop, state: failing(start, state))).step(5, 10) is Over
    with pytest.raises(StepError, match="at step 3"):
        Chain(failing).step(3, 10)
    with pytest.raises(StepError, match="StopIteration"):
        Chain(failing).run(4, 6, 10)


@pytest.mark.parametrize("name", ["advance", "turn", "until"])
def test_what_cannot_be_called_is_refused_by_name(name: str) -> None:
    functions: dict[str, Any] = {"advance": failing, name: 3}
    with pytest.raises(ScheduleError, match=f"^{name}: got 3"):
        Chain(**functions)
