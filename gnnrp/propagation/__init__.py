"""Propagation of labels and residuals along a similarity.

``run`` takes the steps of residual propagation with a solver, and ``sweep.run`` does so
for several similarities; ``residual`` is the algorithm itself.
"""

from gnnrp.propagation import (
    coefficients,
    correct_and_smooth,
    label,
    linear_maps,
    losses,
    regression,
    residual,
    similarity,
    solvers,
    sweep,
)
from gnnrp.propagation.driver import run
from gnnrp.propagation.problem import MAX_STEPS, Steps
from gnnrp.propagation.selection import Selection
from gnnrp.propagation.solvers import exact, krylov
from gnnrp.propagation.solvers.choose import AUTO, Auto
from gnnrp.propagation.solvers.exact import Exact
from gnnrp.propagation.solvers.iterate import Iterate
from gnnrp.propagation.solvers.krylov import Krylov
from gnnrp.propagation.trajectory import Divergence, Report, Trajectory

__all__ = [
    "AUTO",
    "MAX_STEPS",
    "Auto",
    "Divergence",
    "Exact",
    "Iterate",
    "Krylov",
    "Report",
    "Selection",
    "Steps",
    "Trajectory",
    "coefficients",
    "correct_and_smooth",
    "exact",
    "krylov",
    "label",
    "linear_maps",
    "losses",
    "regression",
    "residual",
    "run",
    "similarity",
    "solvers",
    "sweep",
]
