"""Residual propagation and the training dynamics of graph neural networks.

The modules are the namespace; import the one you need:

- ``gnnrp.datasets``: real and synthetic graphs, ``load(name)``.
- ``gnnrp.graph``, ``gnnrp.spmm``: edges to normalized adjacency; its fast product.
- ``gnnrp.propagation``: ``similarity``, ``residual``, ``exact``, ``label``, ``losses``.
- ``gnnrp.kernels.features``: kernels of node features.
- ``gnnrp.pipeline``, ``gnnrp.presets``: dataset to record, with published settings.
- ``gnnrp.metrics``, ``gnnrp.plotting``: scores on device; figures from records.
"""

__version__ = "0.1.0"
