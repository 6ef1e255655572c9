"""Whether Dynamo is inside of a probe: code runs there for what Python learns from it, and leaves nothing behind.

There one run of a staged piece tells enough, and no loop or branch need be made of it; so what is nested is not traced
twice as often at every level. Dynamo keeps the answer itself, since no code that it follows could.
"""

from typing import Any

from dynloop.on_torch import internals


class Trying(internals.HigherOrderOperator):
    """Asks Dynamo."""

    def __init__(self) -> None:
        super().__init__("dynloop_is_trying")

    def __call__(self) -> bool:
        raise AssertionError("Dynamo answers this call")


is_trying = Trying()


class TryingVariable(internals.TorchHigherOrderOperatorVariable):
    """The answer: whether a probe that is going on has been noted on Dynamo's output."""

    _HOP_NAME = "dynloop_is_trying"
    _ALLOW_FALLBACK_TO_EAGER = False

    def _call_function(self, tx: Any, args: Any, kwargs: Any) -> Any:
        return internals.ConstantVariable.create(probes(tx.output) > 0)


_PROBES = "dynloop_probes"


def probes(output: Any) -> int:
    """How many probes are going on, one inside of another."""
    return vars(output).get(_PROBES, 0)


def note(output: Any, number: int) -> None:
    vars(output)[_PROBES] = number


internals._hop_name_to_variable_class["dynloop_is_trying"] = TryingVariable
