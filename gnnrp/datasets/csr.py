"""Sparse matrices from untrusted parts; a separate file, since scipy loads slowly."""

import numpy as np
import scipy.sparse
from jaxtyping import Num

from gnnrp.datasets import _validate
from gnnrp.datasets._validate import require


def build(
    data: Num[np.ndarray, "..."],
    indices: Num[np.ndarray, "..."],
    indptr: Num[np.ndarray, "..."],
    shape: tuple[int, int],
    *,
    max_columns: int,
) -> scipy.sparse.csr_array:
    """Return a float32 matrix from its parts, after checking them."""
    matrix, num_columns = f"the sparse matrix of shape {shape}", shape[1]
    require(num_columns != 0, f"{matrix} has no column")
    valid = 0 < num_columns <= max_columns
    require(valid, f"{matrix} has more than {max_columns} columns")
    # An overflow of unsigned integers becomes negative, and is refused.
    indices, indptr = (
        x.astype(np.int64) if x.dtype.kind == "u" else x for x in (indices, indptr)
    )
    check(data, indices, indptr, shape)
    parts = (_validate.features(data), indices, indptr)
    return scipy.sparse.csr_array(parts, shape=shape)


def check(
    data: Num[np.ndarray, "..."],
    indices: Num[np.ndarray, "..."],
    indptr: Num[np.ndarray, "..."],
    shape: tuple[int, int],
) -> None:
    """Refuse parts, of signed integers, with which scipy would read out of bounds."""
    num_rows, num_columns = shape
    fits = (
        data.ndim == indices.ndim == indptr.ndim == 1
        and indices.dtype.kind == indptr.dtype.kind == "i"
        and indptr.size == num_rows + 1
        and indptr[0] == 0
        and indptr[-1] == indices.size == data.size
        # Both, since differences of very large numbers may wrap around.
        and ((indptr >= 0) & (indptr <= data.size)).all()
        and (np.diff(indptr) >= 0).all()
        and (indices >= 0).all()
        and (indices < num_columns).all()
    )
    matrix = f"the sparse matrix of shape {shape}"
    require(fits, f"the parts of {matrix} do not fit together")
