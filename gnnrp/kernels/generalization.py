"""Terms of the risk bound by alignment, and the Bayes-optimal kernel.

Labels are ±1, as both theorems need without stating it.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float

from gnnrp.runtime import arrays, checks

_ROUND_OFF = 1e-9  # such that mirror images may differ by 1e-6 of their rows


class Bound(NamedTuple):
    """The terms of the risk bound; loss in [0, 1] and 1-Lipschitz, up to constants."""

    complexity: float  # y^T Θ^-1 y = l - α <y y^T, A_XX>, small where labels align
    trace: float  # tr Θ <= l / (1 - α λ_max(A_XX))
    main: float  # sqrt(complexity * trace) / l
    confidence: float  # sqrt(log(1 / δ) / l)


def bound(
    adjacency: Float[Any, "n n"],
    labels: Float[np.ndarray, " n"],
    train_mask: Bool[np.ndarray, " n"],
    *,
    alpha: float,
    confidence: float = 0.05,
) -> Bound:
    """Return the terms of the bound for Θ = (I - α A_XX)^-1.

    Θ is the inverse of the training block, not the training block of (I - α A)^-1, for
    which y^T Θ^-1 y = l - α <y y^T, A_XX> does not hold.

    Args:
        adjacency: A, symmetric, dense.
        labels: y, ±1; only those of the training nodes are used.
        train_mask: X.
        alpha: α in [0, 1 / λ_max(A_XX)).
        confidence: δ in (0, 1): the bound holds with probability 1 - δ.

    Raises:
        ValueError: an argument out of range, of another shape, or an empty mask.
        TypeError: a mask that is not boolean, a matrix that is not dense.

    Source: Eq. 16, with its derivation in the appendix. The main text has an equality
    sign for a bound, and a constant c that depends on the data.
    """
    A = checks.reals("the adjacency", adjacency).astype(np.float64)
    checks.square("the adjacency", A)
    train = np.flatnonzero(checks.mask("train_mask", train_mask, len(A)))
    y = checks.reals("labels", labels).astype(np.float64)
    checks.shape("labels", y, A.shape[:1])
    y, A = y[train], A[np.ix_(train, train)]
    if not train.size:
        msg = "there must be a training node"
        raise ValueError(msg)
    if not np.isin(y, (-1, 1)).all():
        msg = f"labels must be -1 or 1, got {y[~np.isin(y, (-1, 1))][0]:g}"
        raise ValueError(msg)
    if not 0 < checks.number("confidence", confidence) < 1:
        msg = f"confidence must be in (0, 1), got {confidence}"
        raise ValueError(msg)
    if arrays.asymmetric_pair(A, _ROUND_OFF) is not None:
        msg = "the adjacency must be symmetric and finite between the training nodes"
        raise ValueError(msg)
    values = scipy.linalg.eigvalsh(A)
    checks.at_least("alpha", alpha, 0)
    if alpha * values[-1] >= 1:
        msg = f"alpha must be below 1 / λ_max = {1 / values[-1]:.6g}, got {alpha}"
        raise ValueError(msg)
    num_train = len(train)
    complexity = float(num_train - alpha * y @ A @ y)
    trace = float(np.sum(1 / (1 - alpha * values)))
    main = float(np.sqrt(complexity * trace) / num_train)
    deviation = float(np.sqrt(np.log(1 / confidence) / num_train))
    return Bound(complexity, trace, main, deviation)


def bayes_kernel(same_class: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """Return K* = 2 P - 11^T, the covariance of balanced ±1 labels.

    It is the kernel of the best linear predictor of some labels from others
    (``best_linear``). Under the proof's assumption P = A it is 2 A - 11^T; the
    theorem's statement, A itself, holds where P = (1 + A) / 2 (its condition, P
    proportional to A - 1/2, should be P - 1/2 proportional to A).

    Args:
        same_class: P_ij = P(y_i = y_j), symmetric, 1 on the diagonal.

    Raises:
        ValueError: P is not such a matrix, or K* is not positive definite.
        TypeError: not real numbers, or sparse.

    Source: Thm. 5.2 and its proof in the appendix.
    """
    P = checks.reals("same_class", same_class).astype(np.float64)
    checks.square("same_class", P)
    if not (P.size and np.array_equal(P, P.T) and np.all(np.diag(P) == 1)):
        msg = "same_class must be symmetric with ones on its diagonal"
        raise ValueError(msg)
    if P.min() < 0 or P.max() > 1:
        msg = f"same_class must hold probabilities, got {P.min():g} to {P.max():g}"
        raise ValueError(msg)
    kernel = 2 * P - 1
    smallest = scipy.linalg.eigvalsh(kernel)[0]
    if smallest <= 0:
        msg = f"K* must be positive definite; its smallest eigenvalue is {smallest:.4g}"
        raise ValueError(msg)
    return kernel


def best_linear(
    kernel: Float[np.ndarray, "n n"], train_mask: Bool[np.ndarray, " n"]
) -> Float[np.ndarray, "m l"]:
    """Return K_X'X K_XX^-1: the weights of the training labels for the other nodes.

    No linear predictor from the training labels has a smaller squared risk if the
    kernel is proportional to the covariance of the labels. (In the paper's proof a node
    is among its own regressors, where every invertible kernel has zero risk.)

    Args:
        kernel: K*, positive definite on the training nodes.
        train_mask: X, some nodes but not all.

    Raises:
        ValueError: an argument of another shape, or not as above.
        TypeError: a mask that is not boolean, a matrix that is not dense.

    Source: Thm. 5.2, corrected.
    """
    kernel = checks.reals("kernel", kernel)
    checks.square("kernel", kernel)
    train_mask = np.asarray(checks.mask("train_mask", train_mask, len(kernel)))
    if train_mask.all() or not train_mask.any():
        msg = f"train_mask must hold some of {len(kernel)} nodes, neither all nor none"
        raise ValueError(msg)
    inside = kernel[np.ix_(train_mask, train_mask)]
    across = kernel[np.ix_(~train_mask, train_mask)]
    try:
        return scipy.linalg.solve(inside, across.T, assume_a="pos").T
    except scipy.linalg.LinAlgError as error:
        msg = "kernel must be positive definite on the training nodes; see bayes_kernel"
        raise ValueError(msg) from error
