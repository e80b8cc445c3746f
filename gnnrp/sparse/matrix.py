"""Sparse matrix times dense matrix: one pytree, one function, a back end per platform.

JAX's BCOO product is about ten times slower on CPU than its CSR product, which has no
transpose, no batching rule and only a slow derivative. ``matmul`` has its own rules.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.experimental.sparse import BCOO
from jaxtyping import Array, Bool, Float, Int

from gnnrp.runtime import arrays, checks
from gnnrp.sparse import ordering
from gnnrp.sparse.primitive import KERNELS, Pattern, as_pattern, product, product_dtype

BACKENDS = tuple(KERNELS)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Matrix:
    """A sparse matrix that enters ``jit`` as an argument; made by ``prepare``.

    ``matmul`` and ``propagate`` use the caller's order of the nodes.
    """

    data: Float[Array, " e"]
    pattern: Pattern
    transposed: Pattern  # of A^T; equal to ``pattern`` if A is symmetric
    order: Int[Array, "2 n"] | None  # the node at each row, and the row of each node
    shape: tuple[int, int] = dataclasses.field(metadata={"static": True})
    backend: str = dataclasses.field(metadata={"static": True})

    def __call__(self, v: jax.Array) -> jax.Array:
        """Return A V, so that a matrix is a linear map."""
        return matmul(self, v)


def prepare(
    adjacency: BCOO | scipy.sparse.sparray | scipy.sparse.spmatrix,
    *,
    backend: str = "auto",
    reorder: bool | None = None,
) -> Matrix:
    """Prepare a sparse matrix for ``matmul``, once, on the host.

    Args:
        adjacency: A, from ``graph.normalized_adjacency`` or any scipy sparse matrix;
            equal indices are summed.
        backend: "bcsr" (JAX's CPU kernel), "bcoo" (cuSPARSE on NVIDIA GPUs, if JAX's
            flag jax_bcoo_cusparse_lowering is set) or "segment_sum"; "auto" chooses by
            platform and flag. All are deterministic on CPU; on GPUs, "segment_sum" is
            if XLA_FLAGS holds --xla_gpu_deterministic_ops=true.
        reorder: store the nodes in an order with neighbors closer together, which needs
            a symmetric pattern. By default, from 2^15 nodes on if it helps.

    Raises:
        ValueError: unknown back end, more rows or entries than int32 can index, entries
            that are not finite or too large for float32, or ``reorder`` for a pattern
            that is not symmetric.
        TypeError: not sparse, or complex.
    """
    checks.one_of("backend", backend, ("auto", *BACKENDS))
    backend = _default_backend() if backend == "auto" else backend
    arrays.sparse_matrix(adjacency)
    given: Any = adjacency  # scipy.sparse has no types
    num_entries = given.nse if isinstance(adjacency, BCOO) else given.nnz
    checks.int32_indexable(max(given.shape), num_entries)
    csr = to_scipy(adjacency)
    half = given.dtype.itemsize < 4 and jnp.issubdtype(given.dtype, jnp.floating)
    if half:  # SciPy has no half precision: round in single
        with np.errstate(over="ignore"):
            csr.data = csr.data.astype(given.dtype).astype(np.float32)
    if not np.isfinite(csr.data).all():
        row = np.searchsorted(csr.indptr, np.argmin(np.isfinite(csr.data)), "right") - 1
        msg = f"the entries must be finite, and row {row} has one that is not"
        raise ValueError(msg)
    dtype = jax.dtypes.canonicalize_dtype(csr.dtype)
    checks.representable("the entries", csr.data, dtype)
    order = None
    if _same_pattern(csr, csr.tocsc()):
        order = ordering.locality_order(csr, reorder, backend)
    elif reorder:
        msg = "reorder=True needs a symmetric pattern, and this matrix has none"
        raise ValueError(msg)
    if order is not None:
        csr = scipy.sparse.csr_array(csr[order[0]][:, order[0]])
        csr.sort_indices()
        order = jnp.asarray(order, dtype=jnp.int32)
    matrix = _from_sorted(csr, order, backend)
    if half:
        matrix = dataclasses.replace(matrix, data=matrix.data.astype(given.dtype))
    return matrix


def _from_sorted(
    csr: scipy.sparse.csr_array, order: Array | None, backend: str
) -> Matrix:
    """Return the matrix of sorted entries that are in this order already."""
    places = np.arange(csr.nnz, dtype=np.int32)
    indexed = scipy.sparse.csr_array((places, csr.indices, csr.indptr), csr.shape)
    csc: Any = indexed.tocsc()
    csc.sort_indices()
    pattern = transposed = as_pattern(csr.indptr, csr.indices, None, backend)
    if not (_same_pattern(csr, csc) and np.array_equal(csr.data, csr.data[csc.data])):
        transposed = as_pattern(csc.indptr, csc.indices, csc.data, backend)
    shape = cast(tuple[int, int], csr.shape)
    return Matrix(jnp.asarray(csr.data), pattern, transposed, order, shape, backend)


def _default_backend() -> str:
    platform = jax.default_backend()
    if platform == "cpu":
        return "bcsr"
    flag = getattr(jax.config, "jax_bcoo_cusparse_lowering", False)
    return "bcoo" if platform == "gpu" and flag else "segment_sum"


def from_csr(csr: scipy.sparse.csr_array) -> Matrix:
    """Return a matrix of sorted entries as stored, equal indices included."""
    backend = _default_backend()  # BCOO needs unique indices
    return _from_sorted(csr, None, "segment_sum" if backend == "bcoo" else backend)


def pad_to_power_of_two(csr: scipy.sparse.csr_array, shape: tuple[int, int]) -> Matrix:
    """Add zeros, so that matrices of one shape share few traces; forward product only.

    ``csr`` is sorted, without equal indices.
    """
    backend = _default_backend()
    pointers = np.pad(csr.indptr, (0, shape[0] - csr.shape[0]), mode="edge")
    padded = scipy.sparse.csr_array((csr.data, csr.indices, pointers), shape)
    if backend != "bcoo":
        padded = _add_zeros(padded, 1 << max(0, csr.nnz - 1).bit_length(), shape[1] - 1)
    return _from_sorted(padded, None, backend)


def select_columns(matrix: Matrix, support: Bool[np.ndarray, " n"]) -> Matrix:
    """Return A without the columns outside a mask, in A's order of nodes.

    A few zeros are stored, so that supports of similar size share one trace.
    """
    checks.instance("matrix", matrix, Matrix, "sparse.prepare makes one")
    support = checks.mask("the support", support, matrix.shape[1])
    if matrix.order is not None:
        support = support[np.asarray(matrix.order[0])]
    csr = to_csr(matrix)
    inside = support[csr.indices]
    pointers = np.concatenate([[0], np.cumsum(inside)])[csr.indptr]
    data, columns = csr.data[inside], csr.indices[inside]
    csr = scipy.sparse.csr_array((data, columns, pointers), matrix.shape)
    if matrix.backend != "bcoo" and not support.all():  # BCOO's indices are unique
        # A column where vectors vanish, so that 0 is never multiplied by infinity.
        outside = int(np.argmin(support))
        csr = _add_zeros(csr, 1 << max(0, csr.nnz.bit_length() - 4), outside)
    return _from_sorted(csr, matrix.order, matrix.backend)


def _add_zeros(
    csr: scipy.sparse.csr_array, unit: int, column: int
) -> scipy.sparse.csr_array:
    """Store zeros in the last row, up to a multiple of ``unit`` entries."""
    padding = (0, -csr.nnz % unit)
    pointers = csr.indptr.copy()
    pointers[-1] += padding[1]
    data, columns = np.pad(csr.data, padding), np.pad(csr.indices, padding)
    columns[csr.nnz :] = column
    return scipy.sparse.csr_array((data, columns, pointers), csr.shape)


def to_scipy(adjacency: Any) -> scipy.sparse.csr_array:
    """Return a copy of a BCOO or scipy matrix as a scipy CSR array of floats.

    Half precision becomes single; integers and booleans become double. Indices are
    sorted, equal indices are summed, and stored zeros remain.
    """
    arrays.sparse_matrix(adjacency)
    if isinstance(adjacency, BCOO):
        rows, columns = np.asarray(adjacency.indices).T
        # JAX pads with indices beyond the shape.
        valid = (rows < adjacency.shape[0]) & (columns < adjacency.shape[1])
        ends = (rows[valid], columns[valid])
        entries = (arrays.entries(np.asarray(adjacency.data)[valid]), ends)
        adjacency = scipy.sparse.coo_array(entries, adjacency.shape)
    if adjacency.format == "coo":  # converted first, since CSR sums equal indices
        entries = (arrays.entries(adjacency.data), (adjacency.row, adjacency.col))
        csr = scipy.sparse.coo_array(entries, adjacency.shape).tocsr()
    else:
        csr = scipy.sparse.csr_array(adjacency, copy=True)
        csr.data = arrays.entries(csr.data)
    csr.sum_duplicates()
    return scipy.sparse.csr_array(csr.astype(np.float64)) if csr.dtype == bool else csr


def to_csr(matrix: Matrix) -> scipy.sparse.csr_array:
    """Return the entries on the host, rows and columns in the matrix's own order."""
    columns, rows = (np.asarray(part) for part in matrix.pattern[1::-1])
    if matrix.backend != "bcsr":  # row ids, not row pointers
        rows = np.searchsorted(rows, np.arange(matrix.shape[0] + 1))
    parts = (np.asarray(matrix.data), columns, rows)
    return scipy.sparse.csr_array(parts, matrix.shape)


def is_symmetric(csr: scipy.sparse.csr_array) -> bool:
    """Return whether A equals A^T to the last bit, for sorted entries."""
    csc = csr.tocsc()
    return _same_pattern(csr, csc) and np.array_equal(csr.data, csc.data)


def _same_pattern(csr: scipy.sparse.csr_array, csc: scipy.sparse.csc_array) -> bool:
    csc.sort_indices()
    same_columns = np.array_equal(csr.indices, csc.indices)
    return same_columns and np.array_equal(csr.indptr, csc.indptr)


def matmul(matrix: Matrix, v: jax.Array) -> jax.Array:
    """Return A V, for V of shape (n, k) or (n,).

    Both sides are promoted to their common floating type; half precision adds up in
    single. ``vmap`` over V stacks the batch into columns of one product. The derivative
    in ``matrix.data`` treats the entries of a symmetric A as independent.

    Args:
        matrix: A, from ``prepare``.
        v: V, with one row per column of A.

    Raises:
        ValueError: the shapes do not fit.
        TypeError: complex numbers.
    """
    # numpy's float64 becomes JAX's float
    return propagate(matrix, lambda new, *_: new, arrays.real("V", v), 1)


def propagate(
    matrix: Callable[[jax.Array], jax.Array],
    update_fn: Callable[[jax.Array, jax.Array, jax.Array], jax.Array],
    v: jax.Array,
    num_steps: int,
) -> jax.Array:
    """Repeat V <- update_fn(A V, V, V_0); nodes are reordered once, not every step.

    Args:
        matrix: A, from ``prepare``, or any linear map.
        update_fn: of the product, V and V_0; acts on each row alone.
        v: V_0.
        num_steps: number of steps.

    Raises:
        ValueError: the shapes do not fit; a negative number of steps.
        TypeError: complex numbers, or no linear map.
    """
    checks.linear_map("the matrix", matrix)
    checks.function("update_fn", update_fn)
    v = arrays.real("V", v)
    num_steps = checks.count("num_steps", num_steps, 0)
    if not isinstance(matrix, Matrix):
        if num_steps:  # the loop needs one type throughout
            v = v.astype(jax.eval_shape(matrix, v).dtype)
        return jax.lax.fori_loop(
            0, num_steps, lambda _, w: update_fn(matrix(w), w, v), v
        )
    dtype = product_dtype(matrix.shape, matrix.data.dtype, v, num_steps)
    wide = dtype if dtype.itemsize >= 4 else jnp.float32  # half adds up in single
    start = (v[:, None] if v.ndim == 1 else v).astype(wide)
    if matrix.order is not None:
        start = start[matrix.order[0]]

    def hop(a, w):
        patterns = (a.pattern, a.transposed)
        new = product(a.data, *patterns, w, shape=a.shape, backend=a.backend)
        return update_fn(new, w, start)

    matrix = dataclasses.replace(matrix, data=matrix.data.astype(wide))
    if num_steps == 1:  # also for matrices that are not square
        end = hop(matrix, start)
    else:
        end = jax.lax.fori_loop(0, num_steps, lambda _, w: hop(matrix, w), start)
    if matrix.order is not None:
        end = end[matrix.order[1]]
    end = end.astype(dtype)
    return end[:, 0] if v.ndim == 1 else end
