"""Sparse matrices from untrusted parts; a separate file, since scipy loads slowly."""

import numpy as np
import scipy.sparse
from jaxtyping import Int, Num

from gnnrp.datasets import _validate
from gnnrp.datasets._validate import require


def build(
    data: Num[np.ndarray, " nnz"],
    indices: Int[np.ndarray, " k"],
    indptr: Int[np.ndarray, " r"],
    shape: tuple[int, int],
    *,
    max_columns: int,
) -> scipy.sparse.csr_array:
    """Return a float32 matrix from its parts, after checking them."""
    require(shape[1] != 0, f"the sparse matrix of shape {shape} has no column")
    if not 0 < shape[1] <= max_columns:
        msg = f"the sparse matrix of shape {shape} has more than {max_columns} columns"
        raise ValueError(msg)
    indices, indptr = _signed(indices), _signed(indptr)
    check(data, indices, indptr, shape)
    parts = (_validate.features(data), indices, indptr)
    return scipy.sparse.csr_array(parts, shape=shape)


def _signed(values: Int[np.ndarray, " k"]) -> Int[np.ndarray, " k"]:
    """Return signed integers; an overflow becomes negative, and is refused."""
    return values.astype(np.int64) if values.dtype.kind == "u" else values


def check(
    data: Num[np.ndarray, " nnz"],
    indices: Int[np.ndarray, " k"],
    indptr: Int[np.ndarray, " r"],
    shape: tuple[int, int],
) -> None:
    """Refuse parts, of signed integers, with which scipy would read out of bounds."""
    num_rows, num_columns = shape
    fits = (
        indptr.size == num_rows + 1
        and indptr[0] == 0
        and indptr[-1] == indices.size == data.size
        # Both, since differences of very large numbers may wrap around.
        and ((indptr >= 0) & (indptr <= data.size)).all()
        and (np.diff(indptr) >= 0).all()
        and (indices >= 0).all()
        and (indices < num_columns).all()
    )
    if not fits:
        msg = f"the parts of the sparse matrix of shape {shape} do not fit together"
        raise ValueError(msg)
