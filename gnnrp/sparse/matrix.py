"""Sparse matrix times dense matrix: one pytree, one function, a back end per platform.

JAX's BCOO product is about ten times slower on CPU than its CSR product, which in turn
has no transpose, no batching rule and only a slow derivative. ``Matrix`` holds the CSR
pattern of A, and of A^T unless A is symmetric; ``matmul`` gives the product rules of
its own, so that ``jit``, ``vmap`` and both modes of differentiation, in any order, end
in the fast kernel.
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

    The entries may stand in another order of the nodes, in which neighbors lie closer
    in memory. Callers never see it: ``matmul`` and ``iterate`` take and give theirs.
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
    """Lay a sparse matrix out for ``matmul``, once, on the host.

    Args:
        adjacency: A, from ``graph.normalized_adjacency`` or any scipy sparse matrix;
            equal indices are summed.
        backend: "bcsr" (JAX's CPU kernel), "bcoo" (cuSPARSE on NVIDIA GPUs, if JAX's
            flag jax_bcoo_cusparse_lowering is set) or "segment_sum"; "auto" takes the
            first on CPU, the second where the flag makes it fast, else the last. On CPU
            all give the same bits each time. On GPUs "segment_sum" adds by atomics, in
            an order that varies with the run, unless XLA_FLAGS holds
            --xla_gpu_deterministic_ops=true; of cuSPARSE nothing is promised.
        reorder: store the nodes in an order that brings neighbors closer, which needs a
            symmetric pattern. If left out, this is done where it pays: from 2^15 nodes
            on, if it does.

    Raises:
        ValueError: unknown back end, more rows or entries than int32 addresses, entries
            that are not finite or too large for float32, or ``reorder`` for a pattern
            that is not symmetric.
        TypeError: not sparse, or of complex numbers.
    """
    checks.one_of("backend", backend, ("auto", *BACKENDS))
    if backend == "auto":
        backend = _fastest()
    arrays.sparse_matrix(adjacency)
    given = cast(Any, adjacency)  # scipy.sparse has no types
    entries = given.nse if isinstance(adjacency, BCOO) else given.nnz
    checks.int32_indexable(max(given.shape), entries)
    csr = to_scipy(adjacency)
    half = given.dtype.itemsize < 4 and jnp.issubdtype(given.dtype, jnp.floating)
    if half:  # which SciPy lacks: the entries are single until the matrix is laid out
        with np.errstate(over="ignore"):
            csr.data = csr.data.astype(given.dtype).astype(np.float32)
    if not np.isfinite(csr.data).all():
        row = np.searchsorted(csr.indptr, np.argmin(np.isfinite(csr.data)), "right") - 1
        msg = f"the entries must be finite, and row {row} has one that is not"
        raise ValueError(msg)
    dtype = jax.dtypes.canonicalize_dtype(csr.dtype)
    checks.fits("the entries", csr.data, dtype)
    csc = csr.tocsc()
    csc.sort_indices()
    order = None
    if _same_pattern(csr, csc):
        order = ordering.closer(csr, reorder, backend)
    elif reorder:
        msg = "reorder=True needs a symmetric pattern, and this matrix has none"
        raise ValueError(msg)
    if order is not None:
        csr = scipy.sparse.csr_array(csr[order[0]][:, order[0]])
        csr.sort_indices()
        order = jnp.asarray(order, dtype=jnp.int32)
    matrix = _laid_out(csr, order, backend)
    if half:
        matrix = dataclasses.replace(matrix, data=matrix.data.astype(given.dtype))
    return matrix


def _laid_out(csr: scipy.sparse.csr_array, order: Array | None, backend: str) -> Matrix:
    """Return the matrix of sorted entries that stand in this order already."""
    csc = csr.tocsc()
    csc.sort_indices()
    pattern = as_pattern(csr.indptr, csr.indices, None, backend)
    if _is_symmetric(csr, csc):
        transposed = pattern
    else:
        stored = scipy.sparse.csr_array(
            (np.arange(csr.nnz, dtype=np.int64), csr.indices, csr.indptr), csr.shape
        ).tocsc()
        stored.sort_indices()
        transposed = as_pattern(csc.indptr, csc.indices, stored.data, backend)
    return Matrix(
        data=jnp.asarray(csr.data),
        pattern=pattern,
        transposed=transposed,
        order=order,
        shape=cast(tuple[int, int], csr.shape),
        backend=backend,
    )


def _fastest() -> str:
    platform = jax.default_backend()
    if platform == "cpu":
        return "bcsr"
    flag = getattr(jax.config, "jax_bcoo_cusparse_lowering", False)
    cusparse = platform == "gpu" and flag
    return "bcoo" if cusparse else "segment_sum"


def to_scipy(adjacency: Any) -> scipy.sparse.csr_array:
    """Return a copy as a scipy CSR array of floats, on the host.

    Half precision becomes single; integers and booleans become double. Indices are
    sorted, entries of equal indices are summed, and stored zeros stay.

    Args:
        adjacency: BCOO or scipy sparse; of any caller, so that it is checked here.

    Raises:
        ValueError: not a matrix.
        TypeError: not sparse, or complex entries.
    """
    arrays.sparse_matrix(adjacency)
    if isinstance(adjacency, BCOO):
        rows, columns = np.asarray(adjacency.indices).T
        # JAX pads with indices beyond the shape, which stand for nothing.
        kept = (rows < adjacency.shape[0]) & (columns < adjacency.shape[1])
        data = arrays.entries(np.asarray(adjacency.data)[kept])
        entries = (data, (rows[kept], columns[kept]))
        csr = scipy.sparse.coo_array(entries, shape=adjacency.shape).tocsr()
    elif adjacency.format == "coo":
        data, ends = arrays.entries(adjacency.data), (adjacency.row, adjacency.col)
        csr = scipy.sparse.coo_array((data, ends), adjacency.shape).tocsr()
    else:
        csr = scipy.sparse.csr_array(adjacency, copy=True)
        csr.data = arrays.entries(csr.data)
    csr.sum_duplicates()
    return scipy.sparse.csr_array(csr.astype(np.float64)) if csr.dtype == bool else csr


def matmul(matrix: Matrix, v: jax.Array) -> jax.Array:
    """Return A V, for V of shape (n, k) or (n,).

    Both sides are promoted to their common floating type; half precision adds up in
    single. Forward mode is A, reverse mode A^T, in the same kernel; ``vmap`` over V
    stacks the batch into columns of one product. The derivative in ``matrix.data``
    costs one pass over the entries a column; for a symmetric A it treats the entries as
    free of each other, and is right to first order.

    Args:
        matrix: A, from ``prepare``.
        v: as many rows as A has columns.

    Raises:
        ValueError: the shapes do not fit.
        TypeError: a side of complex numbers.
    """
    # numpy's float64 becomes JAX's float
    return iterate(matrix, lambda new, *_: new, arrays.real("V", v), 1)


def on_support(matrix: Matrix, support: Bool[np.ndarray, " n"]) -> Matrix:
    """Return A without the columns outside a set of nodes, in A's order of nodes.

    It multiplies vectors that vanish there as A does, and skips what would be zero. A
    few zeros are stored, so that supports of about the same size share one trace.

    Args:
        matrix: A, from ``prepare``.
        support: of the vectors, one value a column of A.

    Raises:
        ValueError: the mask does not fit.
        TypeError: it is not boolean.
    """
    checks.instance("matrix", matrix, Matrix, "sparse.prepare makes one")
    support = checks.mask("the support", support, matrix.shape[1])
    if matrix.order is not None:
        support = support[np.asarray(matrix.order[0])]
    csr = stored(matrix)
    kept = support[csr.indices]
    pointers = np.concatenate([[0], np.cumsum(kept)])[csr.indptr]
    data, columns = csr.data[kept], csr.indices[kept]
    csr = scipy.sparse.csr_array((data, columns, pointers), matrix.shape)
    if matrix.backend != "bcoo" and not support.all():  # BCOO's indices are unique
        # Where vectors vanish, so that not even an infinite entry is met.
        nowhere = int(np.argmin(support))
        csr = _filled(csr, 1 << max(0, csr.nnz.bit_length() - 4), nowhere)
    return _laid_out(csr, matrix.order, matrix.backend)


def stored(matrix: Matrix) -> scipy.sparse.csr_array:
    """Return the entries on the host, rows and columns in the matrix's own order."""
    columns, rows = (np.asarray(part) for part in matrix.pattern[1::-1])
    if matrix.backend != "bcsr":  # which holds row pointers instead of rows
        rows = np.searchsorted(rows, np.arange(matrix.shape[0] + 1))
    return scipy.sparse.csr_array(
        (np.asarray(matrix.data), columns, rows), matrix.shape
    )


def is_symmetric(csr: scipy.sparse.csr_array) -> bool:
    """Return whether A equals A^T to the last bit, for sorted entries."""
    csc = csr.tocsc()
    csc.sort_indices()
    return _is_symmetric(csr, csc)


def rounded(csr: scipy.sparse.csr_array, shape: tuple[int, int]) -> Matrix:
    """Return a matrix with rows and columns of zeros added, for a forward product.

    A power of two of entries is stored, so that matrices of one shape share few traces.

    Args:
        csr: sorted, without equal indices.
        shape: at least that of the matrix.
    """
    backend = _fastest()
    pointers = np.pad(csr.indptr, (0, shape[0] - csr.shape[0]), mode="edge")
    larger = scipy.sparse.csr_array((csr.data, csr.indices, pointers), shape)
    if backend != "bcoo":
        larger = _filled(larger, 1 << max(0, csr.nnz - 1).bit_length(), shape[1] - 1)
    return _laid_out(larger, None, backend)


def as_stored(csr: scipy.sparse.csr_array) -> Matrix:
    """Return a matrix of just these entries, in this order, equal indices too.

    Args:
        csr: sorted; matrices of one shape and as many entries share a trace.
    """
    backend = _fastest()  # the indices of BCOO are unique
    return _laid_out(csr, None, "segment_sum" if backend == "bcoo" else backend)


def _filled(
    csr: scipy.sparse.csr_array, unit: int, column: int
) -> scipy.sparse.csr_array:
    """Store zeros in the last row, up to a multiple of so many entries."""
    padding = (0, -csr.nnz % unit)
    pointers = csr.indptr.copy()
    pointers[-1] += padding[1]
    data, columns = np.pad(csr.data, padding), np.pad(csr.indices, padding)
    columns[csr.nnz :] = column
    return scipy.sparse.csr_array((data, columns, pointers), csr.shape)


def iterate(
    matrix: Callable[[jax.Array], jax.Array],
    update_fn: Callable[[jax.Array, jax.Array, jax.Array], jax.Array],
    v: jax.Array,
    num_steps: int,
    *,
    first: Matrix | None = None,
) -> jax.Array:
    """Repeat V <- update_fn(A V, V, V_0), entering the matrix's node order only once.

    Args:
        matrix: A, from ``prepare``, or any linear map.
        update_fn: acts on each row alone; it sees the product, V, and V at the start.
        v: V_0.
        num_steps: how often.
        first: stands in for the matrix in the first step, in the same order of nodes;
            from ``on_support``.

    Raises:
        ValueError: the shapes do not fit; a negative number of steps.
        TypeError: a side of complex numbers; what is no linear map.
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

    def hop(matrix, w):
        return update_fn(_stored_product(matrix, w), w, start)

    matrix = dataclasses.replace(matrix, data=matrix.data.astype(wide))
    end = start
    if first is not None and num_steps > 0:
        end = hop(dataclasses.replace(first, data=first.data.astype(wide)), end)
        num_steps -= 1
    if num_steps == 1:  # also serves matrices that are not square
        end = hop(matrix, end)
    else:
        end = jax.lax.fori_loop(0, num_steps, lambda _, w: hop(matrix, w), end)
    if matrix.order is not None:
        end = end[matrix.order[1]]
    end = end.astype(dtype)
    return end[:, 0] if v.ndim == 1 else end


def _stored_product(matrix: Matrix, w: jax.Array) -> jax.Array:
    """Return A W, both in the matrix's order of nodes."""
    return product(
        matrix.data,
        matrix.pattern,
        matrix.transposed,
        w,
        shape=matrix.shape,
        backend=matrix.backend,
    )


def _same_pattern(csr: scipy.sparse.csr_array, csc: scipy.sparse.csc_array) -> bool:
    return csr.shape[0] == csr.shape[1] and all(
        np.array_equal(getattr(csr, part), getattr(csc, part))
        for part in ("indptr", "indices")
    )


def _is_symmetric(csr: scipy.sparse.csr_array, csc: scipy.sparse.csc_array) -> bool:
    return _same_pattern(csr, csc) and np.array_equal(csr.data, csc.data)
