"""Gaussian process regression, such as that of an infinitely wide network."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

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


def posterior_of_features(
    features: Float[Any, "n m"],
    train: Int[np.ndarray, " l"],
    targets: Float[np.ndarray, "l c"],
    *,
    noise: float,
) -> Posterior:
    """Return the posterior of a Gaussian process with covariance K = Φ Φ^T.

    The same numbers as ``posterior``, by an m x m instead of an l x l problem, in
    float64: with M = Φ_X^T Φ_X + σ^2 I, mean Φ M^-1 Φ_X^T Y and variance σ^2 Φ_i M^-1
    Φ_i^T. The mean is kernel ridge regression.

    Args:
        features: Φ, such as random features of ``kernels.gntk.random_features``.
        train: X, training nodes.
        targets: Y of these nodes, in their order.
        noise: σ^2, positive.

    Raises:
        ValueError: a noise that is not positive, or targets of other nodes.
    """
    checks.positive("noise", noise)
    phi = checks.reals("features", features)
    train = checks.node_ids("train", train, len(phi))
    targets = np.asarray(targets, np.float64)
    checks.rows("targets", targets, len(train))
    known = np.asarray(phi[train], np.float64)
    values, modes = np.linalg.eigh(known.T @ known)
    inverse = 1 / (np.maximum(values, 0) + noise)
    rotated = phi @ modes  # in float64
    mean = rotated @ (inverse[:, None] * (modes.T @ (known.T @ targets)))
    return Posterior(mean, noise * (rotated**2 @ inverse))
