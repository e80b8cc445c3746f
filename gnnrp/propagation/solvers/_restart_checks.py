"""Checks of restored checkpoints by a scan over their curves and one evaluation.

Each function returns the fault of a checkpoint, or None. The digest of
``checkpoints.bind`` covers what nothing else determines, as the score of an inner step.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from gnnrp.propagation.convergence import Convergence
from gnnrp.propagation.problem import Problem, decode_nan, evaluate
from gnnrp.propagation.selection import Choice
from gnnrp.propagation.solvers.base import Evaluation

_OVERFLOW = 1e6  # growth of a residual beyond which the next predictions may overflow
_TOLERANCE = 1e-2  # relative, for another order of summation in another compilation
_NORM, _VAL, _TEST, _COLUMN = range(4)  # rows of the curves


def find_iterate_fault(
    t: int,
    carry: Any,
    curves: Float[np.ndarray, "4 t s"],
    start: Any,
    problem: Problem,
    mask: Any,
    norm_fn: Callable[[Problem, Any, Any], Float[Array, " s"]],
    evaluation: Evaluation,
) -> str | None:
    """Check a run of single steps, whose ``start`` is the carry before the first one.

    Scores are compared up to the one node that round-off may move across a tie. Numbers
    may be infinite or NaN only where a split has diverged.
    """
    if int(carry.state.t) != t:
        return f"its state is of step {int(carry.state.t)}"
    if t == 0:
        return None
    has_val = np.asarray(jnp.any(problem.val.mask, axis=1))
    curves = decode_nan(np.array(curves))
    if not _is_selected(carry.choice, curves[_VAL].T, has_val, evaluation):
        return "its best step is not that of its curves"
    score = functools.partial(evaluate, problem, metric=evaluation.metric)
    # A new function at each call, so that a changed loss is traced anew.
    norm = jax.jit(lambda problem, mask, F: norm_fn(problem, mask, F))
    parts = (problem.val, problem.test)
    slack = [1.5 / np.maximum(1, jnp.sum(part.mask, axis=1)) for part in parts]
    F, scores = carry.state.predictions, curves[[_VAL, _TEST]]
    if not _are_close(score(F), scores[:, -1], np.stack(slack)):
        return "its predictions do not score as its curves state"
    step = np.asarray(carry.choice.step)
    at_best = scores[:, np.maximum(step, 1) - 1, np.arange(len(step))]
    best = np.where(step > 0, score(carry.best), at_best)
    if not _are_close(best, at_best, np.stack(slack)):
        return "its best predictions do not score as its curves state"
    first, last = (
        np.asarray(norm(problem, mask, each)) for each in (start.state.predictions, F)
    )
    if not _are_close(first, curves[_NORM, 0]):
        return "its curves do not begin at the start"
    diverged = ~(last <= _OVERFLOW * first) | np.isnan(scores[:, -1]).any(axis=0)
    finite = np.isfinite(curves[_NORM]).all(axis=0)
    finite &= _are_finite(F) & _are_finite(carry.best)
    return _find_value_fault(finite | diverged, curves[_COLUMN], F.shape[2])


def find_exact_fault(
    curves: Sequence[Sequence[Any]], problem: Problem, evaluation: Evaluation
) -> str | None:
    """Check the splits that eigenvectors have solved.

    Scores are not computed again: the curves come from another form of the predictions,
    which ranks ties in another way.
    """
    num_classes = problem.targets.shape[1]
    initial_residual = problem.initial_residual
    for split, of_split in enumerate(curves):
        has_val = np.array([problem.val.mask[split].any()])
        train = problem.train[split]
        scale = 1 / np.sqrt(int(train.sum() * num_classes))
        start = np.linalg.norm(initial_residual[split]) * scale
        for curve in of_split:
            step = int(curve.choice.step[0])
            if not _is_selected(curve.choice, curve.val[None], has_val, evaluation):
                return f"the best step of split {split} is not that of its curves"
            if not _are_close(start, curve.norms[0]):
                return f"the curves of split {split} do not begin at the start"
            diverged = ~(curve.norms[-1:] <= _OVERFLOW * start)
            finite = np.isfinite(curve.norms).all() & np.isfinite(curve.best).all()
            left = (problem.targets - curve.best)[train]
            norm = np.linalg.norm(left) * scale
            at_best = curve.norms[step : step + 1]  # empty after the last step
            if not (diverged or _are_close(np.full_like(at_best, norm), at_best)):
                return f"the predictions of split {split} are not those of its curves"
            fault = _find_value_fault(
                finite | diverged, curve.worst_column, num_classes
            )
            if fault:
                return fault
            try:
                Convergence.unpack(curve.convergence)
            except ValueError:
                return f"the report of split {split} cannot be read"
    return None


def _is_selected(
    choice: Choice,
    val: Float[np.ndarray, "s t"],
    has_val: Bool[np.ndarray, " s"],
    evaluation: Evaluation,
) -> bool:
    """Return whether a choice is the one of a curve."""
    pairs = zip(choice, evaluation.choose(val, has_val), strict=True)
    return all(np.array_equal(one, other, equal_nan=True) for one, other in pairs)


def _are_close(actual: Any, expected: Any, slack: Any = 0) -> bool:
    """Return whether numbers are equal up to round-off, or equally infinite or NaN."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    bound = _TOLERANCE * (1e-3 + np.abs(np.where(np.isfinite(expected), expected, 0)))
    with np.errstate(invalid="ignore"):  # of infinities
        near = np.abs(actual - expected) <= bound + slack
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    return bool((near | same).all())


@jax.jit
def _are_finite(predictions: Float[Array, "n s c"]) -> Bool[Array, " s"]:
    return jnp.isfinite(predictions).all(axis=(0, 2))


def _find_value_fault(sound: Any, columns: Any, num_classes: int) -> str | None:
    if not np.all(sound):
        return "it has values that are not finite, and its residual has not grown"
    if not np.isin(columns, np.arange(num_classes)).all():
        return f"its curves name a class that is not one of {num_classes}"
    return None
