"""Metrics of predictions, on device, so that a run needs no copy to the host.

A metric takes scores (m, c), targets (m, c) and a mask (m,), and returns a scalar,
larger is better. Only ``expected_calibration_error`` is an error, smaller is better.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Real

from gnnrp.runtime import arrays, checks

LOSSES = ("squared", "absolute", "sigmoid", "softmax")
"""Losses of runs whose scores ``probabilities`` converts."""

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
    labels, predicted = _classify(scores, targets)
    count, total = jnp.sum((predicted == labels) & mask), jnp.sum(mask)
    share = count.astype(scores.dtype) / jnp.maximum(total, 1).astype(scores.dtype)
    return _or_nan(share, _is_finite(scores) & (total > 0))


def balanced_accuracy(
    scores: Float[Any, "n c"], targets: Float[Any, "n c"], mask: Bool[Any, " n"]
) -> Float[Array, ""]:
    """Return the mean over the classes of the recall TP / (TP + FN).

    The mean is over the classes of the masked targets. A masked row without a class (a
    zero row) counts as one more class, which is never predicted. Ties and NaN are those
    of ``accuracy``.

    Args:
        scores: one column per class.
        targets: one-hot.
        mask: rows to evaluate.

    Raises:
        ValueError: shapes that do not fit.
        TypeError: a mask that is not boolean.
    """
    scores, mask = _validate(scores, targets, mask)
    scores = _at_least_single(scores)
    true_positives, support, _ = _counts(scores, targets, mask)
    recall = true_positives / jnp.maximum(support, 1)
    return _mean(recall, support > 0, _is_finite(scores))


def macro_f1(
    scores: Float[Any, "n c"], targets: Float[Any, "n c"], mask: Bool[Any, " n"]
) -> Float[Array, ""]:
    """Return the mean over the classes of F1 = 2 TP / (2 TP + FP + FN).

    The mean is over the classes of the masked targets and of their predictions. A
    masked row without a class (a zero row) counts as one more class, which is never
    predicted. Ties and NaN are those of ``accuracy``.

    Args:
        scores: one column per class.
        targets: one-hot.
        mask: rows to evaluate.

    Raises:
        ValueError: shapes that do not fit.
        TypeError: a mask that is not boolean.
    """
    scores, mask = _validate(scores, targets, mask)
    scores = _at_least_single(scores)
    true_positives, support, predicted = _counts(scores, targets, mask)
    f1 = 2 * true_positives / jnp.maximum(support + predicted, 1)
    return _mean(f1, support + predicted > 0, _is_finite(scores))


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
    return _mean_over_tasks(_area, scores, targets, mask)


def average_precision(
    scores: Real[Any, "n c"], targets: Float[Any, "n c"], mask: Bool[Any, " n"]
) -> Float[Array, ""]:
    """Return the average precision, averaged over the tasks (columns).

    It is Σ_k (R_k - R_{k-1}) P_k, with recall R_k and precision P_k of the rows that
    score at least the k-th largest of the distinct scores. Targets, tasks without both
    classes and NaN are those of ``roc_auc``.

    Args:
        scores: one column per task.
        targets: 1, 0, or NaN if unknown.
        mask: rows to evaluate.

    Raises:
        ValueError: shapes that do not fit.
        TypeError: a mask that is not boolean.
    """
    return _mean_over_tasks(_precision, scores, targets, mask)


def roc_auc_to_round_off(
    scores: Float[Array, "n c"], targets: Float[Array, "n c"], mask: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Return ``roc_auc`` of float64 scores rounded to 36 binary digits.

    Scores tie if they agree up to a relative difference of 1.5e-11, as those of nodes
    that are equal by symmetry of the graph; otherwise round-off would rank them. Scores
    in float32 are not rounded; run in float64 if ties matter.
    """
    return roc_auc(_to_round_off(scores), targets, mask)


def average_precision_to_round_off(
    scores: Float[Array, "n c"], targets: Float[Array, "n c"], mask: Bool[Array, " n"]
) -> Float[Array, ""]:
    """Return ``average_precision`` of rounded scores; see ``roc_auc_to_round_off``."""
    return average_precision(_to_round_off(scores), targets, mask)


def probabilities(scores: Float[Any, "n c"], loss: str) -> Float[Array, "n c"]:
    """Return distributions over the classes, largest where the scores are.

    For "squared" and "absolute": scores clipped at 0, over their sum; rows without a
    positive score subtract their minimum instead, and rows of equal scores are uniform.
    For "softmax": the softmax. For "sigmoid": the sigmoids over their sum.

    Args:
        scores: F of a run, finite.
        loss: of the run.

    Raises:
        ValueError: an unknown loss.
        TypeError: scores that are not real numbers.
    """
    checks.one_of("loss", loss, LOSSES)
    scores = arrays.floating("scores", scores)
    if loss == "softmax":
        return jax.nn.softmax(scores, axis=-1)
    if loss == "sigmoid":
        # In logarithms, so that rows of very negative scores keep a largest entry.
        return jax.nn.softmax(jax.nn.log_sigmoid(scores), axis=-1)
    has_positive = jnp.any(scores > 0, axis=-1, keepdims=True)
    lifted = scores - jnp.min(scores, axis=-1, keepdims=True)
    lifted = jnp.where(has_positive, jnp.maximum(scores, 0), lifted)
    total = jnp.sum(lifted, axis=-1, keepdims=True)
    shares = lifted / jnp.where(total > 0, total, 1)
    return jnp.where(total > 0, shares, 1 / scores.shape[-1])


def neg_log_loss(
    probabilities: Float[Any, "n c"],
    targets: Float[Any, "n c"],
    mask: Bool[Any, " n"],
) -> Float[Array, ""]:
    """Return the mean of log p_iy over the masked rows i, y the class of the row.

    As in scikit-learn, p is clipped to [ε, 1 - ε], with the machine epsilon ε of its
    type. A masked row without a class (a zero row) has p = 0 before. NaN if the mask is
    empty or the largest entry is NaN or infinite.

    Args:
        probabilities: rows are distributions; ``probabilities`` converts scores.
        targets: one-hot.
        mask: rows to evaluate.

    Raises:
        ValueError: shapes that do not fit.
        TypeError: a mask that is not boolean.
    """
    p, mask = _validate(probabilities, targets, mask)
    eps = float(jnp.finfo(p.dtype).eps)
    own = jnp.sum(jnp.where(targets > 0, p, 0), axis=-1)
    return _mean(jnp.log(jnp.clip(own, eps, 1 - eps)), mask, _is_finite(p))


def expected_calibration_error(
    probabilities: Float[Any, "n c"],
    targets: Float[Any, "n c"],
    mask: Bool[Any, " n"],
    *,
    num_bins: int = 15,
) -> Float[Array, ""]:
    """Return Σ_m |B_m| / l |accuracy(B_m) - confidence(B_m)| of the l masked rows.

    The confidence of a row is its largest probability; bin B_m has the rows with a
    confidence in ((m - 1) / M, m / M], and the mean confidence of these. Ties and NaN
    are those of ``accuracy``.

    Args:
        probabilities: rows are distributions over the classes.
        targets: one-hot.
        mask: rows to evaluate.
        num_bins: M, 1 or more.

    Raises:
        ValueError: shapes that do not fit, or no bin.
        TypeError: a mask that is not boolean.

    Source: Guo et al. 2017 (arXiv 1706.04599), which calls it ECE.
    """
    num_bins = checks.count("num_bins", num_bins, 1)
    p, mask = _validate(probabilities, targets, mask)
    labels, predicted = _classify(p, targets)
    confidence = jnp.max(p, axis=-1)
    edges = jnp.asarray(np.arange(1, num_bins) / num_bins, p.dtype)
    bins = jnp.searchsorted(edges, confidence, side="left")
    gaps = jnp.where(mask, (predicted == labels).astype(p.dtype) - confidence, 0)
    sums = jnp.zeros(num_bins, p.dtype).at[bins].add(gaps)
    total = jnp.sum(mask)
    error = jnp.sum(jnp.abs(sums)) / jnp.maximum(total, 1).astype(p.dtype)
    return _or_nan(error, _is_finite(p) & (total > 0))


def _neg_log_loss_of_scores(
    scores: Any, targets: Any, mask: Any, *, loss: str
) -> Float[Array, ""]:
    """Return ``neg_log_loss`` of the probabilities of scores."""
    scores, mask = _validate(scores, targets, mask)
    finite = jnp.isfinite(scores)
    p = probabilities(jnp.where(finite, scores, 0), loss)
    return _or_nan(neg_log_loss(p, targets, mask), jnp.all(finite))


_BY_NAME: dict[str, Callable] = {
    "accuracy": accuracy,
    "balanced_accuracy": balanced_accuracy,
    "macro_f1": macro_f1,
    "roc_auc": roc_auc_to_round_off,
    "average_precision": average_precision_to_round_off,
}
_NEG_LOG_LOSSES = {
    loss: functools.partial(_neg_log_loss_of_scores, loss=loss) for loss in LOSSES
}
NAMES = (*_BY_NAME, "neg_log_loss")
"""Names of metrics that ``by_name`` knows."""


def by_name(name: str, *, loss: str | None = None) -> Callable:
    """Return a metric of the scores of a run.

    Args:
        name: one of ``NAMES``. "roc_auc" and "average_precision" are those of scores
            ``to_round_off``. "neg_log_loss" is that of the ``probabilities`` of scores.
        loss: of the run, for "neg_log_loss".

    Raises:
        ValueError: an unknown name, or "neg_log_loss" without a loss.
    """
    checks.one_of("metric", name, NAMES)
    if name in _BY_NAME:
        return _BY_NAME[name]
    if loss is None:
        msg = (
            "the metric neg_log_loss needs the loss of the run, got None; "
            "metrics.by_name('neg_log_loss', loss='squared') has it"
        )
        raise ValueError(msg)
    checks.one_of("loss", loss, LOSSES)
    return _NEG_LOG_LOSSES[loss]


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


def _at_least_single(scores: Float[Array, "n c"]) -> Float[Array, "n c"]:
    """Return half precision as float32, which counts need."""
    is_wide = scores.dtype in {jnp.dtype("float32"), jnp.dtype("float64")}
    return scores if is_wide else scores.astype(jnp.float32)


def _to_round_off(scores: Any) -> Any:
    """Return float64 scores rounded to 36 binary digits, others as they are."""
    scores = arrays.floating("scores", scores)
    if scores.dtype != jnp.float64:
        return scores
    rounded = jax.lax.reduce_precision(scores, 11, _DIGITS)
    return jnp.where(jnp.isfinite(rounded), rounded, scores)


def _classify(
    scores: Float[Array, "n c"], targets: Float[Any, "n c"]
) -> tuple[Int[Array, " n"], Int[Array, " n"]]:
    """Return the class of each row, c for none, and the predicted class.

    Ties go to the first class that occurs in the targets. The prediction is -1 if the
    largest score is that of an absent class.
    """
    num_classes = scores.shape[1]
    has_class = jnp.any(targets > 0, axis=-1)
    labels = jnp.where(has_class, jnp.argmax(targets, axis=-1), num_classes)
    present = jnp.zeros(num_classes + 1, bool).at[labels].set(True)[:-1]
    allowed = jnp.where(present[None, :], scores, -jnp.inf)
    is_largest = jnp.max(allowed, axis=-1) == jnp.max(scores, axis=-1)
    return labels, jnp.where(is_largest, jnp.argmax(allowed, axis=-1), -1)


def _counts(
    scores: Float[Array, "n c"], targets: Float[Any, "n c"], mask: Bool[Any, " n"]
) -> Float[Array, "3 c+1"]:
    """Return true positives, targets and predictions of each class."""
    labels, predicted = _classify(scores, targets)
    predicted = jnp.where(predicted < 0, jnp.argmax(scores, axis=-1), predicted)
    groups = jnp.stack([jnp.where(predicted == labels, labels, -1), labels, predicted])
    classes = jnp.arange(scores.shape[1] + 1)
    is_in = (groups[:, :, None] == classes) & mask[:, None]
    return jnp.sum(is_in, axis=1).astype(scores.dtype)


def _mean_over_tasks(
    of_task: Callable, scores: Any, targets: Any, mask: Any
) -> Float[Array, ""]:
    """Return the mean of a metric over the tasks with both classes."""
    scores, mask = _validate(_ranks(scores), targets, mask)
    scores = _at_least_single(scores)
    known = mask[:, None] & jnp.isfinite(targets)
    values, defined = jax.vmap(of_task, in_axes=1)(scores, known & (targets > 0), known)
    return _mean(values, defined, _is_finite(scores))


def _mean(
    values: Float[Array, " k"], counted: Bool[Array, " k"], defined: Bool[Array, ""]
) -> Float[Array, ""]:
    """Return the mean of the counted values, or NaN if none is or it is not defined."""
    count = jnp.sum(counted, dtype=values.dtype)
    mean = jnp.sum(jnp.where(counted, values, 0)) / jnp.maximum(count, 1)
    return _or_nan(mean, defined & (count > 0))


def _is_finite(scores: Float[Array, "n c"]) -> Bool[Array, ""]:
    """Return whether the largest score is finite."""
    return jnp.isfinite(jnp.max(scores, initial=-jnp.inf))


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
    ranked = _sort_counted(keys, negative)
    below = jnp.searchsorted(ranked, keys, side="left")
    up_to = jnp.searchsorted(ranked, keys, side="right")
    num_positive = jnp.sum(positive, dtype=scores.dtype)
    num_negative = jnp.sum(negative, dtype=scores.dtype)
    # Pairs, up to n^2, overflow int32: add up shares of the negatives instead.
    share = (below + up_to).astype(scores.dtype) / (2 * jnp.maximum(num_negative, 1))
    area = jnp.sum(jnp.where(positive, share, 0)) / jnp.maximum(num_positive, 1)
    return area, (num_positive > 0) & (num_negative > 0)


def _precision(
    scores: Float[Array, " n"], positive: Bool[Array, " n"], known: Bool[Array, " n"]
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """Return the mean precision at the positive rows, and whether both classes occur.

    Positive rows that tie have the same precision, so the mean is the sum over k.
    """
    keys = _ordered_integers(scores)
    num_positive, num_known = (jnp.sum(x, dtype=jnp.int32) for x in (positive, known))
    hits = num_positive - jnp.searchsorted(_sort_counted(keys, positive), keys)
    total = num_known - jnp.searchsorted(_sort_counted(keys, known), keys)
    precision = hits.astype(scores.dtype) / jnp.maximum(total, 1).astype(scores.dtype)
    mean = jnp.sum(jnp.where(positive, precision, 0))
    mean = mean / jnp.maximum(num_positive, 1).astype(scores.dtype)
    return mean, (num_positive > 0) & (num_known > num_positive)


def _sort_counted(keys: Int[Array, " n"], counted: Bool[Array, " n"]) -> Any:
    """Return the keys of the counted rows in order, and the largest integer after."""
    return jnp.sort(jnp.where(counted, keys, jnp.iinfo(keys.dtype).max))


def _ordered_integers(scores: Float[Array, " n"]) -> Int[Array, " n"]:
    """Return integers in the order of the floats; XLA sorts them six times faster."""
    kind = jnp.int32 if scores.dtype == jnp.float32 else jnp.int64
    bits = jax.lax.bitcast_convert_type(jnp.where(scores == 0, 0, scores), kind)
    return jnp.where(bits < 0, bits ^ jnp.iinfo(kind).max, bits)
