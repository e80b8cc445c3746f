"""Kernels of node features: in row blocks, of low rank, or of sparse rows."""

from gnnrp.kernels.features.blocks import (
    KERNELS,
    FeatureKernel,
    GramFn,
    build,
    check_memory,
    dense_rows_bytes,
    diagonal,
    gamma_from_bandwidth,
    gaussian,
    laplacian,
    linear,
    matrix,
    matrix_bytes,
    normalized_matrix,
    polynomial,
    rows,
    sigmoid,
    sparse_rows_bytes,
)
from gnnrp.kernels.features.hops import HopSettings, hop_bytes, hop_features
from gnnrp.kernels.features.inputs import as_dense, as_float, normalize_rows, validate

__all__ = [
    "KERNELS",
    "FeatureKernel",
    "GramFn",
    "HopSettings",
    "as_dense",
    "as_float",
    "build",
    "check_memory",
    "dense_rows_bytes",
    "diagonal",
    "gamma_from_bandwidth",
    "gaussian",
from gnnrp.kernels.features.hops import HopSettings, hop_bytes, hop_features
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
