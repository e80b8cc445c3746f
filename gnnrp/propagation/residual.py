"""Residual propagation (RP): gradient descent in function space, without weights.

``init`` and ``step`` are the algorithm. ``run`` drives it over many steps and splits,
keeps the best step by validation, and takes the shortest way there (see ``run``).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from gnnrp import _checks
from gnnrp.propagation import (
    _curves,
    _forms,
    _iterated,
    exact,
    losses,
    methods,
    selection,
)
from gnnrp.propagation.problem import Problem, make_problem
from gnnrp.propagation.similarity import as_pytree, everywhere, on_support
from gnnrp.types import LinearMap, MetricFn, ResidualFn, Scalar, Split

MOST_STEPS = 10_000_000

# ``_iterated`` owns the state, so that the pure step and the driver share one.
State = _iterated.State
init = _iterated.init
step = _iterated.step
residuals = _iterated.residuals


class Report(NamedTuple):
    """How a run was made and what the spectrum says of it."""

    method: str  # "exact", "krylov" or "iterate"
    reason: str
    num_steps: int  # steps looked at; fewer than asked for if patience ended them
    diverged: Bool[np.ndarray, "*s"]  # the residual grew, or is not finite
    convergence: tuple[exact.Convergence, ...] | None  # one a split; None: not known
    error: float  # estimated relative error of the predictions ("krylov"), else 0
    columns: int  # that S was applied to; closed forms share them among step sizes


class Trajectory(NamedTuple):
    """What a run found; curves start after the first step."""

    train_residual: Float[np.ndarray, "*s t"]  # RMS of the residual that step t sent
    val: Float[np.ndarray, "*s t"]
    test: Float[np.ndarray, "*s t"]
    best_step: Int[np.ndarray, "*s"]
    best_val: Float[np.ndarray, "*s"]
    best_test: Float[np.ndarray, "*s"]
    predictions: Float[np.ndarray, "*s n c"]  # F at the best step, of all nodes
    report: Report


def run(
    similarity: LinearMap,
    targets: Float[Any, "n c"],
    split: Split,
    *,
    step_size: Scalar,
    num_steps: int,
    metric: MetricFn,
    residual_fn: ResidualFn = losses.squared,
    initial: Float[Any, "*s n c"] | None = None,
    method: str = "auto",
    select: str = "first",
    patience: int | None = None,
    max_bytes: int | None = None,
    callback: Callable[[int, int], None] | None = None,
) -> Trajectory:
    """Run RP and keep, for each split, the step with the best validation value.

    Methods: "iterate" takes the steps one by one and serves every loss; "exact" takes
    all of them from the eigenvectors of S_XX, "krylov" from a Krylov space, both for
    the squared loss and a symmetric S. "auto" takes the one that sends the fewest
    columns through S, of those that serve and fit the memory: "exact" up to 2,000
    training nodes a split, "krylov" if its vectors fit 2 GiB. The report says why.

    Args:
        similarity: S.
        targets: Y; NaN where unknown (such entries are never fed back). Rows outside
            the training mask are only used by the metric.
        split: masks (n,), or (s, n) for several splits at once, which then share each
            product. Without a validation node the last step is kept.
        step_size: η > 0.
        num_steps: t.
        metric: such as ``metrics.accuracy``.
        residual_fn: see ``losses``.
        initial: F_0, zero if left out; predictions of another model, say.
        method: see above.
        select: "first" or "last" of several best steps.
        patience: stop after so many steps without a better validation value.
        max_bytes: what may be held in all; what there is if left out, see ``memory``.
        callback: called with (done, total) now and then.

    Raises:
        ValueError: shapes, masks or settings that do not fit; a method that does not
            serve the loss or the similarity, or takes more memory than there is.
        TypeError: a similarity, metric or residual that is no function.

    Source: Eq. 6 and Algorithm 1 (App. D.3). Its "while validation performance
    increases" is not what produced the published numbers; a fixed number of steps is.
    """
    trajectories = run_all(
        similarity,
        targets,
        split,
        step_sizes=[float(step_size)],
        num_steps=num_steps,
        metric=metric,
        residual_fn=residual_fn,
        initial=initial,
        method=method,
        select=select,
        patience=patience,
        max_bytes=max_bytes,
        callback=callback,
    )
    return trajectories[0]


def run_all(
    similarity: LinearMap,
    targets: Float[Any, "n c"],
    split: Split,
    *,
    step_sizes: Sequence[float],
    num_steps: int,
    metric: MetricFn,
    residual_fn: ResidualFn = losses.squared,
    initial: Float[Any, "*s n c"] | None = None,
    method: str = "auto",
    select: str = "first",
    patience: int | None = None,
    max_bytes: int | None = None,
    sent: Callable[[], Array] | None = None,
    callback: Callable[[int, int], None] | None = None,
) -> list[Trajectory]:
    """Run RP for several step sizes at once; return a trajectory for each.

    The closed forms share their products with S; where steps are iterated, the step
    sizes are columns of one product.

    Args:
        similarity: see ``run``.
        targets: see ``run``.
        split: see ``run``.
        step_sizes: η, each positive.
        num_steps: see ``run``.
        metric: see ``run``.
        residual_fn: see ``run``.
        initial: see ``run``.
        method: see ``run``.
        select: see ``run``.
        patience: see ``run``; each step size has its own.
        max_bytes: see ``run``.
        sent: gives S [R_0, 0], (n, s, c), where that costs less than S does; only the
            method "krylov" asks.
        callback: see ``run``.

    Raises:
        ValueError: as ``run``; no step size.
        TypeError: as ``run``.
    """
    step_sizes = [float(step_size) for step_size in step_sizes]  # or an array
    functions = {"metric": metric, "residual_fn": residual_fn}
    num_steps, choice = _checked_settings(
        step_sizes, num_steps, functions, method, select, patience
    )
    split = Split(*split)
    problem = make_problem(targets, split, initial)
    similarity = everywhere(as_pytree(similarity))
    method, reason, krylov_bytes = methods.choose(
        method, similarity, problem, residual_fn, num_steps, len(step_sizes), max_bytes
    )
    similarity = on_support(similarity, problem.train.any(axis=0))
    if method == "iterate":
        found = _iterated.run(
            similarity,
            problem,
            step_sizes=step_sizes,
            num_steps=num_steps,
            metric=metric,
            residual_fn=residual_fn,
            callback=callback,
            **choice,
        )
    else:
        forms, cost = _forms.build(
            method,
            similarity,
            problem,
            step_sizes=step_sizes,
            num_steps=num_steps,
            max_bytes=krylov_bytes,
            sent=_known_product(sent, problem) if method == "krylov" else None,
            callback=callback,
        )
        found = [
            _curves.run(some, problem, num_steps, metric=metric, **choice)._replace(
                error=cost.error, columns=cost.columns
            )
            for some in forms
        ]
    single = np.ndim(split.train) == 1
    return [_trajectory(each, method, reason, single=single) for each in found]


def _known_product(sent: Callable[[], Array] | None, problem: Problem) -> Array | None:
    """Return what the caller knows of S [R_0, 0].

    Raises:
        ValueError: of another shape, or not finite.
    """
    if sent is None:
        return None
    known = jnp.asarray(sent(), problem.targets.dtype)
    num_nodes, num_classes = problem.targets.shape
    _checks.shape("sent", known, (num_nodes, len(problem.train), num_classes))
    if not np.isfinite(known).all():
        msg = "sent must be finite"
        raise ValueError(msg)
    return known


def _checked_settings(
    step_sizes: Sequence[float],
    num_steps: int,
    functions: dict[str, Any],
    method: str,
    select: str,
    patience: int | None,
) -> tuple[int, dict[str, Any]]:
    """Return the number of steps, and how one of them is selected.

    Raises:
        ValueError: a setting out of range.
        TypeError: a metric or residual that is no function.
    """
    _checks.one_of("method", method, methods.METHODS)
    _checks.one_of("select", select, selection.RULES)
    if len(step_sizes) == 0:
        msg = "step_sizes must hold at least one step size"
        raise ValueError(msg)
    for step_size in step_sizes:
        _checks.positive("step_size", step_size)
    num_steps = _checks.count("num_steps", num_steps, 1, MOST_STEPS)
    limit = np.iinfo(np.int32).max
    if patience is not None:
        limit = _checks.count("patience", patience, 1)
    for name, function in functions.items():
        if not callable(function):
            msg = f"{name} must be a function, got {function!r}; see its by_name"
            raise TypeError(msg)
    return num_steps, {"rule": select, "patience": jnp.asarray(limit, jnp.int32)}


def _trajectory(
    found: _iterated.Found, method: str, reason: str, *, single: bool
) -> Trajectory:
    norms = found.train_residual
    with np.errstate(invalid="ignore", over="ignore"):
        # A residual that ends 1 percent above its start is growing, not rounding.
        diverged = ~(norms[:, -1] <= 1.01 * norms[:, 0])
    steps = found.selection.step
    rows = np.arange(len(steps))
    at = np.maximum(np.asarray(steps), 1) - 1
    convergence = found.convergence
    report = Report(
        method,
        reason,
        norms.shape[1],
        diverged,
        convergence,
        float(found.error),
        found.columns,
    )
    val, test = found.val, found.test
    result = Trajectory(
        norms,
        val,
        test,
        np.asarray(steps),
        val[rows, at],
        test[rows, at],
        np.asarray(found.predictions),
        report,
    )
    if not single:
        return result
    first = {name: getattr(result, name)[0] for name in Trajectory._fields[:-1]}
    return Trajectory(**first, report=report._replace(diverged=diverged[0]))
