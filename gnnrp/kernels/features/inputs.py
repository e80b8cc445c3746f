"""Features as kernels take them: checked, normalized, dense or sparse."""

from typing import Any, TypeAlias

import jax
import numpy as np
import scipy.sparse

from gnnrp.kernels.features.sparse_rows import DENSITY
from gnnrp.runtime import checks

FeaturesLike: TypeAlias = (
    np.ndarray | jax.Array | scipy.sparse.sparray | scipy.sparse.spmatrix
)


def row_normalized(features: FeaturesLike) -> np.ndarray | scipy.sparse.csr_array:
    """Return the features less their global minimum, each row over max(its sum, 1).

    It is what the published Planetoid and Coauthor numbers were made with. Sparse
    features whose minimum is zero stay sparse.

    Raises:
        ValueError: not a matrix, not finite, or with a row sum too large for its type.
        TypeError: not real numbers.
    """
    x = checked(features)
    has_zero = scipy.sparse.issparse(x) and x.nnz < np.prod(x.shape)
    if has_zero and x.data.min(initial=0) == 0:
        return scipy.sparse.csr_array(x / _row_sums(x))
    x = as_dense(x)
    x = x - x.min(initial=np.inf) if x.size else x
    return x / _row_sums(x)


def _row_sums(x: Any) -> np.ndarray:
    """Return max(sum, 1) of each row, as a column.

    Raises:
        ValueError: a sum that is too large for the features' type.
    """
    with np.errstate(over="ignore"):
        sums = x.sum(axis=1)
    if np.isinf(sums).any():
        row = int(np.argmax(np.isinf(sums)))
        msg = f"the sum of features row {row} exceeds {x.dtype}; scale them down"
        raise ValueError(msg)
    return np.maximum(sums[:, None], 1)


def as_dense(features: FeaturesLike) -> np.ndarray:
    """Return the features as a dense floating matrix on the host.

    Raises:
        ValueError: not a matrix, or not finite.
        TypeError: not real numbers.
    """
    x = checked(features)
    return x.toarray() if scipy.sparse.issparse(x) else x


def checked(features: FeaturesLike) -> Any:
    """Return the features as floats on the host, dense or CSR as they came.

    Whole numbers, booleans and half precision become float32.

    Raises:
        ValueError: not a matrix, without a column, or not finite.
        TypeError: not real numbers.
    """
    sparse = scipy.sparse.issparse(features)
    given: Any = features
    x: Any = given if sparse else checks.reals("features", given)
    if x.ndim != 2:
        msg = f"features must have shape (n, d), got {x.shape}"
        raise ValueError(msg)
    if x.shape[1] == 0:
        msg = f"features must have shape (n, d), d > 0, got {x.shape}"
        raise ValueError(msg)
    if sparse:
        x = scipy.sparse.csr_array(given)
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
    """Return checked features in a floating type, JAX's own for them if left out.

    Raises:
        ValueError: a feature that the type cannot hold.
    """
    dtype = jax.dtypes.canonicalize_dtype(x.dtype) if dtype is None else dtype
    checks.fits("features", x.data if scipy.sparse.issparse(x) else x, dtype)
    return x.astype(dtype, copy=False)


def is_thin(x: Any) -> bool:
    """Return whether few entries are nonzero."""
    sparse = scipy.sparse.issparse(x)
    entries = x.nnz if sparse else np.count_nonzero(x)
    return bool(entries < DENSITY * np.prod(x.shape))


def thin(x: Any) -> Any:
    """Return x as CSR where few entries are nonzero, else dense."""
    if is_thin(x):
        return scipy.sparse.csr_array(x)
    return x.toarray() if scipy.sparse.issparse(x) else x
