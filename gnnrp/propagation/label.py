"""Label propagation: F <- α A F + (1 - α) Z from Z = [Y, 0], and where it ends."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gnnrp import spmm
from gnnrp.types import LinearMap, Scalar


def seeds(
    targets: Float[Array, "n c"], train_mask: Bool[Array, " n"]
) -> Float[Array, "n c"]:
    """Return Z = [Y, 0]: the known targets, zero elsewhere; unknown (NaN) ones too."""
    return jnp.where(train_mask[:, None] & jnp.isfinite(targets), targets, 0)


def propagate(
    adjacency: LinearMap,
    start: Float[Array, "n c"],
    *,
    num_iterations: int,
    alpha: Scalar = 1.0,
) -> Float[Array, "n c"]:
    """Return F_k of F <- α A F + (1 - α) Z, F_0 = Z.

    Args:
        adjacency: A, a linear map.
        start: Z; scores are not clipped, so that evidence adds up.
        num_iterations: k; F_k = A^k Z if α = 1.
        alpha: α in [0, 1], the weight of the neighbors against the start. This is the
            restart of Zhou et al., not the lazy walk of ``similarity.LazyWalk``.

    Source: Eq. 3.
    """

    def hop(new, _, start):
        weight = jnp.asarray(alpha, start.dtype)
        return weight * new + (1 - weight) * start

    return spmm.iterate(adjacency, hop, start, num_iterations)


def limit(
    adjacency: LinearMap,
    start: Float[Array, "n c"],
    *,
    alpha: Scalar,
    tolerance: float = 1e-6,
    max_iterations: int = 1000,
    solve_fn: Callable = jax.scipy.sparse.linalg.cg,
) -> Float[Array, "n c"]:
    """Return F_∞ = (1 - α) (I - α A)^-1 Z.

    (The paper has it only up to a factor; the factor is 1 - α.)

    Args:
        adjacency: A with spectral radius at most 1, symmetric for the default solver.
        start: Z.
        alpha: α in [0, 1).
        tolerance: of the residual, relative to Z.
        max_iterations: of the solver.
        solve_fn: ``jax.scipy.sparse.linalg.bicgstab`` or ``gmres`` where A is not
            symmetric (row or column normalization).

    Source: below Eq. 3.
    """
    weight = jnp.asarray(alpha, start.dtype)
    solution, _ = solve_fn(
        lambda v: v - weight * adjacency(v),
        (1 - weight) * start,
        tol=tolerance,
        maxiter=max_iterations,
    )
    return solution
