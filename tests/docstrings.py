"""Docstrings that run: the examples of a package's public names.

`python -m tests.docstrings PACKAGE` prints, as JSON, for each name in `__all__` how many examples ran and what failed.
"""

import doctest
import importlib
import io
import json
import sys
from typing import Any


def run_examples(value: object, name: str, namespace: dict[str, Any]) -> tuple[int, str]:
    """Runs the examples in the docstrings of a value and its methods: how many ran, and the report of failures."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    report = io.StringIO()
    for test in finder.find(value, name, module=False, globs=namespace):
        runner.run(test, out=report.write)
    return runner.tries, report.getvalue()


if __name__ == "__main__":
    package = importlib.import_module(sys.argv[1])
    names = {n: getattr(package, n) for n in package.__all__} | {sys.argv[1]: package}
    print(json.dumps({n: run_examples(getattr(package, n), n, dict(names)) for n in package.__all__}))
