"""Kernels of node features as linear maps, evaluated in row blocks.

A kernel is a function of two blocks of rows. Normalized it is Kn = Dk^-1/2 Kg Dk^-1/2,
Dk the row sums of Kg over all n nodes, which the paper's published step sizes
presuppose although its text leaves it out.

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

from gnnrp.kernels.features import inputs, pairwise, sparse_rows
from gnnrp.kernels.features.inputs import FeaturesLike
from gnnrp.kernels.features.sparse_rows import SparseRows
from gnnrp.runtime import arrays, checks, memory, tracing
from gnnrp.types import Scalar

GramFn = Callable[..., jax.Array]
"""(x, y, γ) -> the kernel of two blocks of rows, (b, d) and (n, d) -> (b, n)."""

_BLOCK_BYTES = 2**26  # of one row block of the kernel
_RETAINED_BYTES = 2**28  # of freed arrays up to 32 MiB, which glibc may not return
_MAX_OFFSET = 0.99  # share of the mean row in the squares


def linear(
    x: Float[Array, "b d"], y: Float[Array, "n d"], _: Scalar = 1.0
) -> Float[Array, "b n"]:
    """Return <x_i, y_j>."""
    return jnp.matmul(x, y.T, precision=jax.lax.Precision.HIGHEST)


def gaussian(
    x: Float[Array, "b d"], y: Float[Array, "n d"], gamma: Scalar
) -> Float[Array, "b n"]:
    """Return exp(-γ |x_i - y_j|^2), γ = 1 / (2 σ^2) for the bandwidth σ.

    Source: Eq. 114 (App. E.1).
    """
    return _exponential(pairwise.squared_distances(x, y, gamma), gamma)


def laplacian(
    x: Float[Array, "b d"], y: Float[Array, "n d"], gamma: Scalar
) -> Float[Array, "b n"]:
    """Return exp(-γ |x_i - y_j|_1)."""

    def body(total, columns):
        return total + jnp.abs(columns[0][:, None] - columns[1][None, :]), None

    start = jnp.zeros((x.shape[0], y.shape[0]), x.dtype)
    return jnp.exp(-gamma * jax.lax.scan(body, start, (x.T, y.T))[0])


def polynomial(
    x: Float[Array, "b d"],
    y: Float[Array, "n d"],
    gamma: Scalar,
    *,
    degree: int = 3,
    offset: float = 1.0,
) -> Float[Array, "b n"]:
    """Return (γ <x_i, y_j> + offset)^degree; PSD for γ > 0, offset >= 0."""
    return (gamma * linear(x, y) + offset) ** degree


def sigmoid(
    x: Float[Array, "b d"],
    y: Float[Array, "n d"],
    gamma: Scalar,
    *,
    offset: float = 0.0,
) -> Float[Array, "b n"]:
    """Return tanh(γ <x_i, y_j> + offset); not PSD in general."""
    return jnp.tanh(gamma * linear(x, y) + offset)


KERNELS: dict[str, GramFn] = {
    fn.__name__: fn for fn in (linear, gaussian, laplacian, polynomial, sigmoid)
}


def _exponential(distance: Float[Array, "b n"], gamma: Scalar) -> Float[Array, "b n"]:
    """Return exp(-γ d)."""
    # Rounding may leave a small negative distance between equal rows.
    return jnp.exp(-gamma * jnp.maximum(distance, 0))


# Kernels by name as functions of <x, y> and γ, which sparse rows can use.
_DOT_PRODUCT_FNS: dict[GramFn, Callable[[jax.Array, Scalar], jax.Array]] = {
    linear: lambda inner, _: inner,
    polynomial: lambda inner, gamma: (gamma * inner + 1.0) ** 3,
    sigmoid: lambda inner, gamma: jnp.tanh(gamma * inner),
}
# Kernels by name as exp(-γ d), d a sum of these terms of the differences.
_DISTANCE_TERMS: dict[GramFn, Callable[[jax.Array], jax.Array]] = {
    gaussian: jnp.square,
    laplacian: jnp.abs,
}


def gamma_from_bandwidth(bandwidth: float) -> float:
    """Return γ = 1 / (2 σ^2) of a bandwidth σ; both must be positive and finite."""
    checks.positive("bandwidth", bandwidth)
    with np.errstate(over="ignore", divide="ignore"):
        gamma = float(1 / (2 * np.float64(bandwidth) ** 2))
    checks.positive("gamma = 1 / (2 bandwidth^2)", gamma)
    return gamma


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class FeatureKernel:
    """V -> diag(scale) Kg (diag(scale) V), with row blocks of Kg in each product."""

    features: Float[Array, "n d"] | SparseRows
    scale: Float[Array, " n"]
    gamma: Scalar
    block_size: int = dataclasses.field(metadata={"static": True})
    gram_fn: GramFn = dataclasses.field(metadata={"static": True})

    @property
    def is_symmetric(self) -> bool | None:
        """True for the kernels of ``KERNELS``; None (unknown) for other functions."""
        return True if self.gram_fn in KERNELS.values() else None

    def __call__(self, v: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        """Return the product, with one block of rows in memory."""
        if v.ndim == 1:
            return self(v[:, None])[:, 0]
        checks.rows("V", v, len(self.scale))
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
    max_bytes: int | None = None,
) -> FeatureKernel:
    """Return the kernel of the features as a linear map.

    Args:
        features: dense or scipy sparse. If fewer than 4 percent of the entries are
            nonzero, and the kernel is one of ``KERNELS``, they are stored as sparse.
        kernel: a name from ``KERNELS``, or a function (x, y, γ) -> block. It is static
            under your own ``jit``; runs of this package trace it anew each time.
        gamma: γ of the kernel, positive; the linear kernel has none.
        normalized: Dk^-1/2 Kg Dk^-1/2 with Dk over all n rows, else Kg itself.
        block_bytes: memory of one row block.
        max_bytes: limit of the memory in use; that of the machine by default.

    Raises:
        ValueError: unknown kernel; γ out of range; features that are no finite matrix
            with a column, or do not fit; or, to normalize, a row sum not positive.
        TypeError: a kernel that is not a function, or features not real numbers.
    """
    if isinstance(kernel, str):
        checks.one_of("kernel", kernel, KERNELS)
        kernel = KERNELS[kernel]
    checks.function("kernel", kernel, f"or a name: {', '.join(KERNELS)}")
    checks.positive("gamma", gamma)
    checks.at_least("block_bytes", block_bytes, 0)
    x = inputs.validate(features)
    check_memory(x, kernel, memory.room(max_bytes), block_bytes=block_bytes)
    x = inputs.compress(x) if kernel in KERNELS.values() else inputs.as_dense(x)
    is_sparse, num_nodes = scipy.sparse.issparse(x), x.shape[0]
    if _depends_on_distance(kernel) and not is_sparse:
        checks.representable("features", x, jax.dtypes.canonicalize_dtype(x.dtype))
        x = _subtract_mean(x)
    x = inputs.as_float(x)
    checks.representable("gamma", gamma, x.dtype)
    if is_sparse:
        on_device: Any = sparse_rows.build(x)
        block_size = sparse_rows.block_size(on_device, block_bytes)
    else:
        on_device = jnp.asarray(x)
        row_bytes = max(1, num_nodes * x.dtype.itemsize)
        block_size = min(num_nodes, max(1, block_bytes // row_bytes))
    scale, gamma = jnp.ones(num_nodes, x.dtype), jnp.asarray(gamma, x.dtype)
    result = FeatureKernel(on_device, scale, gamma, block_size, kernel)
    if not normalized:
        return result
    scale = inverse_square_root(np.asarray(_row_sums(tracing.as_argument(result))))
    return dataclasses.replace(result, scale=jnp.asarray(scale, x.dtype))


def matrix(kernel: FeatureKernel) -> Float[Array, "n n"]:
    """Return the whole n x n matrix, faster where it fits and is used often."""
    checks.instance("kernel", kernel, FeatureKernel, "features.build makes one")
    return _matrix(tracing.as_argument(kernel))


def normalized_matrix(kernel: FeatureKernel) -> Float[Array, "n n"]:
    """Return Dk^-1/2 Kg Dk^-1/2 of a kernel built with ``normalized=False``.

    ``matrix`` of a normalized kernel is the same at twice the cost.

    Raises:
        ValueError: the kernel is normalized already, or a row sum is not positive.
    """
    checks.instance("kernel", kernel, FeatureKernel, "features.build makes one")
    if np.any(np.asarray(kernel.scale) != 1):
        msg = (
            "the kernel is normalized already; features.build(x, normalized=False) "
            "makes one that is not"
        )
        raise ValueError(msg)
    gram = matrix(kernel)
    scale = inverse_square_root(np.asarray(jnp.sum(gram, axis=1)))
    return _scale(gram, jnp.asarray(scale, gram.dtype))


def centered_matrix(kernel: FeatureKernel) -> Float[Array, "n n"]:
    """Return H K H of a kernel, H = I - 1 1^T / n: no function of it is constant."""
    return _center(matrix(kernel))


def rows(kernel: FeatureKernel, index: Int[Array, " b"]) -> Float[Array, "b n"]:
    """Return rows of Kg, without the scale; their node ids may be traced."""
    index = arrays.node_ids("index", index, len(kernel.scale))
    if isinstance(kernel.features, SparseRows):
        return _sparse_rows(kernel, index)
    return kernel.gram_fn(kernel.features[index], kernel.features, _gamma(kernel))


def diagonal(kernel: FeatureKernel) -> Float[Array, " n"]:
    """Return the diagonal of Kg, without the scale."""
    x, gamma = kernel.features, _gamma(kernel)
    if _depends_on_distance(kernel.gram_fn):
        return jnp.ones(x.shape[0], x.dtype)
    if isinstance(x, SparseRows):
        return _DOT_PRODUCT_FNS[kernel.gram_fn](x.sums(jnp.square), gamma)
    return jax.vmap(lambda row: kernel.gram_fn(row, row, gamma))(x[:, None])[:, 0, 0]


def _depends_on_distance(kernel: GramFn) -> bool:
    # By identity: not every kernel of a caller can be hashed.
    return any(kernel is known for known in _DISTANCE_TERMS)


def _subtract_mean(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Subtract the mean row if it dominates every row, as with a column of years.

    Distances stay the same, and float32 keeps more digits of the differences.
    """
    with np.errstate(over="ignore"):  # beyond float64, x stays unchanged
        mean = x.sum(axis=0, dtype=np.float64) / max(1, len(x))
        squares = np.einsum("ij,ij->", x, x, dtype=np.float64)
        if len(x) * float(mean @ mean) <= _MAX_OFFSET * squares:
            return x
    return (x - mean).astype(x.dtype)


def check_memory(
    features: Any,
    kernel: str | GramFn,
    room: memory.Room,
    *,
    block_bytes: int = _BLOCK_BYTES,
) -> None:
    """Refuse a kernel of features from ``validate`` that does not fit in memory."""
    named = isinstance(kernel, str) or kernel in KERNELS.values()
    (num_nodes, num_features), itemsize = features.shape, features.dtype.itemsize
    is_sparse = scipy.sparse.issparse(features)
    needed = dense_rows_bytes(num_nodes, num_features, block_bytes, itemsize=itemsize)
    remedy = "take fewer features"
    if is_sparse and named and inputs.is_compressible(features):
        sizes = features.nnz, num_features, block_bytes
        needed, remedy = sparse_rows_bytes(*sizes, itemsize=itemsize), "take fewer rows"
    elif is_sparse and not named:
        names = ", ".join(KERNELS)
        remedy = f"take a kernel that keeps sparse rows, by its name: {names}"
    what = f"the kernel of {num_nodes:,} rows of {num_features:,} features"
    memory.check(what, needed, room, remedy)


def matrix_bytes(num_nodes: int, *, itemsize: int) -> int:
    """Return the peak of ``normalized_matrix``: n x n, normalized in place."""
    return num_nodes**2 * itemsize + _BLOCK_BYTES + memory.RUNTIME


def dense_rows_bytes(
    num_nodes: int, num_features: int, block_bytes: int, *, itemsize: int
) -> int:
    """Return the peak of products in row blocks, from dense features."""
    block = min(block_bytes, num_nodes**2 * itemsize)
    return 2 * num_nodes * num_features * itemsize + 3 * block + memory.RUNTIME


def sparse_rows_bytes(
    num_entries: int, num_features: int, block_bytes: int, *, itemsize: int
) -> int:
    """Return the peak of products in row blocks, from sparse features.

    The layout of the entries, and a dense block of 1 to 128 rows without empty columns.
    """
    row = min(num_features, num_entries) * itemsize
    block = max(row, min(block_bytes, 128 * row))
    layout = num_entries * (40 + 4 * itemsize)
    retained = min(layout, _RETAINED_BYTES)
    total = layout + retained + 9 * num_features + 1.4 * block
    return int(total) + memory.RUNTIME


def inverse_square_root(sums: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return Dk^-1/2 of row sums, which must be positive and finite."""
    usable = (sums > 0) & np.isfinite(sums)
    if not usable.all():
        where = int(np.argmin(usable))
        msg = (
            f"row sums of a normalized kernel must be positive and finite, got "
            f"{sums[where]} in row {where}; take another kernel or gamma, or, in "
            "Python, features.build(x, normalized=False)"
        )
        raise ValueError(msg)
    return 1 / np.sqrt(sums)


@functools.partial(jax.jit, donate_argnums=0)
def _scale(gram: Float[Array, "n n"], scale: Float[Array, " n"]) -> Float[Array, "n n"]:
    return scale[:, None] * gram * scale[None, :]


@functools.partial(jax.jit, donate_argnums=0)
def _center(gram: Float[Array, "n n"]) -> Float[Array, "n n"]:
    means = jnp.mean(gram, axis=1)
    return gram - means[:, None] - means[None, :] + jnp.mean(means)


def _gamma(kernel: FeatureKernel) -> Float[Array, ""]:
    # γ takes the features' type, so that a float64 γ does not promote float32 features.
    return jnp.asarray(kernel.gamma, kernel.features.dtype)


@jax.jit
def _sparse_rows(kernel: FeatureKernel, index: Int[Array, " b"]) -> Float[Array, "b n"]:
    """Return rows of Kg of sparse features."""
    x: Any = kernel.features
    gamma = _gamma(kernel)
    if kernel.gram_fn in _DOT_PRODUCT_FNS:
        return _DOT_PRODUCT_FNS[kernel.gram_fn](x.inner(index), gamma)
    term_fn = _DISTANCE_TERMS[kernel.gram_fn]
    return _exponential(x.distances(index, gamma, term_fn), gamma)


def _over_blocks(
    kernel: FeatureKernel, body: Callable[..., Array], width: int, dtype: jnp.dtype
) -> Float[Array, "n k"]:
    """Return body(block, first row) of all row blocks of Kg, stacked.

    The blocks have equally many rows, so the last one begins early and repeats some.
    Each result is written in place: stacking would hold all blocks twice.
    """
    num_nodes, size = len(kernel.scale), kernel.block_size

    def write(i, result):
        first = jnp.minimum(i * size, num_nodes - size)
        block = body(rows(kernel, first + jnp.arange(size)), first)
        return jax.lax.dynamic_update_slice_in_dim(result, block, first, 0)

    result = jnp.zeros((num_nodes, width), dtype)
    return jax.lax.fori_loop(0, -(-num_nodes // max(size, 1)), write, result)


@tracing.Jit
def _row_sums(kernel: Any) -> Float[Array, " n"]:
    kernel = tracing.unwrap(kernel)
    return kernel(jnp.ones((kernel.features.shape[0], 1), kernel.features.dtype))[:, 0]


@tracing.Jit
def _matrix(kernel: Any) -> Float[Array, "n n"]:
    kernel = tracing.unwrap(kernel)

    def body(gram, first):
        own = jax.lax.dynamic_slice_in_dim(kernel.scale, first, kernel.block_size)
        return own[:, None] * gram * kernel.scale[None, :]

    x = kernel.features
    return _over_blocks(kernel, body, x.shape[0], x.dtype)
