"""What is private in torch and the compiled loops need, still there."""

import sys
from importlib import util

import pytest

from dynloop.errors import BackendError
from dynloop.on_torch import internals


@pytest.mark.parametrize("name", internals.__all__)
def test_it_is_where_it_was(name: str) -> None:
    assert getattr(internals, name, None) is not None


def test_what_has_moved_is_an_error_that_names_the_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._higher_order_ops.while_loop", None)
    spec = util.find_spec("dynloop.on_torch.internals")
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(BackendError, match=r"known to work with torch 2\.13"):
        spec.loader.exec_module(util.module_from_spec(spec))
