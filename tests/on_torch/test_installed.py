"""A claim about the environment: a run of the whole suite has PyTorch, so that its tests are not left out unseen."""

from importlib.util import find_spec


def test_pytorch_and_optree_are_installed():
    assert find_spec("torch")
    assert find_spec("optree")
