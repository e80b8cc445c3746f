"""Faults of restored states: what a scan over a curve or one evaluation reveals.

Each function returns the fault of a checkpoint, or None. A number that nothing else
determines, such as the score or the residual norm of a step between, is not checked
here; the digest of ``checkpoints.bind`` covers it.
"""

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from gnnrp.propagation import exact, selection
from gnnrp.propagation.problem import Problem, judge, with_nan
from gnnrp.types import MetricFn

_HOPELESS = 1e6  # times its start: beyond, the next predictions may overflow
_CLOSE = 1e-2  # of numbers that another compilation may sum in another order
_NORM, _VAL, _TEST, _COLUMN = range(4)  # rows of the curves


class Choice(NamedTuple):
    """The rule by which a run chooses one of its steps."""

    metric: MetricFn  # from ``_tracing.as_static``
    rule: str
    patience: Any


def fault_of_steps(
    t: int,
    carry: Any,
    curves: Float[np.ndarray, "4 t s"],
    begun: Any,
    problem: Problem,
    mask: Any,
    norm_fn: Callable[[Problem, Any, Any], Float[Array, " s"]],
    choice: Choice,
) -> str | None:
    """Check a run of single steps.

    The predictions and the best ones must score as the curves state, up to the one node
    that round-off may move across a tie, the choice must be that of the validation
    curve, and the first norm that of the start. Numbers may be infinite or NaN only
    where a split has diverged.

    Args:
        t: number of the checkpoint.
        carry: restored; see ``_iterated``.
        curves: restored; -inf where a score is NaN.
        begun: carry of the start.
        problem: of the run.
        mask: which targets are fed back.
        norm_fn: from problem, mask and predictions, the residual norm of each split.
        choice: of the run.
    """
    if int(carry.state.t) != t:
        return f"its state is of step {int(carry.state.t)}"
    if t == 0:
        return None
    curves = np.array(curves)
    curves[[_VAL, _TEST]] = with_nan(curves[[_VAL, _TEST]])
    has_val = np.asarray(jnp.any(problem.val.mask, axis=1))
    curves = with_nan(curves)
    if not _is_chosen(carry.chosen, curves[_VAL].T, has_val, choice):
        return "its best step is not that of its curves"
    score = functools.partial(judge, problem, metric=choice.metric)
    # A new function at each call, so that a changed loss is traced anew.
    norm = jax.jit(lambda problem, mask, F: norm_fn(problem, mask, F))
    parts = (problem.val, problem.test)
    slack = [1.5 / np.maximum(1, jnp.sum(part.mask, axis=1)) for part in parts]
    F, scores = carry.state.predictions, curves[[_VAL, _TEST]]
    if not _are_close(score(F), scores[:, -1], np.stack(slack)):
        return "its predictions do not score as its curves state"
    step = np.asarray(carry.chosen.step)
    at_best = scores[:, np.maximum(step, 1) - 1, np.arange(len(step))]
    best = np.where(step > 0, score(carry.best), at_best)
    if not _are_close(best, at_best, np.stack(slack)):
        return "its best predictions do not score as its curves state"
    start, now = (
        np.asarray(norm(problem, mask, each)) for each in (begun.state.predictions, F)
    )
    if not _are_close(start, curves[_NORM, 0]):
        return "its curves do not begin at the start"
    diverged = ~(now <= _HOPELESS * start) | np.isnan(scores[:, -1]).any(axis=0)
    finite = np.isfinite(curves[_NORM]).all(axis=0)
    finite &= _are_finite(F) & _are_finite(carry.best)
    return _fault_of_values(finite | diverged, curves[_COLUMN], F.shape[2])


def fault_of_pieces(
    pieces: Sequence[Sequence[Any]],
    problem: Problem,
    initial_residual: Float[Any, "s n c"],
    choice: Choice,
) -> str | None:
    """Check the splits that eigenvectors have solved.

    The choice must be that of the validation curve, and the first norm and that of the
    best predictions those of the curve. Scores are not computed again: the curves come
    from another form of the predictions, which ranks ties in another way.

    Args:
        pieces: restored, of each split and step size; see ``_curves``.
        problem: of the run.
        initial_residual: [R_0, 0].
        choice: of the run.
    """
    num_classes = problem.targets.shape[1]
    for split, some in enumerate(pieces):
        has_val = np.array([problem.val.mask[split].any()])
        train = problem.train[split]
        scale = 1 / np.sqrt(int(train.sum() * num_classes))
        start = np.linalg.norm(initial_residual[split]) * scale
        for piece in some:
            step = int(piece.chosen.step[0])
            if not _is_chosen(piece.chosen, piece.val[None], has_val, choice):
                return f"the best step of split {split} is not that of its curves"
            if not _are_close(start, piece.norms[0]):
                return f"the curves of split {split} do not begin at the start"
            diverged = ~(piece.norms[-1:] <= _HOPELESS * start)
            finite = np.isfinite(piece.norms).all() & np.isfinite(piece.best).all()
            left = (problem.targets - piece.best)[train]
            norm = np.linalg.norm(left) * scale
            at_best = piece.norms[step : step + 1]  # none after the last step
            if not (diverged or _are_close(np.full_like(at_best, norm), at_best)):
                return f"the predictions of split {split} are not those of its curves"
            fault = _fault_of_values(finite | diverged, piece.worst, num_classes)
            if fault or not _is_convergence(piece.told):
                return fault or f"the report of split {split} cannot be read"
    return None


def _is_chosen(
    chosen: selection.Selection,
    val: Float[np.ndarray, "s t"],
    has_val: Bool[np.ndarray, " s"],
    choice: Choice,
) -> bool:
    """Return whether a choice is the one of a curve."""
    steps = np.arange(1, val.shape[1] + 1).astype(val.dtype)
    score = np.where(has_val[:, None], val, steps)
    expected = selection.over_curve(score, rule=choice.rule, patience=choice.patience)
    pairs = zip(chosen, expected, strict=True)
    return all(np.array_equal(one, other, equal_nan=True) for one, other in pairs)


def _are_close(found: Any, expected: Any, slack: Any = 0) -> bool:
    """Return whether numbers are equal up to round-off, and infinite or NaN alike."""
    found, expected = np.asarray(found), np.asarray(expected)
    bound = _CLOSE * (1e-3 + np.abs(np.where(np.isfinite(expected), expected, 0)))
    with np.errstate(invalid="ignore"):  # of infinities
        near = np.abs(found - expected) <= bound + slack
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    return bool((near | same).all())


@jax.jit
def _are_finite(predictions: Float[Array, "n s c"]) -> Bool[Array, " s"]:
    return jnp.isfinite(predictions).all(axis=(0, 2))


def _fault_of_values(sound: Any, columns: Any, num_classes: int) -> str | None:
    if not np.all(sound):
        return "it has values that are not finite, and its residual has not grown"
    if not np.isin(columns, np.arange(num_classes)).all():
        return f"its curves name a class that is not one of {num_classes}"
    return None


def _is_convergence(told: np.ndarray) -> bool:
    """Return whether bytes hold a convergence report in JSON."""
    try:
        exact.Convergence(**json.loads(bytes(told)))
    except (ValueError, TypeError, RecursionError):
        return False
    return True
