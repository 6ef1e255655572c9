"""The schedule's arithmetic on tensors, equal to that of `adjoint` on integers."""

import pytest
import torch

import adjoint
from dynloop.checkpoints import Layout
from dynloop.on_torch.placement import NEVER, Binomials, stack_of


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 8])
def test_the_first_offset_is_that_of_adjoint(slots: int) -> None:
    binomials = Binomials(slots, Binomials.table_of(slots, torch.device("cpu")))
    for m in range(1, slots + 1):
        for length in range(2, 24 if m == 1 else 60):
            t = adjoint.repetition(length, m)
            given = [torch.tensor(x) for x in (length, m, t)]
            assert binomials.level(*given[:2]) == t
            assert binomials.first_offset(*given) == adjoint.first_offset(length, m, t), (length, m)


@pytest.mark.parametrize("slots", [1, 2, 3, 5])
def test_the_plan_is_that_of_adjoint(slots: int) -> None:
    layout = Layout(slots, 0)
    binomials = Binomials(slots, Binomials.table_of(slots, torch.device("cpu")))
    for steps in (1, 2, 3, 7, 19, 20):
        held = adjoint.store_table(slots, 64).held(steps)
        stored = torch.full((slots + 1,), NEVER)
        for state, slot in held:
            stored[slot] = state
        plan = adjoint.plan([state for state, _ in held], steps, slots)
        stack = stack_of(layout, binomials, stored, torch.tensor(steps))
        assert tuple(stack.states[: int(stack.top) + 1].tolist()) == plan.kept
        assert int(stack.states[int(stack.source)]) == plan.sweep_from
