"""Graph neural tangent kernels (GNTKs) of infinitely wide networks."""

from gnnrp.kernels.gntk.network import BIASES, Network
from gnnrp.kernels.gntk.recursion import (
    Kernels,
    add,
    concatenate,
    decoupled,
    dense,
    gcn,
    gram,
    initialize,
    propagate,
    transform,
)

__all__ = [
    "BIASES",
    "Kernels",
    "Network",
    "add",
    "concatenate",
    "decoupled",
    "dense",
    "gcn",
    "gram",
    "initialize",
    "propagate",
    "transform",
]
