"""dynloop on PyTorch: Python loops whose steps are kept and run again by the schedules of `adjoint`.

Read in this order: `structure` (a loop as a value), `functions` and `entry` (how one is made of a call), `eager` (how
it runs); for first derivatives `captured`, `searching`, `surroundings`, `schedules` and `node`; for the
transformations of `torch.func` and derivatives of derivatives `program`, `joint`, `lanes`, `reversal`, `whole`,
`substitution` and `transformed`. Conditionals are `branching`. `reporting` tells
`dynloop.explain` what loops do; `staging` is what `@dynloop.loop` asks for beside them.
"""

from dynloop.on_torch import staging
from dynloop.on_torch.branching import cond
from dynloop.on_torch.entry import fori_loop, scan, while_loop
from dynloop.on_torch.reporting import explain

__all__ = ["cond", "explain", "fori_loop", "scan", "staging", "while_loop"]
