"""Expectations of activations of two Gaussians, behind the kernels of wide networks.

For (u, v) centered and jointly Gaussian with variances a, b and covariance c,

    T(c, a, b) = E[φ(u) φ(v)],        Td(c, a, b) = E[φ'(u) φ'(v)],

elementwise, without the factor c_σ = 1 / E[φ(z)^2], z of N(0, 1). Differentiable
everywhere: at correlations ±1, where Td has no derivative, it is set to zero.

Source: Def. 4.1 (its expectations); Cho and Saul 2009 for ReLU, Williams 1997 for erf.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gnnrp.runtime import checks

ExpectationFn: TypeAlias = Callable[[Array, Array, Array], Array]
"""(covariance, variance of u, variance of v) -> an expectation, elementwise."""

_PARALLEL_ULPS = 8  # rounding of c, a and b of parallel vectors, as sums in blocks


class Pointwise(NamedTuple):
    """φ itself and its parts of degree 0 and 1, for random features.

    For h of N(0, σ²), φ(h) = μ + α h + rest, where the rest has mean 0 and is
    uncorrelated with h: μ = E[φ(h)], α = E[φ'(h)].
    """

    function: Callable[[Array], Array]  # φ
    derivative: Callable[[Array], Array]  # φ'
    mean: Callable[[Array], Array]  # σ -> μ
    slope: Callable[[Array], Array]  # σ -> α
    is_linear: bool = False  # φ = α h: nothing is left


class Activation(NamedTuple):
    """The two expectations of φ and its usual scale."""

    covariance: ExpectationFn  # T
    derivative: ExpectationFn  # Td
    scale: float  # c_σ, which the paper never states; 2 for ReLU
    stax_layer: Any = None  # φ in neural-tangents, if it was made from that
    pointwise: Pointwise | None = None


def snap_parallel(
    covariance: Float[Array, "..."], a: Float[Array, "..."], b: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Return c, rounded to ±sqrt(a b) where it lies within a few ulps of it.

    The covariance of parallel vectors is a sum with its own rounding, and an ulp of the
    correlation at 1 costs arccos half of its digits. The derivative stays that of c.
    """
    size = _size(covariance, a, b)
    most = _PARALLEL_ULPS * jnp.finfo(size.dtype).eps * size
    parallel = jnp.abs(jnp.abs(covariance) - size) <= most
    exact = jnp.where(covariance < 0, -size, size)
    gap = jnp.where(parallel, exact - covariance, 0)
    return covariance + jax.lax.stop_gradient(gap)


def _size(covariance: Array, a: Array, b: Array) -> Array:
    """Return sqrt(a b), and exactly a where ±c = a = b.

    The product of the roots neither overflows nor underflows where a and b do not.
    """
    size = _root(a) * _root(b)
    same = (jnp.abs(covariance) == a) & (a == b)
    # The derivative stays that of the root: the difference is a constant.
    return size + jax.lax.stop_gradient(jnp.where(same, a - size, 0))


def _correlation(covariance: Array, size: Array) -> Array:
    """Return c / sqrt(a b), exactly ±1 where c = ±sqrt(a b); 0 if a b = 0.

    A quotient may be compiled as a product with an approximate inverse, so ±1 is set
    explicitly. A clip here, at values beyond ±1, would halve the derivative at 1.
    """
    positive = size > 0
    ratio = covariance / jnp.where(positive, size, 1)
    unit = jnp.where(covariance < 0, -1, 1).astype(ratio.dtype)
    # The derivative stays that of the ratio: the difference is a constant.
    gap = jnp.where(jnp.abs(covariance) == size, unit - ratio, 0)
    ratio = ratio + jax.lax.stop_gradient(gap)
    return jnp.where(positive, ratio, 0)


def _series(num_terms: int) -> np.ndarray:
    """Return asin(s) / s at s^2 in [0, 1/2] as a Chebyshev series in 4 s^2 - 1."""
    angles = (np.arange(4 * num_terms, dtype=np.longdouble) + 0.5) / (4 * num_terms)
    angles = angles * np.pi
    s = np.cos(angles / 2) / np.sqrt(np.longdouble(2))
    waves = np.cos(np.arange(num_terms)[:, None] * angles)
    terms = 2 * (waves @ (np.arcsin(s) / s)) / len(angles)
    terms[0] /= 2
    return terms.astype(np.float64)


_SERIES = _series(24)  # whose terms fall like 5.83^-k
_NUM_TERMS = {jnp.dtype("float32"): 12, jnp.dtype("float64"): 24}


def _arccos(x: Array) -> Array:
    """Return arccos x = 2 asin(s), s^2 = (1 - |x|) / 2, ten times as fast as XLA."""
    square = (1 - jnp.abs(x)) / 2
    u = 4 * square - 1
    later = last = jnp.zeros_like(x)
    terms = _SERIES[: _NUM_TERMS.get(x.dtype, 24)]
    for term in terms[:0:-1]:
        later, last = float(term) + 2 * u * later - last, later
    angle = 2 * jnp.sqrt(square) * (float(terms[0]) + u * later - last)
    return jnp.where(x < 0, jnp.pi - angle, angle)


@jax.custom_jvp
def _share(rho: Array) -> Array:
    """P(u > 0, v > 0) = (π - arccos ρ) / (2 π)."""
    return (jnp.pi - _arccos(jnp.clip(rho, -1, 1))) / (2 * jnp.pi)


@_share.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (rho,), (rate,) = primals, tangents
    inside = (1 - rho) * (1 + rho)
    slope = jnp.where(inside > 0, jax.lax.rsqrt(jnp.where(inside > 0, inside, 1)), 0)
    return _share(rho), rate * slope / (2 * jnp.pi)


@jax.custom_jvp
def _half_product(rho: Array) -> Array:
    """E[relu(u) relu(v)] of unit variances, (sin θ + (π - θ) ρ) / (2 π)."""
    rho = jnp.clip(rho, -1, 1)
    sine = jnp.sqrt((1 - rho) * (1 + rho))  # ρ^2 would round
    return sine / (2 * jnp.pi) + _share(rho) * rho


@_half_product.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (rho,), (rate,) = primals, tangents
    return _half_product(rho), rate * _share(rho)  # dT/dρ = Td, at ρ = 1 too


def _relu_covariance(c: Array, a: Array, b: Array) -> Array:
    size = _size(c, a, b)
    return size * _half_product(_correlation(c, size))


def _relu_derivative(c: Array, a: Array, b: Array) -> Array:
    return _share(_correlation(c, _size(c, a, b)))


def _root(x: Array) -> Array:
    """Return sqrt(x), with derivative zero at zero."""
    positive = x > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1)), 0)


def _leaky_pointwise(slope: float) -> Pointwise:
    """Return φ(h) = max(h, 0) + s min(h, 0); at 0, φ' is the mean of both sides."""
    half = (1 + slope) / 2
    return Pointwise(
        lambda h: jnp.where(h > 0, h, slope * h),
        lambda h: half + (1 - half) * jnp.sign(h),
        lambda sigma: (1 - slope) / np.sqrt(2 * np.pi) * sigma,
        lambda sigma: jnp.full_like(sigma, half),
        is_linear=slope == 1,
    )


RELU = Activation(
    _relu_covariance, _relu_derivative, 2.0, pointwise=_leaky_pointwise(0.0)
)

IDENTITY = Activation(
    lambda c, _a, _b: c,
    lambda c, _a, _b: jnp.ones_like(c),
    1.0,
    pointwise=_leaky_pointwise(1.0),
)


def leaky_relu(slope: float) -> Activation:
    """Return max(z, 0) + s min(z, 0): the parts z > 0 and z < 0 of ReLU, weighted.

    T = (1 + s^2) T_relu(c) - 2 s T_relu(-c), and Td = (1 + s^2) Td_relu(c) + 2 s
    Td_relu(-c). c_σ = 2 / (1 + s^2).

    Raises:
        ValueError: the slope s is not finite.
    """
    if not np.isfinite(checks.number("slope", slope)):
        msg = f"slope must be finite, got {slope}"
        raise ValueError(msg)
    even, mixed = 1 + slope**2, 2 * slope

    def covariance(c, a, b):
        opposite = _relu_covariance(-c, a, b)
        return even * _relu_covariance(c, a, b) - mixed * opposite

    def derivative(c, a, b):
        opposite = _relu_derivative(-c, a, b)
        return even * _relu_derivative(c, a, b) + mixed * opposite

    pointwise = _leaky_pointwise(float(slope))
    return Activation(covariance, derivative, 2 / even, pointwise=pointwise)


def _erf_sides(c: Array, a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Return s, sqrt(1 - s^2) and r = 1 / sqrt((1 + 2a) (1 + 2b)), with s = 2 c r.

    1 - s^2 is a sum of positive terms: from s, it would lose its digits at large a or
    b.
    """
    p, q = 1 / (1 + 2 * a), 1 / (1 + 2 * b)
    r = jnp.sqrt(p) * jnp.sqrt(q)
    s, most = 2 * c * r, 2 * _size(c, a, b) * r
    gap = (most - s) * (most + s)
    rest = p + q * (1 - p) + jnp.where(gap < 0, 0, gap)  # with the derivative at zero
    return s, jnp.sqrt(rest), r


def _erf_covariance(c: Array, a: Array, b: Array) -> Array:
    s, cosine, _ = _erf_sides(c, a, b)
    return 2 / jnp.pi * jnp.arctan2(s, cosine)


def _erf_derivative(c: Array, a: Array, b: Array) -> Array:
    _, cosine, r = _erf_sides(c, a, b)
    return 4 / jnp.pi * r / cosine


ERF = Activation(
    _erf_covariance,
    _erf_derivative,
    float(np.pi / 2 / np.arcsin(2 / 3)),
    pointwise=Pointwise(
        jax.scipy.special.erf,
        lambda h: 2 / np.sqrt(np.pi) * jnp.exp(-(h**2)),
        jnp.zeros_like,
        lambda sigma: 2 / np.sqrt(np.pi) / jnp.sqrt(1 + 2 * sigma**2),
    ),
)

ACTIVATIONS = {
    "relu": RELU,
    "leaky_relu": leaky_relu(0.01),
    "erf": ERF,
    "identity": IDENTITY,
}


def by_name(name: str) -> Activation:
    """Return the activation of that name; "leaky_relu" has slope 0.01."""
    checks.one_of("activation", name, ACTIVATIONS)
    return ACTIVATIONS[name]
