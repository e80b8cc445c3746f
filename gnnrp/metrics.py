"""Scores of predictions, on device, so that a whole run needs no copy to the host."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gnnrp import _arrays, _checks


def accuracy(
    scores: Float[Array, "n c"], targets: Float[Array, "n c"], mask: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Return the share of the masked rows whose largest score is the target's.

    Ties go to the first class, so a row that no label reached counts as class 0. NaN if
    the mask is empty or the largest score is NaN or infinite, so that a diverged run
    never wins.

    Raises:
        ValueError: shapes that do not fit.
        TypeError: a mask that is not boolean.
    """
    scores, mask = _checked(scores, targets, mask)
    hits = jnp.argmax(scores, axis=-1) == jnp.argmax(targets, axis=-1)
    share = jnp.sum(hits & mask) / jnp.sum(mask)
    finite = jnp.isfinite(jnp.max(scores, initial=-jnp.inf))
    return jnp.where(finite, share, jnp.nan).astype(scores.dtype)


def roc_auc(
    scores: Float[Array, "n c"], targets: Float[Array, "n c"], mask: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Return the area under the ROC curve, averaged over the tasks (columns).

    Of all pairs of a positive and a negative row, the share in which the positive
    scores higher, ties counted as half. Targets are 1, 0, or NaN where unknown, which
    are left out. Tasks without both classes are left out of the mean; NaN if none
    remains or the largest score is NaN or infinite.

    Raises:
        ValueError: shapes that do not fit.
        TypeError: a mask that is not boolean.
    """
    scores, mask = _checked(scores, targets, mask)
    if scores.dtype not in {jnp.dtype("float32"), jnp.dtype("float64")}:
        scores = scores.astype(jnp.float32)
    known = mask[:, None] & jnp.isfinite(targets)
    areas = jax.vmap(_area, in_axes=1)(scores, known & (targets > 0), known)
    defined = jnp.isfinite(areas)
    mean = jnp.sum(jnp.where(defined, areas, 0)) / jnp.sum(defined, dtype=areas.dtype)
    finite = jnp.isfinite(jnp.max(scores, initial=-jnp.inf))
    return jnp.where(finite, mean, jnp.nan).astype(scores.dtype)


def roc_auc_to_round_off(
    scores: Float[Array, "n c"], targets: Float[Array, "n c"], mask: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Return ``roc_auc`` of scores rounded to ε^(2/3) of the largest of their task.

    ε is that of the dtype: 2e-5 in float32, 4e-11 in float64. Nodes that a graph's
    symmetry gives one score are then tied, where else round-off would rank them.

    Raises:
        ValueError: shapes that do not fit.
        TypeError: a mask that is not boolean.
    """
    scores, mask = _checked(scores, targets, mask)
    largest = jnp.max(jnp.abs(scores), axis=0, initial=0)
    unit = largest * jnp.finfo(scores.dtype).eps ** (2 / 3)
    rounded = jnp.where(unit > 0, jnp.round(scores / unit), scores)
    return roc_auc(rounded, targets, mask)


def by_name(name: str) -> Callable:
    """Return the metric called "accuracy" or "roc_auc" (this one to round-off).

    Raises:
        ValueError: unknown name.
    """
    known = {"accuracy": accuracy, "roc_auc": roc_auc_to_round_off}
    _checks.one_of("metric", name, known)
    return known[name]


def _checked(
    scores: Array, targets: Array, mask: Array
) -> tuple[Float[Array, "n c"], Bool[Array, " n"]]:
    """Return scores as floats, and the mask; only shapes and types are looked at.

    Raises:
        ValueError: shapes that do not fit.
        TypeError: a mask that is not boolean.
    """
    scores = _arrays.real("scores", scores)
    _checks.plain("targets", targets)
    if scores.ndim != 2 or not scores.shape[1] or jnp.shape(targets) != scores.shape:
        msg = (
            "scores and targets must be of one shape (n, c), got "
            f"{scores.shape} and {jnp.shape(targets)}; jax.nn.one_hot makes targets "
            "of labels"
        )
        raise ValueError(msg)
    mask = jnp.asarray(_checks.mask("the mask", mask, len(scores)))
    return _arrays.floating("scores", scores), mask


def _area(
    scores: Float[Array, " n"], positive: Bool[Array, " n"], known: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Mann-Whitney: over the positives, the negatives below and half of those equal."""
    negative = known & ~positive
    keys = _ordered_integers(scores)
    # What is not negative goes to the end, above every finite score.
    ranked = jnp.sort(jnp.where(negative, keys, jnp.iinfo(keys.dtype).max))
    below = jnp.searchsorted(ranked, keys, side="left")
    up_to = jnp.searchsorted(ranked, keys, side="right")
    num_positive = jnp.sum(positive, dtype=scores.dtype)
    num_negative = jnp.sum(negative, dtype=scores.dtype)
    # Pairs, up to n^2, overflow int32: add up shares of the negatives instead.
    share = (below + up_to).astype(scores.dtype) / (2 * num_negative)
    return jnp.sum(jnp.where(positive, share, 0)) / num_positive


def _ordered_integers(scores: Float[Array, " n"]) -> Int[Array, " n"]:
    """Return integers in the order of the floats: XLA sorts those six times faster."""
    kind = jnp.int32 if scores.dtype == jnp.float32 else jnp.int64
    bits = jax.lax.bitcast_convert_type(jnp.where(scores == 0, 0, scores), kind)
    return jnp.where(bits < 0, bits ^ jnp.iinfo(kind).max, bits)
