"""Checks of arrays that may be of a device or traced: by type and shape alone."""

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
"""Units of round-off by which mirror images may differ in a symmetric matrix."""

_ROWS = 1024  # of a block that is compared with its mirror image


def real(name: str, given: Any) -> Array:
    """Return an array of real numbers.

    Raises:
        TypeError: of complex numbers, or none.
    """
    if not isinstance(given, jax.Array):
        return jnp.asarray(checks.reals(name, given))
    if jnp.iscomplexobj(given) or jnp.issubdtype(given.dtype, jax.dtypes.extended):
        msg = f"{name} must hold real numbers, got {given.dtype}"
        raise TypeError(msg)
    return given


def floating(name: str, given: Any) -> Array:
    """Return an array of floats; whole numbers become JAX's default ones.

    Raises:
        TypeError: of complex numbers, or none.
    """
    array = real(name, given)
    is_float = jnp.issubdtype(array.dtype, jnp.floating)
    return array if is_float else array.astype(jnp.zeros(0).dtype)


def node_ids(name: str, given: Any, num_nodes: int) -> Array:
    """Return node ids as indices; all nodes of None.

    Raises:
        ValueError: no list of nodes from 0 to n - 1; traced ones are not looked at.
        TypeError: not real numbers.
    """
    if given is None:
        return jnp.arange(num_nodes)
    if not isinstance(given, Tracer):  # int32 would wrap what is far too large
        found = checks.reals(name, given)
        return jnp.asarray(checks.node_ids(name, found, num_nodes))
    checks.ids(name, given)
    return given if given.size else given.astype(jnp.int32)


def one_key(given: Any) -> None:
    """Refuse what is not a single key of JAX's random numbers.

    Raises:
        TypeError: it is not.
    """
    dtype = getattr(given, "dtype", None)
    new = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    single = getattr(given, "shape", None) in ([()] if new else [(2,), (4,)])
    if not single or not (new or dtype == jnp.uint32):
        got = checks.shown(given)
        msg = f"key must be one key, such as jax.random.key(0), got {got}"
        raise TypeError(msg)


def sparse_matrix(given: Any) -> None:
    """Refuse what is no sparse matrix.

    Raises:
        ValueError: a sparse array that is not a matrix.
        TypeError: not sparse.
    """
    if not (isinstance(given, BCOO) or scipy.sparse.issparse(given)):
        msg = (
            f"adjacency must be a BCOO or a scipy sparse matrix, got "
            f"{type(given).__name__}; scipy.sparse.csr_array(...) makes one"
        )
        raise TypeError(msg)
    blocks = isinstance(given, BCOO) and given.n_sparse != 2
    if blocks or given.ndim != 2:
        msg = f"adjacency must be a sparse matrix, got shape {given.shape}"
        raise ValueError(msg)


def entries(data: np.ndarray) -> np.ndarray:
    """Return entries of a sparse matrix in a type that SciPy adds without overflow.

    Booleans stay: SciPy combines them by "or".

    Raises:
        TypeError: complex numbers.
    """
    if np.issubdtype(data.dtype, np.complexfloating):
        msg = f"the entries must be real, got {data.dtype}"
        raise TypeError(msg)
    if jnp.issubdtype(data.dtype, jnp.floating):
        return data.astype(np.float32) if data.itemsize < 4 else data
    return data if data.dtype == bool else data.astype(np.float64)


def asymmetric_pair(matrix: Float[Any, "n n"], eps: float) -> tuple[int, int] | None:
    """Return a pair (i, j) with M_ij != M_ji beyond round-off; None if there is none.

    M_ij and M_ji may differ by 1,000 ε sqrt(r_i r_j), r_i the largest entry of row and
    column i: the limit depends on the two nodes alone, neither on n nor on M elsewhere.

    Args:
        matrix: M, compared on the host, a block of rows at a time; NaN differs.
        eps: ε.
    """
    M = np.asarray(matrix)
    starts = range(0, len(M), _ROWS)
    by_row = [np.abs(M[i : i + _ROWS]).max(axis=1) for i in starts]
    by_column = [np.abs(M[:, i : i + _ROWS]).max(axis=0) for i in starts]
    if not by_row:
        return None
    scale = np.maximum(np.concatenate(by_row), np.concatenate(by_column))
    root = np.sqrt(scale.astype(np.float64))
    for i in starts:
        block, mirrored = M[i : i + _ROWS], M[:, i : i + _ROWS].T
        with np.errstate(invalid="ignore"):  # infinite entries differ
            allowed = ROUND_OFF * eps * root[i : i + _ROWS, None] * root
            differs = ~(np.abs(block - mirrored) <= allowed)
        if differs.any():
            row, column = np.unravel_index(np.argmax(differs), differs.shape)
            return i + int(row), int(column)
    return None
