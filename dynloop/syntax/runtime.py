"""What rewritten code calls, in one place: it reaches everything by the name of this module.

Every question is asked of the present value: a boolean, a number or an object of Python's goes on as
Python, and an array goes to the primitive, with what the statement carries.
"""

import builtins

from dynloop.syntax.arrays import is_compiling, is_staged
from dynloop.syntax.putting import item, put, replaced
from dynloop.syntax.running import Staged, entry, items, items_of, iterator, maybe
from dynloop.syntax.state import Unassigned, assigned, returned
from dynloop.syntax.truth import and_, chain, choice, goes_on, not_, or_

slice = builtins.slice
TypeError = builtins.TypeError

__all__ = [
    "Staged",
    "TypeError",
    "Unassigned",
    "and_",
    "assigned",
    "chain",
    "choice",
    "entry",
    "goes_on",
    "is_compiling",
    "is_staged",
    "item",
    "items",
    "items_of",
    "iterator",
    "maybe",
    "not_",
    "or_",
    "put",
    "replaced",
    "returned",
    "slice",
]
