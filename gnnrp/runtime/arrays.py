"""Checks of arrays on a device or traced, by type and shape only."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.core import Tracer
from jax.experimental.sparse import BCOO
from jaxtyping import Array, Float

from gnnrp.runtime import checks

ROUND_OFF = 1e3
"""Units of round-off by which M_ij and M_ji of a symmetric matrix may differ."""

_ROWS = 1024  # of a block that is compared with its transpose


def real(name: str, values: Any) -> Array:
    """Return an array of real numbers."""
    if not isinstance(values, jax.Array):
        return jnp.asarray(checks.reals(name, values))
    if jnp.iscomplexobj(values) or jnp.issubdtype(values.dtype, jax.dtypes.extended):
        msg = f"{name} must hold real numbers, got {values.dtype}"
        raise TypeError(msg)
    return values


def floating(name: str, values: Any) -> Array:
    """Return an array of floats; whole numbers become JAX's default ones."""
    array = real(name, values)
    is_float = jnp.issubdtype(array.dtype, jnp.floating)
    return array if is_float else array.astype(jnp.zeros(0).dtype)


def node_ids(name: str, nodes: Any, num_nodes: int) -> Array:
    """Return node ids as indices; None selects all nodes."""
    if nodes is None:
        return jnp.arange(num_nodes)
    if not isinstance(nodes, Tracer):  # int32 would wrap ids that are far too large
        ids = checks.reals(name, nodes)
        return jnp.asarray(checks.node_ids(name, ids, num_nodes))
    checks.ids(name, nodes)
    return nodes if nodes.size else nodes.astype(jnp.int32)


def one_key(key: Any) -> None:
    """Refuse an argument that is not a single key of JAX's random numbers."""
    dtype = getattr(key, "dtype", None)
    new = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    single = getattr(key, "shape", None) in ([()] if new else [(2,), (4,)])
    if not single or not (new or dtype == jnp.uint32):
        got = checks.format_value(key)
        msg = f"key must be one key, such as jax.random.key(0), got {got}"
        raise TypeError(msg)


def sparse_matrix(adjacency: Any) -> None:
    """Refuse an adjacency that is not a sparse matrix."""
    if not (isinstance(adjacency, BCOO) or scipy.sparse.issparse(adjacency)):
        msg = (
            f"adjacency must be a BCOO or a scipy sparse matrix, got "
            f"{type(adjacency).__name__}; scipy.sparse.csr_array(...) makes one"
        )
        raise TypeError(msg)
    blocks = isinstance(adjacency, BCOO) and adjacency.n_sparse != 2
    if blocks or adjacency.ndim != 2:
        msg = f"adjacency must be a sparse matrix, got shape {adjacency.shape}"
        raise ValueError(msg)


def entries(data: np.ndarray) -> np.ndarray:
    """Return entries of a sparse matrix in a type that SciPy sums without overflow."""
    if np.issubdtype(data.dtype, np.complexfloating):
        msg = f"the entries must be real, got {data.dtype}"
        raise TypeError(msg)
    if jnp.issubdtype(data.dtype, jnp.floating):
        return data.astype(np.float32) if data.itemsize < 4 else data
    # Booleans stay: SciPy combines them by "or".
    return data if data.dtype == bool else data.astype(np.float64)


def asymmetric_pair(matrix: Float[Any, "n n"], eps: float) -> tuple[int, int] | None:
    """Return a pair (i, j) with M_ij != M_ji beyond round-off, or None.

    M_ij and M_ji may differ by 1,000 ε sqrt(r_i r_j), r_i the largest entry of row and
    column i: the limit depends on the two nodes only, neither on n nor on M elsewhere.
    """
    M = np.asarray(matrix)
    if not len(M):
        return None
    by_row, by_column = (np.maximum(M.max(i), -M.min(i)) for i in (1, 0))
    root = np.sqrt(np.maximum(by_row, by_column).astype(np.float64))
    for i in range(0, len(M), _ROWS):
        block, mirrored = M[i : i + _ROWS], M[:, i : i + _ROWS].T
        with np.errstate(invalid="ignore"):  # infinite entries differ
            allowed = ROUND_OFF * eps * root[i : i + _ROWS, None] * root
            differs = ~(np.abs(block - mirrored) <= allowed)
        if differs.any():
            row, column = np.unravel_index(np.argmax(differs), differs.shape)
            return i + int(row), int(column)
    return None
