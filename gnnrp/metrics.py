"""Metrics of predictions, on device, so that a run needs no copy to the host."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Real

from gnnrp.runtime import arrays, checks

_DIGITS = 36  # of the mantissa: between the round-off of a run and real differences


def accuracy(
    scores: Float[Array, "n c"], targets: Float[Array, "n c"], mask: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Return the share of the masked rows whose largest score is that of the target.

    Ties go to the first class that occurs in the targets, masked or not. NaN if the
    mask is empty or the largest score is NaN or infinite, so that a diverged run is
    never the best.

    Args:
        scores: one column per class.
        targets: one-hot; zero rows are padding.
        mask: rows to evaluate.

    Raises:
        ValueError: shapes that do not fit.
        TypeError: a mask that is not boolean.
    """
    scores, mask = _validate(scores, targets, mask)
    labels = jnp.argmax(targets, axis=-1)
    # Padding rows are neither masked nor of a class.
    valid = mask | jnp.any(targets > 0, axis=-1)
    present = jnp.zeros(scores.shape[1], bool).at[labels].max(valid)
    allowed = jnp.where(present[None, :], scores, -jnp.inf)
    is_largest = jnp.max(allowed, axis=-1) == jnp.max(scores, axis=-1)
    hits = (jnp.argmax(allowed, axis=-1) == labels) & is_largest
    count, total = jnp.sum(hits & mask), jnp.sum(mask)
    share = count.astype(scores.dtype) / jnp.maximum(total, 1).astype(scores.dtype)
    finite = jnp.isfinite(jnp.max(scores, initial=-jnp.inf))
    return _or_nan(share, finite & (total > 0))


def roc_auc(
    scores: Real[Any, "n c"], targets: Float[Any, "n c"], mask: Bool[Any, " n"]
) -> Float[Array, ""]:
    """Return the area under the ROC curve, averaged over the tasks (columns).

    The area is the share of pairs of a positive and a negative row in which the
    positive scores higher; ties count as half. Targets are 1, 0, or NaN if unknown.
    Unknown targets and tasks without both classes are left out; NaN if no task remains
    or the largest score is NaN or infinite.

    Args:
        scores: one column per task.
        targets: 1, 0, or NaN if unknown.
        mask: rows to evaluate.

    Raises:
        ValueError: shapes that do not fit.
        TypeError: a mask that is not boolean.
    """
    scores, mask = _validate(_ranks(scores), targets, mask)
    if scores.dtype not in {jnp.dtype("float32"), jnp.dtype("float64")}:
        scores = scores.astype(jnp.float32)
    known = mask[:, None] & jnp.isfinite(targets)
    areas, defined = jax.vmap(_area, in_axes=1)(scores, known & (targets > 0), known)
    count = jnp.sum(defined, dtype=areas.dtype)
    mean = jnp.sum(jnp.where(defined, areas, 0)) / jnp.maximum(count, 1)
    finite = jnp.isfinite(jnp.max(scores, initial=-jnp.inf))
    return _or_nan(mean, finite & (count > 0))


def roc_auc_to_round_off(
    scores: Float[Array, "n c"], targets: Float[Array, "n c"], mask: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Return ``roc_auc`` of float64 scores rounded to 36 binary digits.

    Scores tie if they agree up to a relative difference of 1.5e-11, as those of nodes
    that are equal by symmetry of the graph; otherwise round-off would rank them. Scores
    in float32 are not rounded; run in float64 if ties matter.
    """
    scores, mask = _validate(scores, targets, mask)
    if scores.dtype == jnp.float64:
        rounded = jax.lax.reduce_precision(scores, 11, _DIGITS)
        scores = jnp.where(jnp.isfinite(rounded), rounded, scores)
    return roc_auc(scores, targets, mask)


def by_name(name: str) -> Callable:
    """Return the metric "accuracy" or "roc_auc" (``roc_auc_to_round_off``)."""
    metrics = {"accuracy": accuracy, "roc_auc": roc_auc_to_round_off}
    checks.one_of("metric", name, metrics)
    return metrics[name]


def _validate(
    scores: Any, targets: Any, mask: Any
) -> tuple[Float[Array, "n c"], Bool[Array, " n"]]:
    """Return scores as floats, and the mask, after checking shapes and types."""
    scores = arrays.real("scores", scores)
    checks.no_masked_entries("targets", targets)
    if scores.ndim != 2 or not scores.shape[1] or jnp.shape(targets) != scores.shape:
        msg = (
            f"scores and targets must have the same shape (n, c), got {scores.shape} "
            f"and {jnp.shape(targets)}; convert labels to targets by jax.nn.one_hot"
        )
        raise ValueError(msg)
    mask = jnp.asarray(checks.mask("the mask", mask, len(scores)))
    return arrays.floating("scores", scores), mask


def _ranks(scores: Any) -> Any:
    """Return finite NumPy scores as ranks if JAX would round them to float32."""
    if not isinstance(scores, np.ndarray) or scores.ndim != 2 or not scores.size:
        return scores
    kind = jnp.zeros(0).dtype  # float64 if 64-bit types are enabled
    wide = scores.dtype.kind == "f" and scores.dtype.itemsize > kind.itemsize
    if not (wide or scores.dtype.kind in "iu") or not np.isfinite(scores).all():
        return scores
    ranks = [np.unique(column, return_inverse=True)[1] for column in scores.T]
    return np.stack(ranks, axis=1).astype(kind)


def _or_nan(value: Float[Array, ""], defined: Bool[Array, ""]) -> Float[Array, ""]:
    """Return the value, or NaN if it is not defined."""
    # A constant, so that ``jax.debug_nans`` allows it inside compiled code.
    return jnp.where(defined, value, np.asarray(np.nan, value.dtype))


def _area(
    scores: Float[Array, " n"], positive: Bool[Array, " n"], known: Bool[Array, " n"]
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """Return the area by Mann-Whitney, and whether both classes occur."""
    negative = known & ~positive
    keys = _ordered_integers(scores)
    # Rows that are not negative go to the end, above every finite score.
    ranked = jnp.sort(jnp.where(negative, keys, jnp.iinfo(keys.dtype).max))
    below = jnp.searchsorted(ranked, keys, side="left")
    up_to = jnp.searchsorted(ranked, keys, side="right")
    num_positive = jnp.sum(positive, dtype=scores.dtype)
    num_negative = jnp.sum(negative, dtype=scores.dtype)
    # Pairs, up to n^2, overflow int32: add up shares of the negatives instead.
    share = (below + up_to).astype(scores.dtype) / (2 * jnp.maximum(num_negative, 1))
    area = jnp.sum(jnp.where(positive, share, 0)) / jnp.maximum(num_positive, 1)
    return area, (num_positive > 0) & (num_negative > 0)


def _ordered_integers(scores: Float[Array, " n"]) -> Int[Array, " n"]:
    """Return integers in the order of the floats; XLA sorts them six times faster."""
    kind = jnp.int32 if scores.dtype == jnp.float32 else jnp.int64
    bits = jax.lax.bitcast_convert_type(jnp.where(scores == 0, 0, scores), kind)
    return jnp.where(bits < 0, bits ^ jnp.iinfo(kind).max, bits)
