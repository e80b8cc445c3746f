"""Graph neural tangent kernels (GNTKs) of infinitely wide networks."""

from gnnrp.kernels.gntk.recursion import (
    BIASES,
    Kernels,
    add,
    check_bias,
    check_squares,
    checked_activation,
    checked_layers,
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
    "add",
    "check_bias",
    "check_squares",
    "checked_activation",
    "checked_layers",
    "concatenate",
    "decoupled",
    "dense",
    "gcn",
    "gram",
    "initialize",
    "propagate",
    "transform",
]
