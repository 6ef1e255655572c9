"""Claims about `adjoint.lookahead`: the same actions, heard of in time and never more than a window of them."""

from adjoint import Binomial, StoreAll
from adjoint.lookahead import AHEAD, lookahead


def test_actions_are_the_same_and_are_heard_of_once_in_order() -> None:
    actions = list(Binomial(3).actions(200))
    heard: list[object] = []
    assert list(lookahead(actions, heard.append)) == actions
    assert heard == actions
    assert list(lookahead(actions, None)) == actions


def test_an_action_is_heard_of_a_window_ahead() -> None:
    heard: list[object] = []
    coming = lookahead(StoreAll().actions(10**9), heard.append)
    for done in range(1, 1000):
        next(coming)
        assert AHEAD <= len(heard) < AHEAD + done
