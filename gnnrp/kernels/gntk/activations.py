"""Expectations of activations of two Gaussians, behind the kernels of wide networks.

For (u, v) centered and jointly Gaussian with variances a, b and covariance c,

    T(c, a, b) = E[φ(u) φ(v)],        Td(c, a, b) = E[φ'(u) φ'(v)],

elementwise, without the factor c_σ = 1 / E[φ(z)^2], z of N(0, 1). Differentiable
everywhere: at correlations ±1, where Td has no derivative, it is set to zero.

Source: Def. 4.1 (its expectations); Cho and Saul 2009 for ReLU, Williams 1997 for erf,
Tsuchida et al. 2021 (arXiv 2002.08517) for GELU, and Han et al. 2022 (arXiv 2209.04121)
for the others.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gnnrp.kernels.gntk._correlation import arccos, correlation, size_of
from gnnrp.runtime import checks

ExpectationFn: TypeAlias = Callable[[Array, Array, Array], Array]
"""(covariance, variance of u, variance of v) -> an expectation, elementwise."""


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


@jax.custom_jvp
def _share(rho: Array) -> Array:
    """P(u > 0, v > 0) = (π - arccos ρ) / (2 π)."""
    return (jnp.pi - arccos(jnp.clip(rho, -1, 1))) / (2 * jnp.pi)


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
    size = size_of(c, a, b)
    return size * _half_product(correlation(c, size))


def _relu_derivative(c: Array, a: Array, b: Array) -> Array:
    return _share(correlation(c, size_of(c, a, b)))


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
    s, most = 2 * c * r, 2 * size_of(c, a, b) * r
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


def _gelu_covariance(c: Array, a: Array, b: Array) -> Array:
    s, cosine, r = _erf_sides(c / 2, a / 2, b / 2)
    angle = jnp.arctan2(s, cosine)
    rest = r * (s**2 / cosine + a * b * cosine) + c * angle
    return c / 4 + rest / (2 * jnp.pi)


def _gelu_derivative(c: Array, a: Array, b: Array) -> Array:
    s, cosine, r = _erf_sides(c / 2, a / 2, b / 2)
    rest = s / cosine * (1 + r**2 * (1 - a * b) + (r / cosine) ** 2)
    return 0.25 + (jnp.arctan2(s, cosine) + rest) / (2 * jnp.pi)


GELU = Activation(
    _gelu_covariance,
    _gelu_derivative,
    1 / (1 / 3 + 1 / (2 * math.sqrt(3) * math.pi)),
    pointwise=Pointwise(
        lambda h: h * jax.scipy.special.ndtr(h),
        lambda h: (
            jax.scipy.special.ndtr(h) + h * jnp.exp(-(h**2) / 2) / np.sqrt(2 * np.pi)
        ),
        lambda sigma: sigma**2 / jnp.sqrt(2 * np.pi * (1 + sigma**2)),
        lambda sigma: jnp.full_like(sigma, 0.5),
    ),
)

_FLATTER = 1 / 2.4020563531719796  # at which erf is closest to the logistic function


def _sigmoid_like_covariance(c: Array, a: Array, b: Array) -> Array:
    square = _FLATTER**2
    return (1 + _erf_covariance(square * c, square * a, square * b)) / 4


def _sigmoid_like_derivative(c: Array, a: Array, b: Array) -> Array:
    square = _FLATTER**2
    return square * _erf_derivative(square * c, square * a, square * b) / 4


SIGMOID_LIKE = Activation(
    _sigmoid_like_covariance,
    _sigmoid_like_derivative,
    4 / (1 + 2 / math.pi * math.asin(2 / (2 + _FLATTER**-2))),
    pointwise=Pointwise(
        lambda h: (1 + jax.scipy.special.erf(_FLATTER * h)) / 2,
        lambda h: _FLATTER / np.sqrt(np.pi) * jnp.exp(-((_FLATTER * h) ** 2)),
        lambda sigma: jnp.full_like(sigma, 0.5),
        lambda sigma: _FLATTER / jnp.sqrt(np.pi * (1 + 2 * (_FLATTER * sigma) ** 2)),
    ),
)


def _waves(c: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """Return E[cos(u - v)] and E[cos(u + v)]."""
    mean = (a + b) / 2
    return jnp.exp(c - mean), jnp.exp(-c - mean)


def _sin_covariance(c: Array, a: Array, b: Array) -> Array:
    difference, total = _waves(c, a, b)
    return (difference - total) / 2


def _cos_covariance(c: Array, a: Array, b: Array) -> Array:
    difference, total = _waves(c, a, b)
    return (difference + total) / 2


SIN = Activation(
    _sin_covariance,
    _cos_covariance,
    2 / (1 - math.exp(-2)),
    pointwise=Pointwise(
        jnp.sin, jnp.cos, jnp.zeros_like, lambda sigma: jnp.exp(-(sigma**2) / 2)
    ),
)

COS = Activation(
    _cos_covariance,
    _sin_covariance,
    2 / (1 + math.exp(-2)),
    pointwise=Pointwise(
        jnp.cos,
        lambda h: -jnp.sin(h),
        lambda sigma: jnp.exp(-(sigma**2) / 2),
        jnp.zeros_like,
    ),
)

# sin(sqrt(2) z) + cos(sqrt(2) z), whose T is the RBF kernel exp(-Var(u - v)).
RBF = Activation(
    lambda c, a, b: _waves(2 * c, 2 * a, 2 * b)[0],
    lambda c, a, b: 2 * _waves(2 * c, 2 * a, 2 * b)[0],
    1.0,
    pointwise=Pointwise(
        lambda h: jnp.sin(np.sqrt(2) * h) + jnp.cos(np.sqrt(2) * h),
        lambda h: np.sqrt(2) * (jnp.cos(np.sqrt(2) * h) - jnp.sin(np.sqrt(2) * h)),
        lambda sigma: jnp.exp(-(sigma**2)),
        lambda sigma: np.sqrt(2) * jnp.exp(-(sigma**2)),
    ),
)


def _exp_covariance(c: Array, a: Array, b: Array) -> Array:
    return jnp.exp(c + (a + b) / 2)


# Without pointwise parts: its samples have tails that no sample size covers.
EXP = Activation(_exp_covariance, _exp_covariance, math.exp(-2))


def _gaussian_covariance(c: Array, a: Array, b: Array) -> Array:
    _, cosine, r = _erf_sides(c, a, b)
    return r / cosine


def _gaussian_derivative(c: Array, a: Array, b: Array) -> Array:
    s, cosine, r = _erf_sides(c, a, b)
    return 2 * s * r**2 / cosine**3


GAUSSIAN = Activation(  # exp(-z^2)
    _gaussian_covariance,
    _gaussian_derivative,
    math.sqrt(5),
    pointwise=Pointwise(
        lambda h: jnp.exp(-(h**2)),
        lambda h: -2 * h * jnp.exp(-(h**2)),
        lambda sigma: 1 / jnp.sqrt(1 + 2 * sigma**2),
        jnp.zeros_like,
    ),
)


def _gabor_terms(c: Array, a: Array, b: Array) -> tuple[Array, ...]:
    """Return (1 + a + b) / 2, w and both waves of (u, v) weighted by exp(-u^2 - v^2).

    The weight makes Gaussians of covariance Σ (I + 2 Σ)^-1, and w = 1 / |I + 2 Σ|.
    """
    half, w = (1 + a + b) / 2, _gaussian_covariance(c, a, b) ** 2
    return half, w, jnp.exp(w * (half + c) - 0.5), jnp.exp(w * (half - c) - 0.5)


def _gabor_covariance(c: Array, a: Array, b: Array) -> Array:
    _, w, difference, total = _gabor_terms(c, a, b)
    return jnp.sqrt(w) * (difference - total) / 2


def _gabor_derivative(c: Array, a: Array, b: Array) -> Array:
    half, w, difference, total = _gabor_terms(c, a, b)
    first = difference * (1 + 4 * c * (1 + 2 * w * (half + c)))
    second = total * (1 - 4 * c * (1 + 2 * w * (half - c)))
    return w**1.5 * (first + second) / 2


GABOR = Activation(  # exp(-z^2) sin z
    _gabor_covariance,
    _gabor_derivative,
    2 * math.sqrt(5) / (1 - math.exp(-2 / 5)),
    pointwise=Pointwise(
        lambda h: jnp.exp(-(h**2)) * jnp.sin(h),
        lambda h: jnp.exp(-(h**2)) * (jnp.cos(h) - 2 * h * jnp.sin(h)),
        jnp.zeros_like,
        lambda sigma: (
            jnp.exp(-(sigma**2) / (2 + 4 * sigma**2)) / (1 + 2 * sigma**2) ** 1.5
        ),
    ),
)


def polynomial(coefficients: Sequence[float]) -> Activation:
    """Return k_0 + k_1 z + k_2 z^2 + ..., exact at every variance.

    T = Σ_l c^l / l! g_l(a) g_l(b), with g_l(a) = E[φ^(l)(u)], and Td from g_{l+1}.

    Args:
        coefficients: k, from the constant on.

    Raises:
        ValueError: no coefficient, one that is not finite, or all zero.
    """
    k = np.array([
        checks.number("each coefficient", each)
        for each in checks.nonempty_list("coefficients", coefficients)
    ])
    if not np.isfinite(k).all() or not k.any():
        msg = f"coefficients must be finite and not all zero, got {k.tolist()}"
        raise ValueError(msg)
    phi = np.polynomial.Polynomial(k)
    # g_l as polynomials of a.
    means = [_moments(phi.deriv(order)) for order in range(len(k) + 1)]

    def sum_from(first: int) -> ExpectationFn:
        def expectation(c: Array, a: Array, b: Array) -> Array:
            total = jnp.zeros_like(c)
            for order in range(first, len(k)):
                g = means[order]
                power = c ** (order - first) / math.factorial(order - first)
                total = total + power * _horner(g, a) * _horner(g, b)
            return total

        return expectation

    squares = [
        _horner(g, 1.0) ** 2 / math.factorial(order) for order, g in enumerate(means)
    ]
    slope = phi.deriv()
    return Activation(
        sum_from(0),
        sum_from(1),
        1 / sum(squares),
        pointwise=Pointwise(
            functools.partial(_horner, phi.coef),
            functools.partial(_horner, slope.coef),
            lambda sigma: _horner(means[0], sigma**2),
            lambda sigma: _horner(means[1], sigma**2),
            is_linear=not k[0] and not k[2:].any(),
        ),
    )


def _moments(phi: np.polynomial.Polynomial) -> np.ndarray:
    """Return the coefficients of E[φ(u)] in a = E[u^2], by E[u^2i] = (2i-1)!! a^i."""
    even = np.asarray(phi.coef[::2], np.float64)
    return even * np.cumprod([1, *range(1, 2 * len(even) - 2, 2)])


def _horner(coefficients: np.ndarray, x: Any) -> Any:
    """Evaluate a polynomial without a constant array, of the floating type of x."""
    return functools.reduce(
        lambda total, each: total * x + float(each), coefficients[::-1], 0 * x
    )


def hermite(degree: int) -> Activation:
    """Return the Hermite polynomial He_k, scaled to E[φ(z)^2] = 1.

    At unit variance, T = c^k.

    Args:
        degree: k, from 1 to 30.

    Raises:
        ValueError: a degree out of range.
    """
    degree = checks.count("degree", degree, 1, 30)
    series = [0.0] * degree + [1 / math.sqrt(math.factorial(degree))]
    return polynomial(np.polynomial.hermite_e.herme2poly(series).tolist())


ACTIVATIONS = {
    "relu": RELU,
    "leaky_relu": leaky_relu(0.01),
    "abs": leaky_relu(-1),
    "gelu": GELU,
    "erf": ERF,
    "sigmoid_like": SIGMOID_LIKE,
    "sin": SIN,
    "cos": COS,
    "rbf": RBF,
    "gaussian": GAUSSIAN,
    "gabor": GABOR,
    "exp": EXP,
    "square": polynomial([0, 0, 1]),
    "cube": polynomial([0, 0, 0, 1]),
    "hermite_2": hermite(2),
    "hermite_3": hermite(3),
    "identity": IDENTITY,
}


def by_name(name: str) -> Activation:
    """Return the activation of that name; "leaky_relu" has slope 0.01.

    "sigmoid_like" is (1 + erf(z / 2.4)) / 2, "rbf" sin(sqrt(2) z) + cos(sqrt(2) z),
    "gaussian" exp(-z^2), and "gabor" exp(-z^2) sin z.

    Raises:
        ValueError: another name. Smooth functions without a closed form, such as tanh,
            are made by ``hermite_series.activation``.
    """
    checks.one_of("activation", name, ACTIVATIONS)
    return ACTIVATIONS[name]
