"""What an estimator makes of scores: distributions over the classes, and a metric."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from gnnrp import metrics
from gnnrp.types import MetricFn


def wide(wanted: bool) -> AbstractContextManager[Any]:
    """Return where float64 holds, if asked for; a caller's own is never turned off."""
    return jax.enable_x64(True) if wanted else nullcontext()


def metric_fn(name: str, num_classes: int) -> MetricFn:
    """Return the metric by its name; a ROC-AUC of two classes is of the second.

    Raises:
        ValueError: unknown name.
    """
    found = metrics.by_name(name)
    return _second if name == "roc_auc" and num_classes == 2 else found


def roc_auc(scores: Float[np.ndarray, "q c"], codes: Int[np.ndarray, " q"]) -> float:
    """Return the ROC-AUC of scores of nodes of these classes.

    Raises:
        ValueError: nodes of one class.
    """
    num_classes = scores.shape[1]
    targets = (codes[:, None] == np.arange(num_classes)).astype(scores.dtype)
    with wide(scores.dtype == np.float64):
        arrays = map(jnp.asarray, (scores, targets, np.ones(len(codes), bool)))
        area = float(metric_fn("roc_auc", num_classes)(*arrays))
    if np.isnan(area):
        msg = (
            f"roc_auc needs nodes of two classes, and all {len(codes)} are of one; "
            "pass more nodes"
        )
        raise ValueError(msg)
    return area


def distribution(
    scores: Float[np.ndarray, "q c"], loss: str
) -> Float[np.ndarray, "q c"]:
    """Return rows in [0, 1] that sum to 1, in float64, largest where the scores are.

    Args:
        scores: F.
        loss: its name: softmax and sigmoid have logits for scores; of the others, what
            is negative counts as 0, and rows without anything positive are taken less
            their minimum.
    """
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
    even = np.full_like(x, 1 / x.shape[1])
    return np.divide(x, total, out=even, where=total > 0)


def _second(scores: Any, targets: Any, mask: Any) -> Any:
    return metrics.roc_auc_to_round_off(scores[:, 1:], targets[:, 1:], mask)
