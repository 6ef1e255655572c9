"""A small kit of solvers for ordinary differential equations, written with dynloop's loops for JAX and PyTorch alike.

Read in this order: `methods` (one step), `control` (its length), `solve` (the loop around it, saving, events),
`problems` (four with published ends). `examples/work_precision.py` is its story.
"""

from .control import PI, PID, Control, I
from .methods import DormandPrince54, Rodas4, Rosenbrock, RungeKutta, Trial, Tsit5
from .problems import ARENSTORF, LORENZ, ROBERTSON, VAN_DER_POL, Problem
from .solve import Solution, Solver, Status, solve

__all__ = [
    "solve",
    "Solver",
    "Solution",
    "Status",
    # methods
    "DormandPrince54",
    "Rodas4",
    "Rosenbrock",
    "RungeKutta",
    "Trial",
    "Tsit5",
    # step size control
    "Control",
    "I",
    "PI",
    "PID",
    # problems
    "ARENSTORF",
    "LORENZ",
    "ROBERTSON",
    "VAN_DER_POL",
    "Problem",
]
