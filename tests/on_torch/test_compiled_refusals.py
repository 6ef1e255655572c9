"""What a loop inside torch.compile cannot do is an error, and never left out."""

from typing import Any

import pytest

import dynloop
from tests.on_torch.compiled import compiled, start


@pytest.mark.parametrize("options", [{"observe": dynloop.watch_nan()}, {"sync": "any"}], ids=["observe", "sync"])
def test_what_only_python_can_do_is_refused(options: dict[str, Any]) -> None:
    f = compiled(lambda x: dynloop.while_loop(lambda c: c.sum() < 9, lambda c: c.exp(), x, **options))
    (name,) = options
    with pytest.raises(Exception, match=f"while_loop: {name}=.* is not supported inside torch.compile"):
        f(start(2))
