"""Weights of a sum of kernels, from their alignment with the training labels.

    K = Σ_i μ_i K_i, μ >= 0

The paper's thesis is that learning goes well where the kernel aligns with the labels. A
combination chooses the weights for which it does, on the training nodes alone. By
default it compares different nodes only: the diagonal aligns with the labels whatever
the kernel knows of them, and dominates the kernel of a few nodes that are far apart.

Source: Cortes, Mohri and Rostamizadeh 2012 (JMLR 13), who keep the diagonal; not in the
paper.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
from jaxtyping import Float

from gnnrp.runtime import arrays, checks

RULES = ("independent", "joint")


class ConstantKernelError(ValueError):
    """A kernel that is the same for all pairs of nodes has no alignment."""


class Combination(NamedTuple):
    """Weights of kernels, and the alignments from which they follow."""

    weights: Float[np.ndarray, " k"]  # μ
    alignments: Float[np.ndarray, " k"]  # A(K_i, Y Y^T)
    overlaps: Float[np.ndarray, "k k"]  # A(K_i, K_j)
    alignment: float  # A(Σ μ_i K_i, Y Y^T)


def combine(
    kernels: Sequence[Float[Any, "l l"]],
    targets: Float[Any, "l c"],
    *,
    rule: str = "joint",
    diagonal: bool = False,
) -> Combination:
    """Return the weights of kernels whose sum aligns with the targets.

    The alignment A is the correlation of two kernels over all pairs of different nodes,
    or that of H K H with H = I - 11^T / l if the diagonal counts. Let ρ_i be that of
    K_i with Y Y^T, and M_ij that of K_i and K_j. The independent rule takes
    v_i = max(ρ_i, 0). The joint rule maximizes the alignment of the sum: v minimizes
    v^T M v - 2 v^T ρ over v >= 0. In both, μ_i = v_i / |K_i| with the norm of the
    centered kernel, and Σ v_i = 1.

    Args:
        kernels: K_i on the l training nodes, symmetric.
        targets: Y of these nodes, one-hot, or a column of ±1.
        rule: "independent" or "joint".
        diagonal: compare each node with itself too.

    Raises:
        ValueError: no kernel, an unknown rule, kernels that are not symmetric or not
            finite, kernels and targets of different sizes, a kernel that is constant,
            targets that are not one-hot or ±1, or of one class, or no kernel with a
            positive alignment.
        TypeError: kernels or targets that are not real numbers.
    """
    checks.one_of("rule", rule, RULES)
    centered = [_unit(f"kernels[{i}]", K, diagonal) for i, K in enumerate(kernels)]
    if not centered:
        msg = "kernels must not be empty; pass at least one matrix"
        raise ValueError(msg)
    Y = _targets(targets)
    ideal, _ = _unit("the kernel of the targets", Y @ Y.T, diagonal)
    for i, (K, _) in enumerate(centered):
        checks.rows(f"kernels[{i}]", K, len(ideal))
    alignments = np.array([np.vdot(K, ideal) for K, _ in centered])
    overlaps = np.array([[np.vdot(K, L) for K, _ in centered] for L, _ in centered])
    if alignments.max() <= 0:
        msg = (
            "no kernel aligns with the targets: the largest alignment is "
            f"{alignments.max():.2g}; pass others"
        )
        raise ValueError(msg)
    if rule == "independent":
        v = np.maximum(alignments, 0)
    else:
        v = _joint(overlaps, alignments)
    v = v / v.sum()
    return Combination(
        weights=v / np.array([norm for _, norm in centered]),
        alignments=alignments,
        overlaps=overlaps,
        alignment=float(v @ alignments / np.sqrt(v @ overlaps @ v)),
    )


def align(kernel: Float[Any, "l l"], targets: Float[Any, "l c"]) -> float:
    """Return the alignment of a kernel with the targets, over pairs of different nodes.

    The alignment of a constant kernel is 0. For the arguments, see ``combine``.
    """
    Y = _targets(targets)
    ideal, _ = _unit("the kernel of the targets", Y @ Y.T, False)
    try:
        K, _ = _unit("kernel", kernel, False)
    except ConstantKernelError:
        return 0.0
    checks.rows("kernel", K, len(ideal))
    return float(np.vdot(K, ideal))


def _targets(targets: Any) -> np.ndarray:
    """Return Y, which must be one-hot, or a column of ±1."""
    Y = checks.reals("targets", targets).astype(np.float64)
    is_binary = Y.ndim == 2 and Y.shape[1] == 1 and bool(np.isin(Y, (-1, 1)).all())
    is_one_hot = Y.ndim == 2 and bool(
        np.isin(Y, (0, 1)).all() and (Y.sum(1) == 1).all()
    )
    if not is_binary and not is_one_hot:
        msg = (
            f"targets must be one-hot (l, c), or a column of -1 and 1, got shape "
            f"{Y.shape}; np.eye(num_classes)[labels] makes one of labels"
        )
        raise ValueError(msg)
    return Y


def _joint(overlaps: np.ndarray, alignments: np.ndarray) -> np.ndarray:
    """Return the v >= 0 that minimizes v^T M v - 2 v^T ρ.

    With M = Q diag(λ) Q^T, this is non-negative least squares of diag(λ)^1/2 Q^T v and
    diag(λ)^-1/2 Q^T ρ. Directions in which kernels repeat each other have λ = 0.
    """
    values, vectors = np.linalg.eigh(overlaps)
    used = values > len(values) * np.finfo(np.float64).eps * values[-1]
    root = np.sqrt(values[used])[:, None]
    left = root * vectors[:, used].T
    return scipy.optimize.nnls(left, vectors[:, used].T @ alignments / root[:, 0])[0]


def _unit(name: str, kernel: Any, diagonal: bool) -> tuple[np.ndarray, float]:
    """Return the centered kernel over its norm, and the norm.

    Raises:
        ValueError: K is not square, not finite, or not symmetric.
        TypeError: K is not a matrix of real numbers.
        ConstantKernelError: K is constant.
    """
    K = checks.reals(name, kernel).astype(np.float64)
    checks.square(name, K)
    if not np.isfinite(K).all():
        msg = f"{name} must be finite, and holds NaN or infinity"
        raise ValueError(msg)
    eps = float(np.finfo(np.float32).eps)  # kernels may come from float32
    if (pair := arrays.asymmetric_pair(K, eps)) is not None:
        msg = f"{name} must be symmetric, and entry {pair} differs from its transpose"
        raise ValueError(msg)
    size, largest = len(K), np.abs(K).max(initial=0)
    if diagonal:
        rows = K.mean(axis=0)
        K += rows.mean() - rows[None, :] - rows[:, None]
    else:
        K -= (K.sum() - K.trace()) / max(1, size * (size - 1))
        np.fill_diagonal(K, 0)
    norm = float(np.linalg.norm(K))
    if norm <= size * np.finfo(np.float64).eps * largest:
        msg = f"{name} is constant, so it has no alignment; leave it out"
        raise ConstantKernelError(msg)
    return K / norm, norm
