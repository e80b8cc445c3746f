"""Inner products and distances of sparse feature rows, a block at a time."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float, Int

from gnnrp import sparse
from gnnrp.kernels.features import pairwise
from gnnrp.types import Scalar

# Below this share of entries the sparse product is faster than the dense one, which
# does some 25 times as many operations a second.
DENSITY = 0.04
_BLOCK = 128  # rows: enough for the sparse product, and d x 128 stays near the cache
_SPARSE_COST = 256  # of a product in scipy, relative to a dense matrix product
_BLOCK_BYTES = 2**26  # of columns that are dense at once
_ENTRIES = 2**20  # of gathered rows at once, about

TermFn = Callable[[jax.Array], jax.Array]
"""Elementwise term of a distance: |.| or its square."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of a sparse X, for products and for access to single rows."""

    matrix: sparse.Matrix  # X, without its empty columns
    pointers: Int[Array, " m"]  # n + 1
    columns: Int[Array, " e"]  # sorted within a row
    values: Float[Array, " e"]
    longest: int = dataclasses.field(metadata={"static": True})  # entries of a row

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of X."""
        return self.matrix.shape

    @property
    def dtype(self) -> jnp.dtype:
        """The dtype of the entries."""
        return self.values.dtype

    def sums(self, term_fn: TermFn) -> Float[Array, " n"]:
        """Return the sum of the terms of each row."""
        return jax.ops.segment_sum(
            term_fn(self.values),
            self._row_ids(),
            num_segments=self.shape[0],
            indices_are_sorted=True,
        )

    def inner(self, index: Int[Array, " b"]) -> Float[Array, "b n"]:
        """Return <x_i, x_j> for the rows i of a block and all j."""
        return sparse.matmul(self.matrix, self._dense(index)).T

    def distances(
        self, index: Int[Array, " b"], gamma: Scalar, term_fn: TermFn
    ) -> Float[Array, "b n"]:
        """Return Σ_k term(x_ik - x_jk), with the digits that exp(-γ d) needs."""
        sums = self.sums(term_fn)
        if term_fn is jnp.square:
            cross = -2 * self.inner(index)
        else:
            cross = self._cross_terms(self._dense(index), term_fn).T
        fixed = jax.lax.stop_gradient(self)

        def pair_distances(rows, others):
            return fixed._pair_distances(index[rows], others, term_fn)

        same = index[:, None] == jnp.arange(self.shape[0])[None]
        return pairwise.refine(
            jnp.where(same, 0, sums[index][:, None] + sums[None] + cross),
            (sums[index], sums),
            gamma,
            pair_distances,
            length=self.longest,
            known=same,
        )

    def _row_ids(self) -> Int[Array, " e"]:
        counts = jnp.diff(self.pointers)
        ids = jnp.arange(self.shape[0], dtype=self.pointers.dtype)
        return jnp.repeat(ids, counts, total_repeat_length=len(self.values))

    def _pad(
        self, index: Int[Array, "..."]
    ) -> tuple[Int[Array, "... r"], Float[Array, "... r"]]:
        """Return columns and values of some rows; column d, value 0 as padding."""
        along = jnp.arange(self.longest, dtype=self.pointers.dtype)
        along = along.reshape((1,) * index.ndim + (-1,))
        place = self.pointers[index][..., None] + along
        inside = place < self.pointers[index + 1][..., None]
        place = jnp.where(inside, place, 0)
        columns = jnp.where(inside, self.columns[place], self.shape[1])
        return columns, jnp.where(inside, self.values[place], 0)

    def _dense(self, index: Int[Array, " b"]) -> Float[Array, "d b"]:
        columns, values = self._pad(index)
        block = jnp.zeros((self.shape[1], len(index)), values.dtype)
        beside = jnp.arange(len(index))[:, None]
        return block.at[columns, beside].set(values, mode="drop")

    def _cross_terms(
        self, block: Float[Array, "d b"], term_fn: TermFn
    ) -> Float[Array, "n b"]:
        """Return Σ_k term(v_k - w_k) - term(v_k) - term(w_k), over the entries v."""
        num_entries, width = len(self.values), block.shape[1]
        chunk = max(1, min(num_entries, _ENTRIES // width))
        rows = self._row_ids()

        def add(i, total):
            first = jnp.minimum(i * chunk, num_entries - chunk)
            parts = (self.columns, self.values, rows)
            columns, v, to = (
                jax.lax.dynamic_slice_in_dim(part, first, chunk) for part in parts
            )
            v, w = v[:, None], block[columns]
            change = term_fn(v - w) - term_fn(v) - term_fn(w)
            new = first + jnp.arange(chunk) >= i * chunk  # the last chunk begins early
            return total.at[to].add(jnp.where(new[:, None], change, 0))

        total = jnp.zeros((self.shape[0], width), block.dtype)
        return jax.lax.fori_loop(0, -(-num_entries // chunk), add, total)

    def _pair_distances(
        self, rows: Int[Array, " p"], others: Int[Array, "p w"], term_fn: TermFn
    ) -> Float[Array, "p w"]:
        """Return distances of pairs of rows, by a merge of their columns."""

        def distance(columns, values, other_columns, other_values):
            other, _ = _look_up(columns, other_columns, other_values)
            _, found = _look_up(other_columns, columns, values)
            alone = jnp.where(found, 0, other_values)
            return jnp.sum(term_fn(values - other)) + jnp.sum(term_fn(alone))

        one_row = jax.vmap(distance, in_axes=(None, None, 0, 0))
        return jax.vmap(one_row)(*self._pad(rows), *self._pad(others))


def _look_up(wanted, columns, values):
    """Return the values in the wanted columns, else zero, and which ones exist."""
    place = jnp.searchsorted(columns, wanted)
    place = jnp.minimum(place, len(columns) - 1)
    found = columns[place] == wanted
    return jnp.where(found, values[place], 0), found


def build(features: scipy.sparse.csr_array) -> SparseRows:
    """Build the rows of X; equal indices are summed, empty columns dropped."""
    csr = scipy.sparse.csr_array(features, copy=True)
    csr.sum_duplicates()
    used = np.zeros(csr.shape[1], bool)
    used[csr.indices] = True
    place = np.cumsum(used, dtype=np.int32) - 1
    num_columns = max(1, int(used.sum()))
    csr = scipy.sparse.csr_array(
        (csr.data, place[csr.indices], csr.indptr), (csr.shape[0], num_columns)
    )
    # A zero outside of all rows, so that there is an entry to slice.
    room = (0, 1 if csr.nnz == 0 else 0)
    return SparseRows(
        sparse.prepare(csr, reorder=False),
        jnp.asarray(csr.indptr, jnp.int32),
        jnp.asarray(np.pad(csr.indices, room), jnp.int32),
        jnp.asarray(np.pad(csr.data, room)),
        longest=max(1, int(np.diff(csr.indptr).max(initial=1))),
    )


def block_size(rows: SparseRows, num_bytes: int) -> int:
    """Return the number of kernel rows of a block, made dense as columns."""
    num_nodes, num_columns = rows.shape
    largest = max(num_nodes, num_columns, 4 * rows.longest, 1)
    return max(1, min(_BLOCK, num_nodes, num_bytes // (rows.dtype.itemsize * largest)))


def power_of_two(size: int) -> int:
    """Return the least power of two >= size, so that few shapes are compiled."""
    return 1 << max(0, size - 1).bit_length()


def inner(x: Any, y: Any) -> Float[Array, "m k"]:
    """Return X Y^T of CSR features by a sparse product or by dense column blocks."""
    sides = x.tocsc(), y.tocsc()
    counts = [np.diff(side.indptr).astype(float) for side in sides]
    used = np.flatnonzero(counts[0] * counts[1])
    pairs = counts[0] @ counts[1]  # products needed
    shape = x.shape[0], y.shape[0]
    if pairs * _SPARSE_COST < np.prod(shape) * float(len(used)):
        with np.errstate(over="ignore"):
            return jnp.asarray((x @ y.T).toarray())
    width = max(1, _BLOCK_BYTES // max(1, max(shape) * x.dtype.itemsize))
    width = min(width, power_of_two(len(used)))  # for few shapes
    total = jnp.zeros(shape, x.dtype)
    for start in range(0, len(used), width):
        some = used[start : start + width]
        blocks = (
            np.pad(side[:, some].toarray(), ((0, 0), (0, width - len(some))))
            for side in sides
        )
        total = _add_inner(total, *map(jnp.asarray, blocks))
    return total


@functools.partial(jax.jit, donate_argnums=0)
def _add_inner(total: Array, x: Array, y: Array) -> Array:
    return total + pairwise.inner(x, y)
