"""Solvers of RP as values: ``Iterate()``, ``Exact()``, ``Krylov()``, and ``AUTO``."""

from gnnrp.propagation.solvers.base import Cost, Evaluation, Solution, Solver, name_of
from gnnrp.propagation.solvers.choose import AUTO, NAMES, Auto, by_name
from gnnrp.propagation.solvers.exact import Exact
from gnnrp.propagation.solvers.iterate import Iterate
from gnnrp.propagation.solvers.krylov import Krylov

__all__ = [
    "AUTO",
    "NAMES",
    "Auto",
    "Cost",
    "Evaluation",
    "Exact",
    "Iterate",
    "Krylov",
    "Solution",
    "Solver",
    "by_name",
    "name_of",
]
