"""Metrics and class probabilities of the scores of an estimator."""

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from gnnrp import metrics
from gnnrp.studies import presets
from gnnrp.types import MetricFn

OF_LABELS = ("accuracy", "balanced_accuracy", "macro_f1")
"""Metrics of predicted classes."""
OF_TASKS = ("roc_auc", "average_precision")
"""Metrics of the order of scores, which need two classes."""


def metric_fn(metric: str | MetricFn, num_classes: int, loss: str) -> MetricFn:
    """Return a metric of scores; those of tasks score the second of two classes."""
    if callable(metric):
        return metric
    if metric in OF_TASKS and num_classes == 2:
        return _OF_SECOND[metric]
    return metrics.by_name(metric, loss=loss)


def evaluate(
    metric: str | MetricFn,
    values: Float[np.ndarray, "q c"],
    codes: Int[np.ndarray, " q"],
) -> float:
    """Return a metric of nodes of these classes.

    Args:
        metric: name or function.
        values: probabilities for "neg_log_loss", one-hot predictions for metrics of
            labels, scores for others.
        codes: indices of the classes; c for a class without a column.

    Raises:
        ValueError: nodes of one class, for a metric that needs two.
    """
    num_classes = values.shape[1]
    targets = (codes[:, None] == np.arange(num_classes)).astype(values.dtype)
    with presets.precision(str(values.dtype)):
        arrays = map(jnp.asarray, (values, targets, np.ones(len(codes), bool)))
        if metric == "neg_log_loss":
            return float(metrics.neg_log_loss(*arrays))
        value = float(metric_fn(metric, num_classes, "squared")(*arrays))
    if metric in OF_TASKS and np.isnan(value):
        msg = (
            f"{metric} needs nodes of two classes, and all {len(codes)} are of one; "
            "pass more nodes"
        )
        raise ValueError(msg)
    return value


def probabilities(
    scores: Float[np.ndarray, "q c"], loss: str
) -> Float[np.ndarray, "q c"]:
    """Return distributions over the classes in the precision of the scores."""
    with presets.precision(str(scores.dtype)):
        return np.array(metrics.probabilities(scores, loss))


class Outcome(NamedTuple):
    """Classes of nodes by their scores, and which of them a label reached."""

    codes: Int[np.ndarray, " n"]
    reached: Bool[np.ndarray, " n"]  # RP changed their scores
    unreached: Bool[np.ndarray, " n"]  # nothing changed scores of zero


def outcome(
    scores: Float[np.ndarray, "n c"],
    start: Float[np.ndarray, "#n c"],
    prior: Float[np.ndarray, " c"],
) -> Outcome:
    """Return the class of the largest score, the most frequent if there is no score.

    Args:
        scores: F.
        start: F_0.
        prior: shares of the classes.
    """
    reached = (scores != start).any(axis=1)
    unreached = ~reached & (start == 0).all(axis=1)
    codes = np.where(unreached, np.argmax(prior), np.argmax(scores, axis=1))
    return Outcome(codes, reached, unreached)


def _of_second(scores: Any, targets: Any, mask: Any, *, metric: MetricFn) -> Any:
    return metric(scores[:, 1:], targets[:, 1:], mask)


_OF_SECOND = {
    name: functools.partial(_of_second, metric=metrics.by_name(name))
    for name in OF_TASKS
}
