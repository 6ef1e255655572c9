"""What a loop inside torch.compile cannot do is an error, and never left out."""

from typing import Any

import pytest
import torch

import dynloop
from tests.on_torch.compiled import compiled, start


@pytest.mark.parametrize("options", [{"observe": dynloop.watch_nan()}, {"sync": "any"}], ids=["observe", "sync"])
def test_what_only_python_can_do_is_refused(options: dict[str, Any]) -> None:
    f = compiled(lambda x: dynloop.while_loop(lambda c: c.sum() < 9, lambda c: c.exp(), x, **options))
    (name,) = options
    with pytest.raises(Exception, match=f"while_loop: {name}=.* is not supported inside torch.compile"):
        f(start(2))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            lambda c: c.to(torch.float32),
            r"float64\[2\] before a step and float32\[2\] after it: its dtype must not change",
        ),
        (
            lambda c: torch.cat([c, c]),
            r"float64\[2\] before a step and float64\[4\] after it: its shape must not change",
        ),
        (lambda c: (c, c), r"init: \*\\n  body returned: \(\*, \*\)"),
    ],
    ids=["dtype", "shape", "structure"],
)
def test_what_a_body_makes_of_its_carry_is_told_in_our_words(body: Any, words: str) -> None:
    f = compiled(lambda x: dynloop.while_loop(lambda c: c.sum() < 9, body, x))
    with pytest.raises(Exception, match=words):
        f(start(2))
