"""Temperature scaling of the probabilities of an estimator.

Source: Guo et al. 2017 (arXiv 1706.04599).
"""

import warnings
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special
from jaxtyping import Float, Int

from gnnrp.estimator import _scores

_LARGEST = 10.0  # of |log T|, for logits with a mean range of one


def fit(
    scores: Float[np.ndarray, "q c"], codes: Int[np.ndarray, " q"], loss: str
) -> float:
    """Return the T > 0 that minimizes the log loss of ``probabilities``.

    Args:
        scores: F of nodes of which the run has not seen the labels.
        codes: indices of their classes.
        loss: of the run.

    Raises:
        ValueError: scores that are equal for all classes, or not finite.
    """
    z = _logits(scores, loss)
    scale = float(np.mean(np.ptp(z, axis=1)))
    if not 0 < scale < np.inf:
        msg = (
            f"calibration needs scores that differ, and those of all {len(z)} "
            "validation nodes are equal or infinite; pass another val_mask"
        )
        raise ValueError(msg)
    gaps = (z - z[np.arange(len(z)), codes][:, None]) / scale

    def slope(log_inverse: float) -> float:
        """Return the derivative of the log loss, convex in 1 / T, in 1 / T."""
        p = scipy.special.softmax(np.exp(log_inverse) * gaps, axis=1)
        return float(np.mean(np.sum(p * gaps, axis=1)))

    ends = slope(-_LARGEST), slope(_LARGEST)
    if ends[0] < 0 < ends[1]:
        root: Any = scipy.optimize.brentq(slope, -_LARGEST, _LARGEST, xtol=1e-13)
        return scale * float(np.exp(-root))
    is_right = ends[1] <= 0
    kind, near = (
        ("right", "0 and 1") if is_right else ("no better than chance", "equal")
    )
    msg = (
        f"no temperature is best: the {len(z)} validation nodes are predicted {kind}, "
        f"so the probabilities are nearly {near}; add validation nodes"
    )
    warnings.warn(msg, UserWarning, stacklevel=4)
    return scale * float(np.exp(-_LARGEST if is_right else _LARGEST))


def probabilities(
    scores: Float[np.ndarray, "q c"], loss: str, temperature: float
) -> Float[np.ndarray, "q c"]:
    """Return softmax(z / T) in the precision of the scores."""
    z = _logits(scores, loss) / temperature
    return scipy.special.softmax(z, axis=1).astype(scores.dtype)


def _logits(scores: Float[np.ndarray, "q c"], loss: str) -> Float[np.ndarray, "q c"]:
    """Return the scores of the cross-entropies, else their shares, in float64.

    The scale of squared-loss scores varies from node to node with the distance from the
    training nodes, which one temperature does not correct.
    """
    if loss not in {"softmax", "sigmoid"}:
        scores = _scores.probabilities(scores, loss)
    return scores.astype(np.float64)
