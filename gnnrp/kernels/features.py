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
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float

from gnnrp import _checks
from gnnrp.types import Scalar

_BLOCK_BYTES = 2**26  # of one row block of the kernel

GramFn = Callable[..., jax.Array]
FeaturesLike: TypeAlias = (
    np.ndarray | jax.Array | scipy.sparse.sparray | scipy.sparse.spmatrix
)


def linear(
    x: Float[Array, "b d"], y: Float[Array, "n d"], _: Scalar = 1.0
) -> Float[Array, "b n"]:
    """Return <x_i, y_j>."""
    return jnp.matmul(x, y.T, precision=jax.lax.Precision.HIGHEST)


def gaussian(
    x: Float[Array, "b d"], y: Float[Array, "n d"], gamma: Scalar
) -> Float[Array, "b n"]:
    """Return exp(-γ |x_i - y_j|^2), γ = 1 / (2 σ^2) for the bandwidth σ.

    Source: below Eq. 32 (App. E.1).
    """
    square = (jnp.sum(x**2, axis=1)[:, None] + jnp.sum(y**2, axis=1)) - 2 * linear(x, y)
    # Rounding may leave a small negative square where rows are equal.
    return jnp.exp(-gamma * jnp.maximum(square, 0))


def laplacian(
    x: Float[Array, "b d"], y: Float[Array, "n d"], gamma: Scalar
) -> Float[Array, "b n"]:
    """Return exp(-γ |x_i - y_j|_1)."""

    def body(total, columns):
        return total + jnp.abs(columns[0][:, None] - columns[1]), None

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
    "linear": linear,
    "gaussian": gaussian,
    "laplacian": laplacian,
    "polynomial": polynomial,
    "sigmoid": sigmoid,
}


def gamma_from_bandwidth(bandwidth: float) -> float:
    """Return γ = 1 / (2 σ^2) of the Gaussian kernel with bandwidth σ.

    Raises:
        ValueError: σ is not positive and finite.
    """
    _checks.positive("bandwidth", bandwidth)
    return 1 / (2 * bandwidth**2)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class FeatureKernel:
    """V -> diag(scale) Kg (diag(scale) V), Kg evaluated block by block at each product.

    The features carry a few rows of padding, so that all blocks are equal; their scale
    is zero.
    """

    features: Float[Array, "p d"]
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
        features: dense or scipy sparse; a sparse one is held densely, n x d.
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
    x = jnp.asarray(as_dense(features))
    num_nodes = x.shape[0]
    block_size = max(1, min(num_nodes, block_bytes // max(1, num_nodes * x.itemsize)))
    padding = -num_nodes % block_size
    inside = jnp.arange(num_nodes + padding) < num_nodes
    result = FeatureKernel(
        # The padding repeats a row: a kernel need not be finite at any other point.
        features=jnp.pad(x, ((0, padding), (0, 0)), mode="edge"),
        scale=inside.astype(x.dtype),
        gamma=jnp.asarray(gamma, x.dtype),
        num_nodes=num_nodes,
        block_size=block_size,
        gram_fn=kernel,
    )
    if not normalized:
        return result
    scale = _checked_scale(np.asarray(jax.jit(_row_sums)(result)))
    scale = jnp.pad(jnp.asarray(scale, x.dtype), (0, padding))
    return dataclasses.replace(result, scale=scale)


def matrix(kernel: FeatureKernel) -> Float[Array, "n n"]:
    """Return the whole n x n matrix, for one that fits memory and is used often."""
    return jax.jit(_matrix)(kernel)


def normalized_matrix(kernel: FeatureKernel) -> Float[Array, "n n"]:
    """Return Dk^-1/2 Kg Dk^-1/2 of a kernel built with ``normalized=False``.

    The same as ``matrix`` of a normalized one, at half the cost: Kg is evaluated once.

    Raises:
        ValueError: a row sum is not positive and finite.
    """
    gram = matrix(kernel)
    scale = _checked_scale(np.asarray(jnp.sum(gram, axis=1)))
    return _scaled(gram, jnp.asarray(scale, gram.dtype))


def row_normalized(features: FeaturesLike) -> np.ndarray:
    """Return the features less their global minimum, each row over max(its sum, 1).

    It is what the published Planetoid and Coauthor numbers were made with.
    """
    x = as_dense(features)
    x = x - x.min(initial=np.inf) if x.size else x
    return x / np.maximum(x.sum(axis=1, keepdims=True), 1)


def as_dense(features: FeaturesLike) -> np.ndarray:
    """Return the features as a dense floating matrix on the host.

    Raises:
        ValueError: not a matrix, or not finite.
    """
    x = features.toarray() if scipy.sparse.issparse(features) else np.asarray(features)  # pyright: ignore[reportAttributeAccessIssue]
    if x.ndim != 2:
        msg = f"features must have shape (n, d), got {x.shape}"
        raise ValueError(msg)
    if not np.issubdtype(x.dtype, np.floating):
        x = x.astype(np.float32)
    if not np.isfinite(x).all():
        row = int(np.argmin(np.isfinite(x).all(axis=1)))
        msg = f"features must be finite, and row {row} is not"
        raise ValueError(msg)
    return x


def _checked_scale(sums: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return 1 / sqrt of the row sums.

    Raises:
        ValueError: one is not positive and finite.
    """
    usable = (sums > 0) & np.isfinite(sums)
    if not usable.all():
        where = int(np.argmin(usable))
        msg = (
            f"the kernel's row {where} sums to {sums[where]}, which no square root "
            "scales; pass normalized=False or a kernel with positive, finite row sums"
        )
        raise ValueError(msg)
    return 1 / np.sqrt(sums)


@functools.partial(jax.jit, donate_argnums=0)
def _scaled(
    gram: Float[Array, "n n"], scale: Float[Array, " n"]
) -> Float[Array, "n n"]:
    return scale[:, None] * gram * scale


def _blocks(kernel: FeatureKernel) -> Float[Array, "q b d"]:
    num_rows, num_features = kernel.features.shape
    num_blocks = num_rows // kernel.block_size
    return kernel.features.reshape(num_blocks, kernel.block_size, num_features)


def _gram(kernel: FeatureKernel, block: Float[Array, "b d"]) -> Float[Array, "b p"]:
    # γ takes the features' type, so that a float64 γ does not promote float32 features.
    gamma = jnp.asarray(kernel.gamma, kernel.features.dtype)
    return kernel.gram_fn(block, kernel.features, gamma)


def _blocked(kernel: FeatureKernel, v: Float[Array, "p k"]) -> Float[Array, "p k"]:
    def body(block):
        gram = _gram(kernel, block)
        return jnp.matmul(gram, v, precision=jax.lax.Precision.HIGHEST)

    return jax.lax.map(body, _blocks(kernel)).reshape(v.shape)


def _row_sums(kernel: FeatureKernel) -> Float[Array, " n"]:
    return _blocked(kernel, kernel.scale[:, None])[: kernel.num_nodes, 0]


def _matrix(kernel: FeatureKernel) -> Float[Array, "n n"]:
    def body(block):
        return _gram(kernel, block)[:, : kernel.num_nodes]

    gram = jax.lax.map(body, _blocks(kernel)).reshape(-1, kernel.num_nodes)
    scale = kernel.scale[: kernel.num_nodes]
    return scale[:, None] * gram[: kernel.num_nodes] * scale
