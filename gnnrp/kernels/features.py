"""Kernels of node features, evaluated in row blocks: n x n is never held unless asked.

A kernel is a function of two blocks of rows, (b, d) and (n, d) -> (b, n). ``build``
turns it into a linear map; with ``normalized`` it is Kn = Dk^-1/2 Kg Dk^-1/2, Dk the
row sums of Kg over all n nodes, which the paper's published step sizes presuppose
although its text leaves it out.

Source: App. E.1.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float, Int

from gnnrp import _checks
from gnnrp.kernels import _sparse_rows
from gnnrp.kernels._functions import (
    KERNELS,
    OF_INNER,
    GramFn,
    gamma_from_bandwidth,
    gaussian,
    laplacian,
    linear,
    polynomial,
    sigmoid,
)
from gnnrp.kernels._inputs import (
    FeaturesLike,
    as_dense,
    checked,
    row_normalized,
    thin,
)
from gnnrp.kernels._sparse_rows import SparseRows
from gnnrp.types import Scalar

_BLOCK_BYTES = 2**26  # of one row block of the kernel

__all__ = [
    "KERNELS",
    "FeatureKernel",
    "FeaturesLike",
    "GramFn",
    "as_dense",
    "build",
    "checked",
    "checked_scale",
    "diagonal",
    "gamma_from_bandwidth",
    "gaussian",
    "laplacian",
    "linear",
    "matrix",
    "normalized_matrix",
    "polynomial",
    "row_normalized",
    "rows",
    "sigmoid",
]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class FeatureKernel:
    """V -> diag(scale) Kg (diag(scale) V), Kg evaluated block by block at each product.

    The features carry a few rows of padding, so that all blocks are equal; their scale
    is zero.
    """

    features: Float[Array, "p d"] | SparseRows
    scale: Float[Array, " p"]
    gamma: Scalar
    num_nodes: int = dataclasses.field(metadata={"static": True})
    block_size: int = dataclasses.field(metadata={"static": True})
    gram_fn: GramFn = dataclasses.field(metadata={"static": True})

    def __call__(self, v: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return the product; memory: one block of rows beside V and the result."""
        padded = jnp.pad(v, ((0, len(self.scale) - self.num_nodes), (0, 0)))
        product = self.scale[:, None] * _blocked(self, self.scale[:, None] * padded)
        return product[: self.num_nodes]


def build(
    features: FeaturesLike,
    kernel: str | GramFn = "gaussian",
    *,
    gamma: Scalar = 1.0,
    normalized: bool = True,
    block_bytes: int = _BLOCK_BYTES,
) -> FeatureKernel:
    """Return the kernel of the features as a linear map.

    Args:
        features: dense or scipy sparse. If fewer than 4 percent of the entries are not
            zero, and the kernel is one of inner products by name (all but the
            Laplacian), only those are held and multiplied.
        kernel: a name from ``KERNELS``, or a function (x, y, γ) -> block; keep one
            function object, as it is static under ``jit``.
        gamma: γ of the kernel; the linear kernel has none.
        normalized: Dk^-1/2 Kg Dk^-1/2 with Dk over all n rows, else Kg itself.
        block_bytes: how much memory one row block may take.

    Raises:
        ValueError: unknown kernel; γ not positive; features that are not a finite
            matrix; or, normalized, a row sum that is not positive.
    """
    if isinstance(kernel, str):
        _checks.one_of("kernel", kernel, KERNELS)
        kernel = KERNELS[kernel]
    _checks.positive("gamma", float(gamma))
    x = thin(checked(features)) if kernel in OF_INNER else as_dense(features)
    x = x.astype(jax.dtypes.canonicalize_dtype(x.dtype), copy=False)
    num_nodes = x.shape[0]
    most = _sparse_rows.BLOCK if scipy.sparse.issparse(x) else num_nodes
    row_bytes = max(1, num_nodes * x.dtype.itemsize)
    block_size = max(1, min(most, num_nodes, block_bytes // row_bytes))
    padding = -num_nodes % block_size
    inside = jnp.arange(num_nodes + padding) < num_nodes
    result = FeatureKernel(
        features=_padded(x, padding),
        scale=inside.astype(x.dtype),
        gamma=jnp.asarray(gamma, x.dtype),
        num_nodes=num_nodes,
        block_size=block_size,
        gram_fn=kernel,
    )
    if not normalized:
        return result
    scale = checked_scale(np.asarray(jax.jit(_row_sums)(result)))
    scale = jnp.pad(jnp.asarray(scale, x.dtype), (0, padding))
    return dataclasses.replace(result, scale=scale)


def matrix(kernel: FeatureKernel) -> Float[Array, "n n"]:
    """Return the whole n x n matrix, for one that fits memory and is used often."""
    return jax.jit(_matrix)(kernel)


def normalized_matrix(kernel: FeatureKernel) -> Float[Array, "n n"]:
    """Return Dk^-1/2 Kg Dk^-1/2 of a kernel built with ``normalized=False``.

    The same as ``matrix`` of a normalized one, at half the cost: Kg is evaluated once.

    Raises:
        ValueError: the kernel is normalized already; a row sum is not positive and
            finite.
    """
    if not np.isin(np.asarray(kernel.scale), (0, 1)).all():
        msg = "the kernel is normalized already; build it with normalized=False"
        raise ValueError(msg)
    gram = matrix(kernel)
    scale = checked_scale(np.asarray(jnp.sum(gram, axis=1)))
    return _scaled(gram, jnp.asarray(scale, gram.dtype))


def rows(kernel: FeatureKernel, index: Int[Array, " b"]) -> Float[Array, "b n"]:
    """Return rows of Kg, without the scale."""
    x, gamma = kernel.features, jnp.asarray(kernel.gamma, kernel.features.dtype)
    if isinstance(x, SparseRows):
        squares = x.squares()
        inner = x.inner(x.columns[index], x.values[index])
        gram = OF_INNER[kernel.gram_fn](inner, squares[index], squares, gamma)
    else:
        gram = kernel.gram_fn(x[index], x, gamma)
    return gram[:, : kernel.num_nodes]


def diagonal(kernel: FeatureKernel) -> Float[Array, " n"]:
    """Return the diagonal of Kg, without the scale."""
    x, gamma = kernel.features, jnp.asarray(kernel.gamma, kernel.features.dtype)
    if isinstance(x, SparseRows):
        of_inner = OF_INNER[kernel.gram_fn]
        full = jax.vmap(lambda square: of_inner(square[None], square, square, gamma))(
            x.squares()[:, None]
        )
    else:
        full = jax.vmap(lambda row: kernel.gram_fn(row, row, gamma))(x[:, None])
    return full[: kernel.num_nodes, 0, 0]


def _padded(x: Any, rows: int) -> Float[Array, "p d"] | SparseRows:
    """Lay features out on device, with more rows that a scale of zero will cancel.

    The padding repeats a row: a kernel need not be finite at any other point.
    """
    if not scipy.sparse.issparse(x):
        return jnp.pad(jnp.asarray(x), ((0, rows), (0, 0)), mode="edge")
    last = np.full(rows, x.shape[0] - 1)
    stacked = scipy.sparse.vstack([x, x[last]]) if rows else x
    return _sparse_rows.build(scipy.sparse.csr_array(stacked))


def checked_scale(sums: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return 1 / sqrt of the row sums.

    Raises:
        ValueError: one is not positive and finite.
    """
    usable = (sums > 0) & np.isfinite(sums)
    if not usable.all():
        where = int(np.argmin(usable))
        msg = (
            f"the kernel's row {where} sums to {sums[where]}, which no square root "
            "scales; take a kernel with positive, finite row sums, another gamma, or "
            "(in Python) normalized=False"
        )
        raise ValueError(msg)
    return 1 / np.sqrt(sums)


@functools.partial(jax.jit, donate_argnums=0)
def _scaled(
    gram: Float[Array, "n n"], scale: Float[Array, " n"]
) -> Float[Array, "n n"]:
    return scale[:, None] * gram * scale


def _over_blocks(
    kernel: FeatureKernel, body: Callable[[Float[Array, "b p"]], Array]
) -> Array:
    """Return what ``body`` makes of each row block of Kg, one after the other."""
    x = kernel.features
    # γ takes the features' type, so that a float64 γ does not promote float32 features.
    gamma = jnp.asarray(kernel.gamma, x.dtype)

    def blocks(rows):
        return rows.reshape(-1, kernel.block_size, rows.shape[1])

    if isinstance(x, SparseRows):
        squares = x.squares()
        of_inner = OF_INNER[kernel.gram_fn]
        parts = blocks(x.columns), blocks(x.values), blocks(squares[:, None])
        return jax.lax.map(
            lambda part: body(
                of_inner(x.inner(*part[:2]), part[2][:, 0], squares, gamma)
            ),
            parts,
        )
    return jax.lax.map(lambda rows: body(kernel.gram_fn(rows, x, gamma)), blocks(x))


def _blocked(kernel: FeatureKernel, v: Float[Array, "p k"]) -> Float[Array, "p k"]:
    def body(gram):
        return jnp.matmul(gram, v, precision=jax.lax.Precision.HIGHEST)

    return _over_blocks(kernel, body).reshape(v.shape)


def _row_sums(kernel: FeatureKernel) -> Float[Array, " n"]:
    return _blocked(kernel, kernel.scale[:, None])[: kernel.num_nodes, 0]


def _matrix(kernel: FeatureKernel) -> Float[Array, "n n"]:
    gram = _over_blocks(kernel, lambda gram: gram[:, : kernel.num_nodes])
    scale = kernel.scale[: kernel.num_nodes]
    gram = gram.reshape(-1, kernel.num_nodes)[: kernel.num_nodes]
    return scale[:, None] * gram * scale
