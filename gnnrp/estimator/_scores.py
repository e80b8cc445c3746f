"""Metric and class probabilities of the scores of an estimator."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from gnnrp import metrics
from gnnrp.studies import presets
from gnnrp.types import MetricFn


def metric_fn(name: str, num_classes: int) -> MetricFn:
    """Return a metric by name; ROC-AUC of two classes scores the second."""
    found = metrics.by_name(name)
    return _binary_roc_auc if name == "roc_auc" and num_classes == 2 else found


def roc_auc(scores: Float[np.ndarray, "q c"], codes: Int[np.ndarray, " q"]) -> float:
    """Return the ROC-AUC of scores of nodes of these classes."""
    num_classes = scores.shape[1]
    targets = (codes[:, None] == np.arange(num_classes)).astype(scores.dtype)
    with presets.precision(str(scores.dtype)):
        arrays = map(jnp.asarray, (scores, targets, np.ones(len(codes), bool)))
        area = float(metric_fn("roc_auc", num_classes)(*arrays))
    if np.isnan(area):
        msg = (
            f"roc_auc needs nodes of two classes, and all {len(codes)} are of one; "
            "pass more nodes"
        )
        raise ValueError(msg)
    return area


def probabilities(
    scores: Float[np.ndarray, "q c"], loss: str
) -> Float[np.ndarray, "q c"]:
    """Return distributions over the classes, largest where the scores are."""
    x = scores.astype(np.float64)
    if loss == "softmax":
        x = np.exp(x - x.max(axis=1, keepdims=True))
    elif loss == "sigmoid":
        # In logarithms, so that rows of very negative scores keep a largest entry.
        log = -np.logaddexp(0, -x)
        x = np.exp(log - log.max(axis=1, keepdims=True))
    else:
        positive = (x > 0).any(axis=1, keepdims=True)
        lifted = x - x.min(axis=1, keepdims=True)
        x = np.where(positive, np.maximum(x, 0), lifted)
    total = x.sum(axis=1, keepdims=True)
    uniform = np.full_like(x, 1 / x.shape[1])
    return np.divide(x, total, out=uniform, where=total > 0)


def _binary_roc_auc(scores: Any, targets: Any, mask: Any) -> Any:
    return metrics.roc_auc_to_round_off(scores[:, 1:], targets[:, 1:], mask)
