"""`@dynloop.loop`: ordinary Python loops become compiled, differentiable loops.

Read in this order: `source` (from a function to its tree), `check` (what is refused), `assignment` (what surely has
a value), `program` and `jumps` (structure without jumps), `liveness` (what a loop carries), `expressions` and
`emit` (back to Python), `rewriting` (all of it, and the code); then what that code calls: `runtime`, `running`
(as Python as long as it goes), `state` and `merging` (one form for two values), `settling`, `staged_loops` and
`staged_branches` (over to the primitives).
"""

from dynloop.syntax.decorator import loop, source
from dynloop.syntax.session import options

__all__ = ["loop", "options", "source"]
