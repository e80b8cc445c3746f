"""Residual propagation with ``fit`` and ``predict``, as in scikit-learn."""

from gnnrp.estimator._new_nodes import Predictions
from gnnrp.estimator._on_graph import OnGraph
from gnnrp.estimator.residual_propagation import NotFittedError, ResidualPropagation

__all__ = ["NotFittedError", "OnGraph", "Predictions", "ResidualPropagation"]
