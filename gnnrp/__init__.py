"""Residual propagation and the training dynamics of graph neural networks.

``ResidualPropagation`` is RP with fit and predict. Else the modules are the namespace;
import the one you need:

- ``gnnrp.datasets``: real and synthetic graphs, ``load(name)``.
- ``gnnrp.graph``, ``gnnrp.sparse``: edges to normalized adjacency; its fast product.
- ``gnnrp.propagation``: ``similarity``, ``residual``, ``exact``, ``label``, ``losses``.
- ``gnnrp.kernels.features``: kernels of node features.
- ``gnnrp.studies``: dataset to record, with published settings (``rp``, ``presets``).
- ``gnnrp.estimator``: ``ResidualPropagation``, and ``OnGraph`` for model selection.
- ``gnnrp.metrics``, ``gnnrp.plotting``: scores on device; figures from records.
"""

__all__ = ["ResidualPropagation"]
__version__ = "0.1.0"

# Of the standard library nothing is imported here: a command handles Ctrl-C only after
# this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from gnnrp.estimator import ResidualPropagation
else:  # unseen by type checkers, which would take any name for one of ours

    def __getattr__(name: str) -> object:
        # JAX is only imported by who asks for the estimator.
        if name in __all__:
            import importlib

            return getattr(importlib.import_module("gnnrp.estimator"), name)
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
