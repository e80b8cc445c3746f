"""What a run of RP tells: its trajectory, and where it diverged, why, and a remedy."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gnnrp.propagation import exact, losses, selection
from gnnrp.runtime import tracing
from gnnrp.types import LinearMap, ResidualFn

_GROWN = (
    1.01  # a residual that ends 1 percent above its start grows, and not by round-off
)
_ITERATIONS = 50  # of the power method, for each end
_ROUND_OFF = 1e-5  # of an eigenvalue that is zero, over the largest
_SLOPES = {losses.squared: 1.0, losses.sigmoid: 0.25, losses.softmax: 0.5}  # at most


class Divergence(NamedTuple):
    """Where a residual grew past its start, and did not come back."""

    step: int  # the first one; its update did it
    column: int  # class or task whose residual is the largest then
    safe_step_size: float  # 2 / λ_max, about; 0: none is; NaN: not known
    explanation: str


class Report(NamedTuple):
    """How a run was made and what the spectrum says of it."""

    method: str  # "exact", "krylov" or "iterate"
    reason: str
    num_steps: int  # steps looked at; fewer than asked for if a run was stopped
    diverged: Bool[np.ndarray, "*s"]  # the residual grew, or is not finite
    divergences: tuple[Divergence | None, ...]  # one a split
    convergence: tuple[exact.Convergence, ...] | None  # one a split; None: not known
    error: float  # estimated relative error of the predictions ("krylov"), else 0
    columns: int  # that S was applied to; closed forms share them among step sizes
    remarks: dict[str, str]  # by kind: what may mislead; ``run`` warns of them


class Trajectory(NamedTuple):
    """What a run found; curves start after the first step."""

    train_residual: Float[np.ndarray, "*s t"]  # RMS of the residual that step t sent
    val: Float[np.ndarray, "*s t"]
    test: Float[np.ndarray, "*s t"]
    best_step: Int[np.ndarray, "*s"]
    best_val: Float[np.ndarray, "*s"]
    best_test: Float[np.ndarray, "*s"]
    predictions: Float[Any, "*s n c"]  # F at the best step, of all nodes
    report: Report


class Found(NamedTuple):
    """What a driver hands back to ``residual.run``."""

    train_residual: Float[np.ndarray, "s t"]
    val: Float[np.ndarray, "s t"]
    test: Float[np.ndarray, "s t"]
    worst: Int[np.ndarray, " s"]  # column of the largest residual when it had grown
    selection: selection.Selection
    predictions: Float[Any, "s n c"]
    convergence: tuple[exact.Convergence, ...] | None
    error: float
    columns: int


def grown(norms: Float[np.ndarray, "s t"]) -> Int[np.ndarray, " s"]:
    """Return the first step that had made each residual grow for good; 0: none did."""
    with np.errstate(invalid="ignore", over="ignore"):
        bounded = norms <= _GROWN * norms[:, :1]
    last = norms.shape[1] - 1 - np.argmax(bounded[:, ::-1], axis=1)
    # The residual that step t sends is what step t - 1 left.
    return np.where(bounded[:, -1], 0, np.where(bounded.any(axis=1), last + 1, 1))


def trajectory(
    found: Found,
    method: str,
    reason: str,
    asked: tuple[ResidualFn, float, Callable[[], np.ndarray]],
    *,
    single: bool,
) -> Trajectory:
    """Return what a driver found as users see it.

    Args:
        found: by the driver.
        method: taken.
        reason: why.
        asked: residual, step size, and what gives ``ends``, to explain divergence.
        single: a split without an axis for it.

    Raises:
        ValueError: no step has a validation score, though nothing diverges.
    """
    steps = np.asarray(found.selection.step)
    rows, at = np.arange(len(steps)), np.maximum(steps, 1) - 1
    when = grown(found.train_residual)
    if (unscored := (steps == 0) & (when == 0)).any():
        msg = (
            f"the metric is NaN on the validation nodes of split {np.argmax(unscored)} "
            "at every step, as a ROC-AUC is where all are of one class; take other "
            "nodes or another metric"
        )
        raise ValueError(msg)
    divergences = tuple(
        _divergence(found, split, int(step), asked) if step else None
        for split, step in enumerate(when)
    )
    report = Report(
        method,
        reason,
        found.train_residual.shape[1],
        when > 0,
        divergences,
        found.convergence,
        float(found.error),
        found.columns,
        {},
    )
    val, test = found.val, found.test
    curves = (found.train_residual, val, test)
    best = (steps, val[rows, at], test[rows, at], found.predictions)
    if not single:
        return Trajectory(*curves, *best, report)
    return Trajectory(
        *(each[0] for each in (*curves, *best)),
        report=report._replace(diverged=report.diverged[0]),
    )


def _divergence(
    found: Found,
    split: int,
    step: int,
    asked: tuple[ResidualFn, float, Callable[[], np.ndarray]],
) -> Divergence:
    residual_fn, step_size, ends_fn = asked
    if found.convergence is None:
        safe, why = _safe(ends_fn()[:, split], residual_fn, step_size)
    else:
        told = found.convergence[split]
        safe, why = told.safe_step_size, told.explanation
        if told.definiteness == "indefinite":
            safe = 0.0
    return Divergence(step, int(found.worst[split]), safe, why)


def _safe(
    found: Float[np.ndarray, "2"], residual_fn: ResidualFn, step_size: float
) -> tuple[float, str]:
    """Return a step size that would have been safe, and why this one was not.

    Args:
        found: the ends of the spectrum of S_XX.
        residual_fn: see ``losses``.
        step_size: η.
    """
    smallest, largest = float(min(found)), float(max(found))
    # By identity: not every function of a caller can be hashed.
    slope = next((x for fn, x in _SLOPES.items() if fn is residual_fn), None)
    if slope is None or not np.isfinite(found).all() or largest == smallest == 0:
        return float("nan"), "no step size is known to be safe for this loss"
    safe = 2 / (slope * largest) if largest > 0 else np.inf
    too_large = f"step size {step_size:g} is not below 2 / λ_max = {safe:.4g}"
    if smallest < -_ROUND_OFF * max(largest, -smallest):
        why = f"S_XX has an eigenvalue near {smallest:.4g} < 0: no step is safe"
        return 0.0, f"{too_large}, and {why}" if step_size >= safe else why
    if step_size < safe:
        return 0.0, (
            f"step size {step_size:g} is below 2 / λ_max = {safe:.4g}, so S_XX cannot "
            "be symmetric: no step is safe"
        )
    return safe, too_large


@tracing.Jit
def ends(similarity: LinearMap, train: Bool[Array, "s n"]) -> Float[Array, "2 s"]:
    """Return both ends of the spectrum of S_XX of each split, about, in no order.

    The power method, of S_XX and of what is left of it less its dominant eigenvalue;
    splits are columns.
    """
    inside = train.T

    def along(v, shift):
        return jnp.where(inside, similarity(v), 0) - shift[None, :] * v

    def dominant(shift):
        def body(_, v):
            moved = along(v, shift)
            norm = jnp.linalg.norm(moved, axis=0, keepdims=True)
            return moved / jnp.where(norm > 0, norm, 1)

        v = jax.lax.fori_loop(0, _ITERATIONS, body, body(0, start))
        return jnp.sum(v * along(v, shift), axis=0)

    start = 1 + jnp.sin(jnp.arange(len(inside), dtype=jnp.zeros(0).dtype)) / 2
    start = jnp.where(inside, start[:, None], 0)
    one = dominant(jnp.zeros(len(train), start.dtype))
    return jnp.stack([one, one + dominant(one)])
