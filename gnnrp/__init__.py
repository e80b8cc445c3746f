"""Residual propagation and the training dynamics of graph neural networks.

``ResidualPropagation`` is RP with fit and predict. Everything else is imported by its
module:

- ``gnnrp.datasets``: real and synthetic graphs, ``load(name)``.
- ``gnnrp.graph``, ``gnnrp.sparse``: edges to normalized adjacency; its fast product.
- ``gnnrp.propagation``: ``similarity``, ``residual``, ``exact``, ``label``, ``losses``.
- ``gnnrp.kernels``: alignment, homophily, kernels of features, GNTKs, empirical NTKs.
- ``gnnrp.models``: graph neural networks and their training.
- ``gnnrp.studies``: dataset to record, with published settings (``rp``, ``presets``).
- ``gnnrp.estimator``: ``ResidualPropagation``, and ``OnGraph`` for model selection.
- ``gnnrp.metrics``, ``gnnrp.plotting``: scores on device; figures from records.
"""

__all__ = ["ResidualPropagation"]
__version__ = "0.1.0"

# No imports here, not even of the standard library: a command handles Ctrl-C only
# after this module is loaded.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from gnnrp.estimator import ResidualPropagation
else:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> object:
        # The estimator imports JAX, so it is loaded on first use.
        if name in __all__:
            import importlib

            return getattr(importlib.import_module("gnnrp.estimator"), name)
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
