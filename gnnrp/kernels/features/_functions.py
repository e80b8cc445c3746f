"""Kernel functions of two blocks of rows, (b, d) and (n, d) -> (b, n)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gnnrp.kernels.features import pairwise
from gnnrp.runtime import checks
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
    return of_distance(pairwise.squared(x, y, gamma), gamma)


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


def of_distance(distance: Float[Array, "b n"], gamma: Scalar) -> Float[Array, "b n"]:
    """Return exp(-γ d)."""
    # Rounding may leave a small negative distance between equal rows.
    return jnp.exp(-gamma * jnp.maximum(distance, 0))


# Kernels by name as functions of <x, y> and γ, which sparse rows can use.
OF_INNER: dict[GramFn, Callable[[jax.Array, Scalar], jax.Array]] = {
    linear: lambda inner, _: inner,
    polynomial: lambda inner, gamma: (gamma * inner + 1.0) ** 3,
    sigmoid: lambda inner, gamma: jnp.tanh(gamma * inner),
}
# Kernels by name as exp(-γ d), d a sum of these terms of the differences.
TERMS: dict[GramFn, Callable[[jax.Array], jax.Array]] = {
    gaussian: jnp.square,
    laplacian: jnp.abs,
}


def gamma_from_bandwidth(bandwidth: float) -> float:
    """Return γ = 1 / (2 σ^2) of the Gaussian kernel with bandwidth σ.

    Raises:
        ValueError: σ or γ is not positive and finite.
    """
    checks.positive("bandwidth", bandwidth)
    with np.errstate(over="ignore", divide="ignore"):
        gamma = float(1 / (2 * np.float64(bandwidth) ** 2))
    checks.positive("gamma = 1 / (2 bandwidth^2)", gamma)
    return gamma
