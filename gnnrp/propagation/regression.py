"""Gaussian process regression, such as that of an infinitely wide network."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from gnnrp.propagation.solvers import exact
from gnnrp.runtime import checks


class Posterior(NamedTuple):
    """Posterior mean and variance of each node."""

    mean: Float[np.ndarray, "m c"]
    variance: Float[np.ndarray, " m"]  # of each output, the same for all


def posterior(
    factorization: exact.Factorization,
    targets: Float[np.ndarray, "l c"],
    variance: Float[np.ndarray, " m"],
    *,
    noise: float = 0.0,
) -> Posterior:
    """Return the posterior of a Gaussian process with covariance K, such as the NNGP.

    Mean K[:, X] (K_XX + σ^2 I)^-1 Y, variance K_ii - K_iX (K_XX + σ^2 I)^-1 K_Xi, of
    the nodes of the factorization of K, whose K_ii are ``variance``. If the noise σ^2
    of the labels is 0, the inverse is a pseudo-inverse, as in ``exact.limit``.

    Source: Def. 4.1, its covariance Σ.
    """
    mean = exact.limit(factorization, targets, ridge=noise)
    checks.shape("variance", variance, factorization.rows.shape[:1])
    explained = factorization.rows**2 @ exact.inverse(factorization, noise)
    left = np.maximum(np.asarray(variance, np.float64) - explained, 0)  # not round-off
    return Posterior(mean, left)
