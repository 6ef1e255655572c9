"""The rules of the house hold in this repository, and each of them can fail (tests/house.py)."""

import pytest

from tests import house
from tests.house import RULES, Rule, Tree, read_tree
from tests.user_process import ROOT, run_python

ARRAY_LIBRARIES = ("jax", "jaxlib", "torch", "numpy", "equinox", "optree")


@pytest.fixture(scope="module")
def tree() -> Tree:
    return read_tree(ROOT)


def test_every_layer_is_looked_at(tree: Tree) -> None:
    expected = {"adjoint/__init__.py", "dynloop/__init__.py", "dynloop/on_jax/internals.py", "tests/test_house.py"}
    assert expected <= set(tree)
    assert not [path for path in tree if ".venv" in path or "site-packages" in path]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_holds(rule: Rule, tree: Tree) -> None:
    assert rule(tree) == []


EXAMPLE = '"""One sentence.\n\n>>> 1 + 1\n2\n"""'
INIT = '"""Doc."""\nfrom dynloop.loops import f\n__all__ = ["f"]\n'

BROKEN: dict[str, tuple[Rule, Tree]] = {
    "400 lines": (house.long_files, {"tests/a.py": "x = 1\n" * 400}),
    "file named utils": (house.vague_names, {"dynloop/utils.py": ""}),
    "folder named common": (house.vague_names, {"dynloop/common/loops.py": ""}),
    "underscored file": (house.underscored_modules, {"adjoint/_binomial.py": ""}),
    "underscored folder": (house.underscored_modules, {"adjoint/_core/binomial.py": ""}),
    "star": (house.star_imports, {"adjoint/__init__.py": "from adjoint.binomial import *"}),
    "adjoint knows numpy": (house.wrong_arrows, {"adjoint/replay.py": "import numpy as np"}),
    "adjoint knows dynloop": (house.wrong_arrows, {"adjoint/replay.py": "from dynloop import loops"}),
    "dynloop knows a backend": (house.wrong_arrows, {"dynloop/loops.py": "from .on_jax import loop"}),
    "dynloop loads jax": (house.wrong_arrows, {"dynloop/loops.py": "import jax.numpy as jnp"}),
    "late look-up is early": (house.wrong_arrows, {"dynloop/backend.py": "from dynloop import on_jax"}),
    "jax knows torch": (house.wrong_arrows, {"dynloop/on_jax/loop.py": "from ..on_torch.eager import run"}),
    "torch knows jax": (house.wrong_arrows, {"dynloop/on_torch/eager.py": "import dynloop.on_jax.loop"}),
    "torch loads jax": (house.wrong_arrows, {"dynloop/on_torch/eager.py": "def f():\n    import jax"}),
    "import in a function": (house.inner_imports, {"dynloop/loops.py": "def f():\n    import math"}),
    "import in a method": (house.inner_imports, {"adjoint/x.py": "class A:\n    def f(self):\n        import math"}),
    "another late import": (house.inner_imports, {"dynloop/picture.py": "def f():\n    import math"}),
    "early picture": (house.wrong_arrows, {"dynloop/picture.py": "import matplotlib"}),
    "dynamic import": (house.inner_imports, {"dynloop/loops.py": "m = importlib.import_module('jax')"}),
    "no file docstring": (house.missing_file_docstrings, {"adjoint/binomial.py": "x = 1\n"}),
    "private module": (house.private_jax, {"dynloop/on_jax/loop.py": "from jax._src import core"}),
    "interpreters": (house.private_jax, {"dynloop/on_jax/loop.py": "from jax.interpreters import ad"}),
    "extend by name": (house.private_jax, {"dynloop/on_jax/loop.py": "from jax import extend"}),
    "spelled out": (house.private_jax, {"examples/a.py": "import jax\np = jax.extend.core.Primitive('p')"}),
    "example by the back door": (house.back_doors, {"examples/a.py": "from adjoint.online import Online"}),
    "no list of names": (house.unlisted_names, {"dynloop/__init__.py": '"""Doc."""\n'}),
    "name not listed": (house.unlisted_names, {"dynloop/__init__.py": INIT + "from dynloop.loops import g\n"}),
    "listed, not bound": (house.unlisted_names, {"dynloop/__init__.py": '__all__ = ["f"]\n'}),
    "no docstring": (
        house.undocumented_names,
        {"dynloop/__init__.py": INIT, "dynloop/loops.py": "def f(): ..."},
    ),
    "no example": (
        house.undocumented_names,
        {"dynloop/__init__.py": INIT, "dynloop/loops.py": 'def f():\n    """One sentence."""'},
    ),
    "value without docstring": (
        house.undocumented_names,
        {"dynloop/__init__.py": INIT, "dynloop/loops.py": "f = int | str\n"},
    ),
    "name from nowhere": (house.undocumented_names, {"dynloop/__init__.py": INIT}),
}


@pytest.mark.parametrize("case", BROKEN)
def test_rule_finds_the_broken_case(case: str) -> None:
    rule, tree = BROKEN[case]
    assert len(rule(tree)) == 1


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_has_a_broken_case(rule: Rule) -> None:
    assert rule in [broken for broken, _ in BROKEN.values()]


SOUND: dict[str, Tree] = {
    "late look-up": {"dynloop/backend.py": '"""Doc."""\ndef find():\n    from dynloop import on_jax\n'},
    "late picture": {"dynloop/picture.py": '"""Doc."""\ndef draw():\n    from matplotlib.figure import Figure\n'},
    "late demo": {"dynloop/demo.py": '"""Doc."""\ndef tell():\n    import jax\n    import jax.numpy as jnp\n'},
    "types only": {"dynloop/loops.py": '"""Doc."""\nif TYPE_CHECKING:\n    import jax\n'},
    "data table": {"tests/data/table.py": "x = 1\n" * 400},
    "internals": {"dynloop/on_jax/internals.py": '"""Doc."""\nfrom jax.extend import core\n'},
    "documented": {"dynloop/__init__.py": INIT, "dynloop/loops.py": f'"""Doc."""\ndef f():\n    {EXAMPLE}\n'},
    "passed on": {
        "dynloop/__init__.py": INIT,
        "dynloop/loops.py": '"""Doc."""\nfrom dynloop.bounded import g as f\n',
        "dynloop/bounded.py": f'"""Doc."""\ndef g():\n    {EXAMPLE}\n',
    },
    "value": {"dynloop/__init__.py": INIT, "dynloop/loops.py": '"""Doc."""\nf = int | str\n"""A number."""\n'},
}


@pytest.mark.parametrize("case", SOUND)
def test_rules_pass_the_sound_case(case: str) -> None:
    assert [violation for rule in RULES for violation in rule(SOUND[case])] == []


def loaded_by(code: str) -> set[str]:
    """The array libraries that a fresh process holds after running `code`."""
    return set(run_python("-c", f"import sys\n{code}\nprint(*set(sys.modules) & set({ARRAY_LIBRARIES}))").split())


@pytest.mark.parametrize("package", house.PACKAGES)
def test_import_loads_no_array_library(package: str) -> None:
    assert loaded_by(f"import {package}") == set()


def test_a_loaded_array_library_is_seen() -> None:
    assert "numpy" in loaded_by("import dynloop, numpy")
