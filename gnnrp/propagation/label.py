"""Label propagation, F <- α A F + (1 - α) Z from Z = [Y, 0], and its limit."""

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from gnnrp import sparse
from gnnrp.propagation.sizes import Sizes, add_runtime, metric_entries
from gnnrp.runtime import arrays, checks
from gnnrp.types import LinearMap, Scalar


def seeds(
    targets: Float[Array, "n c"], train_mask: Bool[Array, " n"]
) -> Float[Array, "n c"]:
    """Return Z = [Y, 0]: the training targets, zero elsewhere and where they are NaN.

    Raises:
        ValueError: targets are not (n, c), or the mask has another length.
        TypeError: the mask is not boolean.
    """
    targets = arrays.floating("targets", targets)
    if targets.ndim != 2:
        msg = (
            f"targets must have shape (n, c), got {targets.shape}; "
            "jax.nn.one_hot(labels, c) makes them"
        )
        raise ValueError(msg)
    train_mask = jnp.asarray(checks.mask("train_mask", train_mask, len(targets)))
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

    Raises:
        ValueError: k is negative, or α (if it is not traced) is out of range.
        TypeError: the adjacency is not a linear map, or the start is complex.

    Source: Eq. 3.
    """
    num_iterations = checks.count("num_iterations", num_iterations, 0)
    start = arrays.floating("start", start)
    check_alpha(alpha)

    def hop(new, _, start):
        weight = jnp.asarray(alpha, start.dtype)
        return weight * new + (1 - weight) * start

    return sparse.propagate(adjacency, hop, start, num_iterations)


def check_alpha(alpha: Scalar) -> None:
    """Check that α is in [0, 1], unless it is traced."""
    if not isinstance(alpha, Tracer):
        checks.in_interval("alpha", alpha, 0, 1)


def limit(
    adjacency: LinearMap,
    start: Float[Array, "n c"],
    *,
    alpha: Scalar,
    symmetric: bool = True,
    tolerance: float = 1e-6,
    max_iterations: int = 10_000,
) -> Float[Array, "n c"]:
    """Return F_∞ = (1 - α) (I - α A)^-1 Z.

    (The paper has it only up to a factor; the factor is 1 - α.)

    Args:
        adjacency: A with spectral radius at most 1.
        start: Z.
        alpha: α in [0, 1).
        symmetric: A is symmetric, which lets conjugate gradients find the limit in far
            fewer products; else (row or column normalization) F <- α A F + (1 - α) Z
            runs until it converges, and has no reverse mode.
        tolerance: of each column of the result, relative to that of Z, about.
        max_iterations: maximal number of products; a column that does not reach
            the tolerance by then is NaN.

    Raises:
        ValueError: α (if it is not traced), the tolerance or ``max_iterations`` is out
            of range.
        TypeError: the adjacency is not a linear map.

    Source: below Eq. 3.
    """
    checks.linear_map("the adjacency", adjacency)
    checks.positive("tolerance", tolerance)
    max_iterations = checks.count("max_iterations", max_iterations, 1)
    start = arrays.floating("start", start)
    if not isinstance(alpha, Tracer) and not 0 <= checks.number("alpha", alpha) < 1:
        msg = f"alpha must lie in [0, 1), got {alpha}"
        raise ValueError(msg)
    if jnp.ndim(start) != 2:
        msg = f"start must have shape (n, c), got {jnp.shape(start)}"
        raise ValueError(msg)
    # The loops need one type throughout.
    dtype = jax.eval_shape(adjacency, start).dtype
    start = start.astype(jnp.promote_types(dtype, start.dtype))
    solve = _solve_symmetric if symmetric else _iterate
    weight = jnp.asarray(alpha, start.dtype)
    return solve(adjacency, start, weight, tolerance, max_iterations)


def limit_bytes(sizes: Sizes) -> int:
    """Return the peak of ``limit``, by conjugate gradients of all columns together."""
    columns = sizes.num_splits * sizes.num_classes
    entries = 9 * sizes.num_nodes * columns
    entries += metric_entries(sizes, columns)
    return add_runtime(entries * sizes.itemsize)


def _solve_symmetric(adjacency, start, weight, tolerance, max_iterations):
    """Return the limit by conjugate gradients."""

    def system(v):
        return v - weight * adjacency(v[:, None])[:, 0]

    def solve_column(source):
        solution, _ = jax.scipy.sparse.linalg.cg(
            system, source, tol=tolerance, maxiter=max_iterations
        )
        # Conjugate gradients do not report failure.
        rest = jnp.linalg.norm(source - system(solution))
        reached = rest <= 10 * tolerance * jnp.linalg.norm(source)
        return jnp.where(reached, solution, jnp.nan)

    return jax.vmap(solve_column, in_axes=1, out_axes=1)((1 - weight) * start)


def _iterate(adjacency, start, weight, tolerance, max_iterations):
    """Return the limit by hops, until they change little."""
    source = (1 - weight) * start
    # The distance to the limit is at most the last change times α / (1 - α).
    enough = tolerance * (1 - weight) * jnp.max(jnp.abs(start), axis=0)

    def changes(state):
        _, change, count = state
        return jnp.any(change > enough) & (count < max_iterations)

    def hop(state):
        old, _, count = state
        new = weight * adjacency(old) + source
        return new, jnp.max(jnp.abs(new - old), axis=0), count + 1

    first = (start, jnp.full(start.shape[1], jnp.inf, start.dtype), 0)
    end, change, _ = jax.lax.while_loop(changes, hop, first)
    return jnp.where(change <= enough, end, jnp.nan)
