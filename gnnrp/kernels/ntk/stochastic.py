"""Traces, norms and alignments of a kernel, estimated from products with random signs.

For graphs whose Θ fits nowhere, from a symmetric map V -> K V. Errors are standard
errors over the probes, which fall as their number^-1/2.

Source: Hutchinson 1990.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from gnnrp.runtime import arrays, checks
from gnnrp.types import LinearMap


class Estimate(NamedTuple):
    """A number and its standard error."""

    value: Float[Array, ""]
    error: Float[Array, ""]


def trace(
    apply: LinearMap, size: int, key: Shaped[Array, "..."], *, num_probes: int = 30
) -> Estimate:
    """Estimate tr K = E[z^T K z] of a map of n = ``size`` nodes, z of random signs.

    Each of the ``num_probes`` signs, at least two, takes one product.

    Raises:
        ValueError: fewer than two probes, or no node.
        TypeError: not a linear map, or not a key.
    """
    checks.linear_map("apply", apply)
    z = _signs(key, size, num_probes)
    return _mean(jnp.sum(z * apply(z), axis=0))


def squared_norm(
    apply: LinearMap, size: int, key: Shaped[Array, "..."], *, num_probes: int = 30
) -> Estimate:
    """Estimate |K|_F^2 = E |K z|^2; arguments and errors as for ``trace``."""
    checks.linear_map("apply", apply)
    return _mean(jnp.sum(apply(_signs(key, size, num_probes)) ** 2, axis=0))


def alignment(
    apply: LinearMap,
    phi: Float[Array, "n r"],
    key: Shaped[Array, "..."],
    *,
    num_probes: int = 30,
    centered: bool = False,
) -> Estimate:
    """Estimate the alignment of K with Φ Φ^T, such as the labels' ideal kernel.

    <K, Φ Φ^T> is exact, from r products; only |K|_F is estimated.

    Args:
        apply: V -> K V.
        phi: Φ, such as one-hot targets.
        key: of the signs.
        num_probes: number of signs, at least two; one product each.
        centered: align H K H and H Φ Φ^T H.

    Raises:
        ValueError: Φ is not a matrix, or fewer than two probes.
        TypeError: not a linear map, or not a key.

    Source: Def. 5.1.
    """
    checks.linear_map("apply", apply)
    phi = arrays.floating("phi", phi)
    if phi.ndim != 2:
        fix = "jax.nn.one_hot(labels, c) makes one of labels"
        msg = f"phi must be a matrix (n, r), got shape {phi.shape}; {fix}"
        raise ValueError(msg)

    def center(v: Array) -> Array:
        return v - jnp.mean(v, axis=0, keepdims=True) if centered else v

    def product(v: Array) -> Array:
        return center(apply(center(v)))

    phi = center(phi)
    inner = jnp.sum(phi * product(phi))
    norm = jnp.linalg.norm(jnp.matmul(phi.T, phi, precision="highest"))
    square = squared_norm(product, len(phi), key, num_probes=num_probes)
    # Zero if either kernel is; NaN stays.
    zero = (norm <= 0) | (square.value <= 0)
    norm, size = (jnp.where(zero, 1, x) for x in (norm, square.value))
    value = jnp.where(zero, 0, inner / norm / jnp.sqrt(size))
    return Estimate(value, jnp.abs(value) * square.error / size / 2)


def _signs(key: Shaped[Array, "..."], size: int, num_probes: int) -> Array:
    num_probes = checks.count("num_probes", num_probes, 2)
    size = checks.count("size", size, 1)
    arrays.one_key(key)
    return jax.random.rademacher(key, (size, num_probes), jnp.zeros(0).dtype)


def _mean(samples: Array) -> Estimate:
    root = jnp.sqrt(jnp.asarray(len(samples), samples.dtype))
    return Estimate(jnp.mean(samples), jnp.std(samples, ddof=1) / root)
