"""Residual propagation and the training dynamics of graph neural networks.

``ResidualPropagation`` is RP with fit and predict. Else the modules are the namespace;
import the one you need:

- ``gnnrp.datasets``: real and synthetic graphs, ``load(name)``.
- ``gnnrp.graph``, ``gnnrp.spmm``: edges to normalized adjacency; its fast product.
- ``gnnrp.propagation``: ``similarity``, ``residual``, ``exact``, ``label``, ``losses``.
- ``gnnrp.kernels.features``: kernels of node features.
- ``gnnrp.pipeline``, ``gnnrp.presets``: dataset to record, with published settings.
- ``gnnrp.estimator``: ``ResidualPropagation``, and ``OnGraph`` for model selection.
- ``gnnrp.metrics``, ``gnnrp.plotting``: scores on device; figures from records.
"""

import importlib
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # JAX is only imported by who asks for the estimator.
    if name == "ResidualPropagation":
        return importlib.import_module("gnnrp.estimator").ResidualPropagation
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
