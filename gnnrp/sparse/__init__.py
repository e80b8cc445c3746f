"""Sparse matrices for fast products with dense ones on CPU, GPU and TPU."""

from gnnrp.sparse.matrix import (
    BACKENDS,
    Matrix,
    as_stored,
    is_symmetric,
    iterate,
    matmul,
    on_support,
    prepare,
    rounded,
    stored,
    to_scipy,
)

__all__ = [
    "BACKENDS",
    "Matrix",
    "as_stored",
    "is_symmetric",
    "iterate",
    "matmul",
    "on_support",
    "prepare",
    "rounded",
    "stored",
    "to_scipy",
]
