"""Sparse matrices for fast products with dense ones on CPU, GPU and TPU."""

from gnnrp.sparse.matrix import (
    BACKENDS,
    Matrix,
    from_csr,
    is_symmetric,
    matmul,
    pad_to_power_of_two,
    prepare,
    propagate,
    select_columns,
    to_csr,
    to_scipy,
)

__all__ = [
    "BACKENDS",
    "Matrix",
    "from_csr",
    "is_symmetric",
    "matmul",
    "pad_to_power_of_two",
    "prepare",
    "propagate",
    "select_columns",
    "to_csr",
    "to_scipy",
]
