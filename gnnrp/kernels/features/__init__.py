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
    dense_rows_bytes,
    diagonal,
    inverse_square_root,
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
    normalize_rows,
    validate,
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
    "dense_rows_bytes",
    "diagonal",
    "gamma_from_bandwidth",
    "gaussian",
    "inverse_square_root",
    "laplacian",
    "linear",
    "matrix",
    "matrix_bytes",
    "normalize_rows",
    "normalized_matrix",
    "polynomial",
    "rows",
    "sigmoid",
    "sparse_rows_bytes",
    "validate",
]
