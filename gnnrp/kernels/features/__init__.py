"""Kernels of node features: in row blocks, of low rank, or of sparse rows."""

from gnnrp.kernels.features._functions import (
    KERNELS,
    GramFn,
    gamma_from_bandwidth,
    gaussian,
    laplacian,
    linear,
    polynomial,
    sigmoid,
)
from gnnrp.kernels.features.blocks import (
    FeatureKernel,
    build,
    check_memory,
    checked_scale,
    dense_rows_bytes,
    diagonal,
    matrix,
    matrix_bytes,
    normalized_matrix,
    rows,
    sparse_rows_bytes,
)
from gnnrp.kernels.features.inputs import (
    FeaturesLike,
    as_dense,
    as_float,
    checked,
    row_normalized,
)

__all__ = [
    "KERNELS",
    "FeatureKernel",
    "FeaturesLike",
    "GramFn",
    "as_dense",
    "as_float",
    "build",
    "check_memory",
    "checked",
    "checked_scale",
    "dense_rows_bytes",
    "diagonal",
    "gamma_from_bandwidth",
    "gaussian",
    "laplacian",
    "linear",
    "matrix",
    "matrix_bytes",
    "normalized_matrix",
    "polynomial",
    "row_normalized",
    "rows",
    "sigmoid",
    "sparse_rows_bytes",
]
