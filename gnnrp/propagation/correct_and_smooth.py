"""Correct and Smooth: propagate the errors of a model, then its predictions.

``correct`` adds to the probabilities of any model what its errors on the training nodes
imply for their neighbors. ``smooth`` then propagates the probabilities themselves, with
the labels in place of those of the training nodes.

Source: Huang et al. 2021 (arXiv 2010.13993); not in the paper, which starts residual
propagation from a model instead.
"""

import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from gnnrp import sparse
from gnnrp.propagation import label
from gnnrp.runtime import arrays, checks
from gnnrp.types import LinearMap, Scalar

NUM_ITERATIONS = 50
_MAX_SCALE = 1_000


def correct(
    adjacency: LinearMap,
    probabilities: Float[Array, "n c"],
    targets: Float[Array, "n c"],
    train_mask: Bool[Array, " n"],
    *,
    alpha: Scalar = 0.8,
    num_iterations: int = NUM_ITERATIONS,
    scale: Scalar | None = None,
) -> Float[Array, "n c"]:
    """Return P + s E, with the propagated errors E of the training nodes.

    E is the k-th iterate of E <- α A E + (1 - α) E_0, with E_0 = Y - P on the training
    nodes and zero elsewhere. With a number as scale s, the rows of training nodes are
    set to E_0 after each iteration. Without one, entries are clipped to [-1, 1] after
    each iteration, and node i has the scale s_i = mean_j |E_0j|_1 / |E_i|_1, or 1 where
    that exceeds 1,000.

    Args:
        adjacency: A, a linear map; D^-1/2 W D^-1/2 in the source.
        probabilities: P of the model, one column per class.
        targets: one-hot Y; only those of training nodes that are not NaN count.
        train_mask: training nodes.
        alpha: α in [0, 1], the weight of the neighbors.
        num_iterations: k.
        scale: s > 0; None scales each node.

    Raises:
        ValueError: shapes that differ, α or s out of range, or a negative k.
        TypeError: the adjacency is not a linear map, or the mask is not boolean.

    Example:
        >>> A = jnp.array([[0.0, 1], [1, 0]])
        >>> P, Y = jnp.array([[0.75, 0.25], [0.5, 0.5]]), jnp.array([[1.0, 0], [0, 0]])
        >>> corrected = correct(lambda v: A @ v, P, Y, jnp.array([True, False]))
        >>> [round(float(p), 3) for p in corrected[1]]  # gains the error of node 0
        [0.75, 0.25]
    """
    probabilities, targets, known = _validate(probabilities, targets, train_mask)
    errors = jnp.where(known, targets - probabilities, 0)
    train = jnp.any(known, axis=1, keepdims=True)
    label.check_alpha(alpha)
    if scale is not None and not isinstance(scale, Tracer):
        checks.positive("scale", scale)
    weight = jnp.asarray(alpha, errors.dtype)
    num_iterations = checks.count("num_iterations", num_iterations, 0)
    if scale is None:
        end = _propagate_clipped(adjacency, errors, weight, num_iterations, (-1, 1))
        return probabilities + _factors(errors, end, train) * end
    marked = jnp.concatenate([errors, train.astype(errors.dtype)], axis=1)

    def hop(new, _, start):
        is_train = start[:, -1:] > 0  # rows may come in another order than the nodes
        return jnp.where(is_train, start, weight * new + (1 - weight) * start)

    end = sparse.propagate(adjacency, hop, marked, num_iterations)[:, :-1]
    return probabilities + jnp.asarray(scale, errors.dtype) * end


def _factors(errors, end, train):
    """Return the factor of each node, which gives its errors the mean size."""
    num_train = jnp.sum(train).astype(errors.dtype)
    mean = jnp.sum(jnp.abs(errors)) / jnp.maximum(1, num_train)
    sizes = jnp.sum(jnp.abs(end), axis=1, keepdims=True)
    factors = mean / jnp.where(sizes > 0, sizes, 1)
    return jnp.where((sizes > 0) & (factors <= _MAX_SCALE), factors, 1)


def smooth(
    adjacency: LinearMap,
    probabilities: Float[Array, "n c"],
    targets: Float[Array, "n c"],
    train_mask: Bool[Array, " n"],
    *,
    alpha: Scalar = 0.8,
    num_iterations: int = NUM_ITERATIONS,
) -> Float[Array, "n c"]:
    """Return the k-th iterate of F <- clip(α A F + (1 - α) F_0, 0, 1).

    F_0 has the targets of the training nodes, and the probabilities of the others.

    Args:
        adjacency: A, a linear map.
        probabilities: of ``correct`` or of a model.
        targets: one-hot Y; only those of training nodes that are not NaN count.
        train_mask: training nodes.
        alpha: α in [0, 1], the weight of the neighbors.
        num_iterations: k.

    Raises:
        ValueError: shapes that differ, α out of range, or a negative k.
        TypeError: the adjacency is not a linear map, or the mask is not boolean.
    """
    probabilities, targets, known = _validate(probabilities, targets, train_mask)
    start = jnp.where(known, targets, probabilities)
    label.check_alpha(alpha)
    weight = jnp.asarray(alpha, start.dtype)
    num_iterations = checks.count("num_iterations", num_iterations, 0)
    return _propagate_clipped(adjacency, start, weight, num_iterations, (0, 1))


def _propagate_clipped(adjacency, start, weight, num_iterations, ends):
    """Repeat F <- clip(α A F + (1 - α) F_0)."""

    def hop(new, _, start):
        return jnp.clip(weight * new + (1 - weight) * start, *ends)

    return sparse.propagate(adjacency, hop, start, num_iterations)


def _validate(probabilities, targets, train_mask):
    """Return both as arrays of one type and shape, and the entries that count."""
    probabilities = arrays.floating("probabilities", probabilities)
    targets = arrays.floating("targets", targets).astype(probabilities.dtype)
    if probabilities.ndim != 2 or probabilities.shape != targets.shape:
        msg = (
            "probabilities and targets must have one shape (n, c), got "
            f"{probabilities.shape} and {targets.shape}"
        )
        raise ValueError(msg)
    train = checks.mask("train_mask", train_mask, len(targets))
    known = jnp.asarray(train)[:, None] & jnp.isfinite(targets)
    return probabilities, targets, known
