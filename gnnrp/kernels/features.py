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

from gnnrp import _arrays, _checks
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
_MOST_OFFSET = 0.99  # of the squares, that the mean row may be

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

    All blocks have equally many rows; the last one begins early and repeats some.
    """

    features: Float[Array, "n d"] | SparseRows
    scale: Float[Array, " n"]
    gamma: Scalar
    block_size: int = dataclasses.field(metadata={"static": True})
    gram_fn: GramFn = dataclasses.field(metadata={"static": True})

    @property
    def is_symmetric(self) -> bool | None:
        """True for the kernels of ``KERNELS``; None, unknown, for other functions."""
        return True if self.gram_fn in KERNELS.values() else None

    def __call__(self, v: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        """Return the product; memory: one block of rows beside V and the result.

        Raises:
            ValueError: V has another number of rows.
        """
        if v.ndim == 1:
            return self(v[:, None])[:, 0]
        _checks.rows("V", v, len(self.scale))
        v = self.scale[:, None] * v

        def body(gram, _):
            return jnp.matmul(gram, v, precision=jax.lax.Precision.HIGHEST)

        return self.scale[:, None] * _over_blocks(self, body, v.shape[1], v.dtype)


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
        TypeError: a kernel that is neither a name nor a function, features that are not
            real numbers.
    """
    if isinstance(kernel, str):
        _checks.one_of("kernel", kernel, KERNELS)
        kernel = KERNELS[kernel]
    _checks.function("kernel", kernel, f"or a name: {', '.join(KERNELS)}")
    _checks.positive("gamma", gamma)
    _checks.at_least("block_bytes", block_bytes, 0)
    x = thin(checked(features)) if kernel in OF_INNER else as_dense(features)
    if kernel is gaussian and not scipy.sparse.issparse(x):
        x = _near_zero(x)
    x = x.astype(jax.dtypes.canonicalize_dtype(x.dtype), copy=False)
    num_nodes = x.shape[0]
    most = _sparse_rows.BLOCK if scipy.sparse.issparse(x) else num_nodes
    row_bytes = max(1, num_nodes * x.dtype.itemsize)
    block_size = min(most, num_nodes, max(1, block_bytes // row_bytes))
    result = FeatureKernel(
        features=_on_device(x),
        scale=jnp.ones(num_nodes, x.dtype),
        gamma=jnp.asarray(gamma, x.dtype),
        block_size=block_size,
        gram_fn=kernel,
    )
    if not normalized:
        return result
    scale = checked_scale(np.asarray(jax.jit(_row_sums)(result)))
    return dataclasses.replace(result, scale=jnp.asarray(scale, x.dtype))


def matrix(kernel: FeatureKernel) -> Float[Array, "n n"]:
    """Return the whole n x n matrix, for one that fits memory and is used often.

    Raises:
        TypeError: no kernel from ``build``.
    """
    _checks.instance("kernel", kernel, FeatureKernel, "features.build makes one")
    return jax.jit(_matrix)(kernel)


def normalized_matrix(kernel: FeatureKernel) -> Float[Array, "n n"]:
    """Return Dk^-1/2 Kg Dk^-1/2 of a kernel built with ``normalized=False``.

    The same as ``matrix`` of a normalized one, at half the cost: Kg is evaluated once.

    Raises:
        ValueError: the kernel is normalized already; a row sum is not positive and
            finite.
        TypeError: no kernel from ``build``.
    """
    _checks.instance("kernel", kernel, FeatureKernel, "features.build makes one")
    if np.any(np.asarray(kernel.scale) != 1):
        msg = "the kernel is normalized already; build it with normalized=False"
        raise ValueError(msg)
    gram = matrix(kernel)
    scale = checked_scale(np.asarray(jnp.sum(gram, axis=1)))
    return _scaled(gram, jnp.asarray(scale, gram.dtype))


def rows(kernel: FeatureKernel, index: Int[Array, " b"]) -> Float[Array, "b n"]:
    """Return rows of Kg, without the scale.

    Raises:
        ValueError: no numbers of nodes; not checked where they are traced.
    """
    x = kernel.features
    index = _arrays.node_ids("index", index, len(kernel.scale))
    if isinstance(x, SparseRows):
        return _gram(kernel, (x.columns[index], x.values[index], x.squares()[index]))
    return _gram(kernel, (x[index],))


def diagonal(kernel: FeatureKernel) -> Float[Array, " n"]:
    """Return the diagonal of Kg, without the scale."""
    x, gamma = kernel.features, _gamma(kernel)
    if isinstance(x, SparseRows):
        of_inner = OF_INNER[kernel.gram_fn]
        full = jax.vmap(lambda square: of_inner(square[None], square, square, gamma))(
            x.squares()[:, None]
        )
    else:
        full = jax.vmap(lambda row: kernel.gram_fn(row, row, gamma))(x[:, None])
    return full[:, 0, 0]


def _near_zero(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Return x less its mean row, where that is most of every row: a year, say.

    Distances stay, but |x|^2 + |y|^2 - 2 <x, y> would be round-off.
    """
    mean = x.sum(axis=0, dtype=np.float64) / max(1, len(x))
    squares = np.einsum("ij,ij->", x, x, dtype=np.float64)
    if len(x) * float(mean @ mean) <= _MOST_OFFSET * squares:
        return x
    return (x - mean).astype(x.dtype)


def _on_device(x: Any) -> Float[Array, "n d"] | SparseRows:
    return _sparse_rows.build(x) if scipy.sparse.issparse(x) else jnp.asarray(x)


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
    return scale[:, None] * gram * scale[None, :]


def _gamma(kernel: FeatureKernel) -> Float[Array, ""]:
    # γ takes the features' type, so that a float64 γ does not promote float32 features.
    return jnp.asarray(kernel.gamma, kernel.features.dtype)


def _gram(kernel: FeatureKernel, part: tuple[Array, ...]) -> Float[Array, "b n"]:
    """Return rows of Kg, from these rows of the features (see ``rows``)."""
    x = kernel.features
    if isinstance(x, SparseRows):
        columns, values, squares = part
        inner = x.inner(columns, values)
        of_inner = OF_INNER[kernel.gram_fn]
        return of_inner(inner, squares, x.squares(), _gamma(kernel))
    return kernel.gram_fn(part[0], x, _gamma(kernel))


def _over_blocks(
    kernel: FeatureKernel,
    body: Callable[[Float[Array, "b n"], Int[Array, ""]], Float[Array, "b k"]],
    width: int,
    dtype: jnp.dtype,
) -> Float[Array, "n k"]:
    """Return what ``body`` makes of each row block of Kg and its first row's number.

    Results are written where they belong: stacked blocks would be held twice.
    """
    x, size = kernel.features, kernel.block_size
    num_nodes = x.shape[0]
    parts = (x.columns, x.values, x.squares()) if isinstance(x, SparseRows) else (x,)

    def write(i, result):
        first = jnp.minimum(i * size, num_nodes - size)
        block = [jax.lax.dynamic_slice_in_dim(part, first, size) for part in parts]
        made = body(_gram(kernel, tuple(block)), first)
        return jax.lax.dynamic_update_slice_in_dim(result, made, first, 0)

    result = jnp.zeros((num_nodes, width), dtype)
    return jax.lax.fori_loop(0, -(-num_nodes // max(size, 1)), write, result)


def _row_sums(kernel: FeatureKernel) -> Float[Array, " n"]:
    return kernel(jnp.ones((kernel.features.shape[0], 1), kernel.features.dtype))[:, 0]


def _matrix(kernel: FeatureKernel) -> Float[Array, "n n"]:
    def body(gram, first):
        own = jax.lax.dynamic_slice_in_dim(kernel.scale, first, kernel.block_size)
        return own[:, None] * gram * kernel.scale[None, :]

    x = kernel.features
    return _over_blocks(kernel, body, x.shape[0], x.dtype)
