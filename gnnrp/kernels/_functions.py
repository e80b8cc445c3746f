"""Kernel functions of two blocks of rows, (b, d) and (n, d) -> (b, n); by name."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gnnrp import _checks
from gnnrp.types import Scalar

GramFn = Callable[..., jax.Array]


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
    squares = jnp.sum(x**2, axis=1), jnp.sum(y**2, axis=1)
    return _gaussian(linear(x, y), *squares, gamma)


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
    "linear": linear,
    "gaussian": gaussian,
    "laplacian": laplacian,
    "polynomial": polynomial,
    "sigmoid": sigmoid,
}


def _gaussian(inner, x_squares, y_squares, gamma):
    square = (x_squares[:, None] + y_squares[None, :]) - 2 * inner
    # Rounding may leave a small negative square where rows are equal.
    return jnp.exp(-gamma * jnp.maximum(square, 0))


# The same from inner products and squared norms, which sparse rows give.
OF_INNER: dict[GramFn, Callable[..., jax.Array]] = {
    linear: lambda inner, *_: inner,
    gaussian: _gaussian,
    polynomial: lambda inner, _x, _y, gamma: (gamma * inner + 1.0) ** 3,
    sigmoid: lambda inner, _x, _y, gamma: jnp.tanh(gamma * inner),
}


def gamma_from_bandwidth(bandwidth: float) -> float:
    """Return γ = 1 / (2 σ^2) of the Gaussian kernel with bandwidth σ.

    Raises:
        ValueError: σ or γ is not positive and finite.
    """
    _checks.positive("bandwidth", bandwidth)
    with np.errstate(over="ignore", divide="ignore"):
        gamma = float(1 / (2 * np.float64(bandwidth) ** 2))
    _checks.positive("gamma = 1 / (2 bandwidth^2)", gamma)
    return gamma
