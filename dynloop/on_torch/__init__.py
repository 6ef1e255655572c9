"""dynloop on PyTorch: Python loops whose steps are kept and run again by the schedules of `adjoint`.

Read in this order: `structure` (a loop as a value), `functions` and `entry` (how one is made of a call), `eager` (how
it runs); for first derivatives `captured`, `searching`, `surroundings`, `schedules` and `node`; for the
transformations of `torch.func` and derivatives of derivatives `program`, `joint`, `lanes`, `reversal`, `whole`,
`substitution` and `transformed`. Conditionals are `branching`.
"""

from dynloop.on_torch.branching import cond
from dynloop.on_torch.entry import fori_loop, scan, while_loop

__all__ = ["cond", "fori_loop", "scan", "while_loop"]
