"""Validation and normalization of features, dense or sparse."""

from typing import Any, TypeAlias

import jax
import numpy as np
import scipy.sparse
from jaxtyping import Int

from gnnrp.kernels.features.sparse_rows import DENSITY
from gnnrp.runtime import checks

FeaturesLike: TypeAlias = (
    np.ndarray | jax.Array | scipy.sparse.sparray | scipy.sparse.spmatrix
)


def normalize_rows(
    features: FeaturesLike, *, reference: Int[np.ndarray, " m"] | None = None
) -> np.ndarray | scipy.sparse.csr_array:
    """Return the features less their global minimum, each row over max(its sum, 1).

    The normalization of the published Planetoid and Coauthor numbers. Sparse features
    whose minimum is zero stay sparse.

    Args:
        features: dense or scipy sparse.
        reference: rows whose minimum is subtracted; all by default.

    Raises:
        ValueError: a row sum too large for its type, or as ``validate``.
    """
    x = validate(features)
    known = x if reference is None else x[reference]
    has_zero = scipy.sparse.issparse(x) and known.nnz < np.prod(known.shape)
    keep_sparse = has_zero and known.data.min(initial=0) == 0
    if not keep_sparse:
        x, known = as_dense(x), as_dense(known)
        x = x - known.min(initial=np.inf) if x.size else x
    with np.errstate(over="ignore"):
        sums = x.sum(axis=1)
    if np.isinf(sums).any():
        row = int(np.argmax(np.isinf(sums)))
        msg = f"the sum of features row {row} exceeds {x.dtype}; scale them down"
        raise ValueError(msg)
    x = x / np.maximum(sums[:, None], 1)
    return scipy.sparse.csr_array(x) if keep_sparse else x


def as_dense(features: FeaturesLike) -> np.ndarray:
    """Return the features as a dense floating matrix on the host."""
    x = validate(features)
    return x.toarray() if scipy.sparse.issparse(x) else x


def validate(features: FeaturesLike) -> Any:
    """Return the features as floats on the host, dense, or CSR if they are sparse.

    Integers, booleans and half precision become float32.

    Raises:
        ValueError: not a matrix, without a column, or not finite.
    """
    sparse = scipy.sparse.issparse(features)
    x: Any = features if sparse else checks.reals("features", features)
    if x.ndim != 2 or x.shape[1] == 0:
        positive = ", d > 0" if x.ndim == 2 else ""
        msg = f"features must have shape (n, d){positive}, got {x.shape}"
        raise ValueError(msg)
    if sparse:
        x = scipy.sparse.csr_array(x)
        checks.reals("features", x.data)
    if x.dtype.kind != "f" or x.dtype.itemsize < 4:
        x = x.astype(np.float32)
    finite = np.isfinite(x.data if sparse else x)
    if not finite.all():
        place = np.argwhere(~finite)[0, 0]
        row = np.searchsorted(x.indptr, place, side="right") - 1 if sparse else place
        msg = f"features must be finite, and row {row} is not"
        raise ValueError(msg)
    return x


def as_float(x: Any, dtype: Any = None) -> Any:
    """Return validated features in a floating type that holds them, or JAX's."""
    dtype = jax.dtypes.canonicalize_dtype(x.dtype) if dtype is None else dtype
    checks.representable("features", x.data if scipy.sparse.issparse(x) else x, dtype)
    return x.astype(dtype, copy=False)


def is_compressible(x: Any) -> bool:
    """Check whether few entries are nonzero."""
    num_entries = x.nnz if scipy.sparse.issparse(x) else np.count_nonzero(x)
    return bool(num_entries < DENSITY * np.prod(x.shape))


def compress(x: Any) -> Any:
    """Return x as CSR where few entries are nonzero, else dense."""
    if is_compressible(x):
        return scipy.sparse.csr_array(x)
    return x.toarray() if scipy.sparse.issparse(x) else x
